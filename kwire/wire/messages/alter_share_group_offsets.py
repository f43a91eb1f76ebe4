"""AlterShareGroupOffsets, key 91: set the offsets of an empty share group (KIP-932)."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int16, Int32, Int64, TopicName, Uuid


@struct()
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32 = field("0+")
    start_offset: Int64 = field("0+")


@struct()
class AlterShareGroupOffsetsRequestTopic:
    topic_name: TopicName = field("0+")
    partitions: Array[AlterShareGroupOffsetsRequestPartition] = field("0+")


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: GroupId = field("0+")
    topics: Array[AlterShareGroupOffsetsRequestTopic] = field("0+")


@struct()
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@struct()
class AlterShareGroupOffsetsResponseTopic:
    topic_name: TopicName = field("0+")
    topic_id: Uuid = field("0+")
    partitions: Array[AlterShareGroupOffsetsResponsePartition] = field("0+")


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    responses: Array[AlterShareGroupOffsetsResponseTopic] = field("0+")


ALTER_SHARE_GROUP_OFFSETS = Api(AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse)
