"""Heartbeat, key 12: renew the session of a member of a classic group.

Version 3 adds static members.
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import GroupId, Int16, Int32, String


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: GroupId = field("0+")
    generation_id: Int32 = field("0+")
    member_id: String = field("0+")
    group_instance_id: String | None = field("3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0+")


HEARTBEAT = Api(HeartbeatRequest, HeartbeatResponse)
