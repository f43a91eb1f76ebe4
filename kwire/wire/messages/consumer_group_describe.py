"""ConsumerGroupDescribe, key 69: state, members and assignments of groups of the consumer protocol (KIP-848).

Version 1 adds whether a member uses the classic protocol (KIP-1099).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, GroupId, Int8, Int16, Int32, String, TopicName, Uuid


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: Array[GroupId] = field("0+")
    include_authorized_operations: Bool = field("0+")


@struct()
class TopicPartitions:
    topic_id: Uuid = field("0+")
    topic_name: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class Assignment:
    topic_partitions: Array[TopicPartitions] = field("0+")


@struct()
class Member:
    member_id: String = field("0+")
    instance_id: String | None = field("0+", default=None)
    rack_id: String | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: String = field("0+")
    client_host: String = field("0+")
    subscribed_topic_names: Array[TopicName] = field("0+")
    subscribed_topic_regex: String | None = field("0+", default=None)
    assignment: Assignment = field("0+")
    target_assignment: Assignment = field("0+")
    member_type: Int8 = field("1+", default=-1)


@struct()
class DescribedGroup:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    group_id: GroupId = field("0+")
    group_state: String = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    assignor_name: String = field("0+")
    members: Array[Member] = field("0+")
    authorized_operations: Int32 = field("0+", default=-2147483648)


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: Array[DescribedGroup] = field("0+")


CONSUMER_GROUP_DESCRIBE = Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
