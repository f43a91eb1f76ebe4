"""SyncGroup 0-5: the leader hands in the assignment, everyone takes theirs out.

- Followers wait until the leader's assignment is stored. In a stable group the assignment is given again.
- 1: throttling. 3: group instance id. 5: the client says which protocol it believes in, and a wrong one is refused.
"""

from collections.abc import Awaitable

from kwire.broker.chunking import eager, spread
from kwire.coordinator.asking import answer_of, settled
from kwire.coordinator.group.commands import SyncAnswer, SyncGroup
from kwire.coordinator.group.metadata_budget import GROUP_METADATA_BYTES_MAX
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return eager(_answer(context, request))


async def _answer(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    if sum(len(one.assignment) for one in request.assignments) > GROUP_METADATA_BYTES_MAX:
        # As if the record that is to hold them had been refused by the log.
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, assignment=b"")
    command = SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={one.member_id: one.assignment async for one in spread(request.assignments)},
    )
    return await settled(answer_of(context.services.groups, command, _response))


def _response(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
