"""LeaveGroup, key 13: remove members from a classic group.

Version 3 adds several members and static members. Version 5 adds the reason.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, GroupId, Int16, Int32, String


@struct()
class MemberIdentity:
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    reason: String | None = field("5+", default=None)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: GroupId = field("0+")
    member_id: String = field("0-2", default="")
    members: Array[MemberIdentity] = field("3+", default=list)


@struct()
class MemberResponse:
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default="")
    error_code: Int16 = field("3+", default=0)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+")
    members: Array[MemberResponse] = field("3+", default=list)


LEAVE_GROUP = Api(LeaveGroupRequest, LeaveGroupResponse)
