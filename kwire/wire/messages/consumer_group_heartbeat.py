"""ConsumerGroupHeartbeat, key 68: join, stay in and leave a group of the consumer protocol (KIP-848).

A null field has the value of the previous heartbeat. Version 1 adds the subscription by regular expression. In version
1 the member generates its own id (KIP-1082).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int16, Int32, String, TopicName, Uuid


@struct()
class TopicPartitions:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: GroupId = field("0+")
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: String | None = field("0+", default=None)
    rack_id: String | None = field("0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    subscribed_topic_names: Array[TopicName] | None = field("0+", default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field("0+", default=None)
    topic_partitions: Array[TopicPartitions] | None = field("0+", default=None)


@struct()
class Assignment:
    topic_partitions: Array[TopicPartitions] = field("0+")


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    member_id: String | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: Assignment | None = field("0+", default=None)


CONSUMER_GROUP_HEARTBEAT = Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
