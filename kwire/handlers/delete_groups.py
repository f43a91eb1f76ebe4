"""DeleteGroups 0-3: delete groups without members, and their offsets. Each group has its own result.

- Each group needs DELETE on it. Otherwise its result is GROUP_AUTHORIZATION_FAILED.
- A group with members is NON_EMPTY_GROUP. A group that does not exist is GROUP_ID_NOT_FOUND. A repeated group has one
  result.
- The response is sent when the deletion is durable. A group with very many offsets is deleted in chunks, so the
  response may be delayed.
- Version 1 adds the throttle time. Version 2 is flexible. Version 3 adds a message for each group that could not be
  deleted.
"""

from collections.abc import Awaitable
from functools import partial

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of, combined_answers
from kwire.coordinator.group.commands import DeleteGroup
from kwire.errors import ErrorCode, KafkaError, shortened
from kwire.handlers.shared.context import Context
from kwire.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

MESSAGES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "Group {} not found.",
    ErrorCode.NON_EMPTY_GROUP: "Group {} has members.",
}


def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    results = (_deleted(context, group_id) for group_id in dict.fromkeys(request.groups_names))
    return combined_answers(results, lambda done: DeleteGroupsResponse(results=done))


def _deleted(context: Context, group_id: str) -> DeletableGroupResult | Awaitable[DeletableGroupResult]:
    try:
        groups = context.groups.coordinator(Operation.DELETE, group_id)
    except KafkaError as error:
        return _result(group_id, error.code)
    return answer_of(groups, DeleteGroup(group_id=group_id), partial(_result, group_id))


def _result(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    message = MESSAGES.get(error)
    reason = None if message is None else shortened(message.format(group_id))
    return DeletableGroupResult(group_id=group_id, error_code=error, error_message=reason)
