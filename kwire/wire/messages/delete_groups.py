"""DeleteGroups, key 42: delete groups that have no members.

Version 2 is flexible. Version 3 adds an error message for each group.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int16, Int32


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: Array[GroupId] = field("0+")


@struct()
class DeletableGroupResult:
    group_id: GroupId = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("3+", default=None)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    results: Array[DeletableGroupResult] = field("0+")


DELETE_GROUPS = Api(DeleteGroupsRequest, DeleteGroupsResponse)
