"""SyncGroup, key 14: the leader of a classic group sends all assignments, and each member receives its own.

Version 3 adds static members. Version 5 adds the protocol type and name.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bytes, GroupId, Int16, Int32, String


@struct()
class SyncGroupRequestAssignment:
    member_id: String = field("0+")
    assignment: Bytes = field("0+")


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: GroupId = field("0+")
    generation_id: Int32 = field("0+")
    member_id: String = field("0+")
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignments: Array[SyncGroupRequestAssignment] = field("0+")


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+")
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignment: Bytes = field("0+")


SYNC_GROUP = Api(SyncGroupRequest, SyncGroupResponse)
