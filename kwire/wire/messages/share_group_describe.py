"""ShareGroupDescribe, key 77: state, members and assignments of share groups (KIP-932).

Version 0 was early access and is no longer supported.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, GroupId, Int16, Int32, String, TopicName, Uuid


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
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
    rack_id: String | None = field("0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: String = field("0+")
    client_host: String = field("0+")
    subscribed_topic_names: Array[TopicName] = field("0+")
    assignment: Assignment = field("0+")


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


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: Array[DescribedGroup] = field("0+")


SHARE_GROUP_DESCRIBE = Api(ShareGroupDescribeRequest, ShareGroupDescribeResponse)
