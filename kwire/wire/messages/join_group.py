"""JoinGroup, key 11: join the next generation of a classic group.

Version 1 adds the rebalance timeout. From version 4 on a new member gets its id before it joins. Version 5 adds static
members. Version 7 adds the protocol type. Version 8 adds the reason. Version 9 adds skip_assignment.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Bytes, GroupId, Int16, Int32, String


@struct()
class JoinGroupRequestProtocol:
    name: String = field("0+")
    metadata: Bytes = field("0+")


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: GroupId = field("0+")
    session_timeout_ms: Int32 = field("0+")
    rebalance_timeout_ms: Int32 = field("1+", default=-1)
    member_id: String = field("0+")
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String = field("0+")
    protocols: Array[JoinGroupRequestProtocol] = field("0+")
    reason: String | None = field("8+", default=None)


@struct()
class JoinGroupResponseMember:
    member_id: String = field("0+")
    group_instance_id: String | None = field("5+", default=None)
    metadata: Bytes = field("0+")


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = field("2+", default=0)
    error_code: Int16 = field("0+")
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: String | None = field("7+", default=None)
    protocol_name: String | None = field("0+", nullable="7+")
    leader: String = field("0+")
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = field("0+")
    members: Array[JoinGroupResponseMember] = field("0+")


JOIN_GROUP = Api(JoinGroupRequest, JoinGroupResponse)
