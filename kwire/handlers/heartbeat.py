"""Heartbeat 0-4: renew the session of a member of a classic group, and report whether the member has to rejoin.

- The error is REBALANCE_IN_PROGRESS while the group waits for its members to join. Such a heartbeat also renews the
  session.
- The error is NONE while the group is being loaded, as in Kafka. No session timeout is running yet, and aiokafka stops
  its consumer at any other code.
- The client needs READ on the group. A member that loses it gets GROUP_AUTHORIZATION_FAILED at its next heartbeat.
- Version 1 adds the throttle time. Version 3 adds the group instance id, so that a static member that was replaced is
  fenced. Version 4 is flexible.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.commands import Heartbeat
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

# Attributes of enumerations are slow, and heartbeats are frequent.
READ = Operation.READ


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    try:
        groups = context.views.groups.coordinator(READ, request.group_id)
    except KafkaError as error:
        return _response(error.code)
    command = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    return answer_of(groups, command, _response)


def _response(error: ErrorCode) -> HeartbeatResponse:
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error)
