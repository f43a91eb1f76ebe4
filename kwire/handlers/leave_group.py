"""LeaveGroup 0-5: remove members from a classic group. The group rebalances once for all of them.

- The client needs READ on the group.
- Version 1 adds the throttle time. Version 3 adds several members per request, each with its own error. A static member
  may be named by its group instance id alone.
- Version 5 adds a reason, a text for people.
- More than LEAVING_MEMBERS_MAX members in one request are INVALID_REQUEST.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.commands import LeaveAnswer, LeaveGroup, LeavingMember
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

FIRST_VERSION_OF_SEVERAL_MEMBERS = 3
# All members are removed without a pause, so that the group rebalances once. For this many members that takes some
# milliseconds. No real group is so large.
LEAVING_MEMBERS_MAX = 5_000


def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    try:
        groups = context.groups.coordinator(Operation.READ, request.group_id)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if len(request.members) > LEAVING_MEMBERS_MAX:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_MEMBERS:
        members = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
        shape = _several
    else:
        members = [LeavingMember(request.member_id)]
        shape = _single
    command = LeaveGroup(group_id=request.group_id, members=members)
    return answer_of(groups, command, lambda answer: shape(command, answer))


def _single(command: LeaveGroup, answer: LeaveAnswer) -> LeaveGroupResponse:
    error = answer.error
    if error is ErrorCode.NONE:
        error = answer.member_errors[0]
    return LeaveGroupResponse(error_code=error)


def _several(command: LeaveGroup, answer: LeaveAnswer) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
            for member, error in zip(command.members, answer.member_errors, strict=False)
        ],
    )
