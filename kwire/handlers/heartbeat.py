"""Heartbeat 0-4: a member of a classic group is alive, and hears whether it has to join again.

- Answered REBALANCE_IN_PROGRESS while the group waits for its members to join; that renews the session all the same.
- Answered NONE while the group is being loaded, as Kafka does: nobody's session runs yet, and of the clients aiokafka
  gives up its consumer at any other word.
- 1: throttling. 3: group instance id, so that a replaced static member is fenced. 4 is flexible.
"""

from collections.abc import Awaitable

from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import Heartbeat
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    command = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    return answer_of(context.services.groups, command, _response)


def _response(error: ErrorCode) -> HeartbeatResponse:
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error)
