"""Share groups (KIP-932) in `__consumer_offsets`, types 10 to 15.

Record types: 10 is the metadata of a member. 11 is the group and its epoch. 12 is the epoch of the target assignment.
13 is the target assignment of a member. 14 is the current assignment of a member. 15 is the partitions whose share
state is being initialized, is initialized or is being deleted.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Int8, Int32, Int64, String, Uuid


@message(versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: String = field("0")
    member_id: String = field("0")


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: String | None = field("0+")
    client_id: String = field("0+")
    client_host: String = field("0+")
    subscribed_topic_names: Array[String] = field("0+")


@message(versions="0", flexible="none")
class ShareGroupMetadataKey:
    group_id: String = field("0")


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+")


@message(versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: String = field("0")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, default=0)


@message(versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class TopicPartition:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TopicPartition] = field("0+")


@message(versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class TopicPartitions:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: Array[TopicPartitions] = field("0+")


@message(versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: String = field("0")


@struct()
class TopicPartitionsInfo:
    topic_id: Uuid = field("0+")
    topic_name: String = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class TopicInfo:
    topic_id: Uuid = field("0+")
    topic_name: String = field("0+")


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: Array[TopicPartitionsInfo] = field("0+")
    initialized_topics: Array[TopicPartitionsInfo] = field("0+")
    deleting_topics: Array[TopicInfo] = field("0+")
