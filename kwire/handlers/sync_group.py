"""SyncGroup 0-5: the leader of a classic group sends all assignments, and each member receives its own.

- The client needs READ on the group.
- Followers wait until the leader's assignment is stored. In a Stable group a member gets its current assignment again.
- Version 1 adds the throttle time. Version 3 adds the group instance id. In version 5 the client sends the protocol
  type and name that it expects; if they are not those of the group, the request is refused.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.concurrency.chunking import eager, spread
from kwire.coordinator.client_requests import answer_of, resolved_answer
from kwire.coordinator.group.classic.metadata_budget import GROUP_METADATA_BYTES_MAX
from kwire.coordinator.group.commands import SyncAnswer, SyncGroup
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return eager(_answer(context, request))


async def _answer(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        groups = context.groups.coordinator(Operation.READ, request.group_id)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code, assignment=b"")
    if sum(len(one.assignment) for one in request.assignments) > GROUP_METADATA_BYTES_MAX:
        # Kafka's error for a group whose record is too large for the log.
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
    return await resolved_answer(answer_of(groups, command, _response))


def _response(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
