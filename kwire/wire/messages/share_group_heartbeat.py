"""ShareGroupHeartbeat, key 76: join, stay in and leave a share group (KIP-932).

A null field has the value of the previous heartbeat. Version 0 was early access and is no longer supported.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int16, Int32, String, TopicName, Uuid


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: GroupId = field("0+")
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    rack_id: String | None = field("0+", default=None)
    subscribed_topic_names: Array[TopicName] | None = field("0+", default=None)


@struct()
class TopicPartitions:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class Assignment:
    topic_partitions: Array[TopicPartitions] = field("0+")


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    member_id: String | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: Assignment | None = field("0+", default=None)


SHARE_GROUP_HEARTBEAT = Api(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
