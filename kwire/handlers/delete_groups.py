"""DeleteGroups 0-3: delete groups without members, with their offsets; each group is judged on its own.

- A group with members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND. A name that comes twice is
  answered once.
- Answered when the deletion is durable; a group of very many offsets goes in portions, so it may take a while.
- 1: throttled answers. 2: flexible. 3: a message for each group that could not be deleted.
"""

from collections.abc import Awaitable
from functools import partial

from kwire.coordinator.asking import all_of, answer_of
from kwire.coordinator.group.commands import DeleteGroup
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

MESSAGES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "Group {} not found.",
    ErrorCode.NON_EMPTY_GROUP: "Group {} has members.",
}


def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    groups = context.services.groups
    results = (
        answer_of(groups, DeleteGroup(group_id=group_id), partial(_result, group_id))
        for group_id in dict.fromkeys(request.groups_names)
    )
    return all_of(results, lambda done: DeleteGroupsResponse(results=done))


def _result(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    message = MESSAGES.get(error)
    return DeletableGroupResult(group_id=group_id, error_code=error, error_message=message and message.format(group_id))
