"""Groups of the consumer protocol (KIP-848) in `__consumer_offsets`, types 3 to 8 and 16.

Record types: 3 is the group and its epoch. 4 is the partitions for which the epoch was computed; since Kafka 4.1 type 3
has a hash of these partitions instead. 5 is the metadata of a member. 6 is the epoch of the target assignment. 7 is the
target assignment of a member. 8 is the current assignment of a member. 16 is the topics that the regular expression of
a member matches.

The classic-protocol metadata of a member is a tagged field of type 5. Kafka's default of this field is an empty struct,
not null. So for a member without this metadata the field is written, with the value null.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Bytes, Int8, Int32, Int64, String, Uuid


@message(versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: String = field("0")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+", tag=0, default=0)


@message(versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    group_id: String = field("0")


@struct()
class PartitionMetadata:
    partition: Int32 = field("0+")
    racks: Array[String] = field("0+")


@struct()
class TopicMetadata:
    topic_id: Uuid = field("0+")
    topic_name: String = field("0+")
    num_partitions: Int32 = field("0+")
    partition_metadata: Array[PartitionMetadata] = field("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: Array[TopicMetadata] = field("0+")


@message(versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class ClassicProtocol:
    name: String = field("0+")
    metadata: Bytes = field("0+")


@struct()
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = field("0+", default=0)
    supported_protocols: Array[ClassicProtocol] = field("0+", default=list)


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: String | None = field("0+")
    rack_id: String | None = field("0+")
    client_id: String = field("0+")
    client_host: String = field("0+")
    subscribed_topic_names: Array[String] = field("0+")
    subscribed_topic_regex: String | None = field("0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    server_assignor: String | None = field("0+")
    classic_member_metadata: ClassicMemberMetadata | None = field("0+", tag=0, default=ClassicMemberMetadata)


@message(versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String = field("0")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, default=0)


@message(versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class TopicPartition:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TopicPartition] = field("0+")


@message(versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class TopicPartitions:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")
    assignment_epochs: Array[Int32] | None = field("0+", tag=0, default=list)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: Array[TopicPartitions] = field("0+")
    partitions_pending_revocation: Array[TopicPartitions] = field("0+")


@message(versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: String = field("0")
    regular_expression: String = field("0")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: Array[String] = field("0+")
    version: Int64 = field("0+")
    timestamp: Int64 = field("0+")
