"""OffsetDelete, key 47: delete committed offsets of a group. No version is flexible."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, GroupId, Int16, Int32, TopicName


@struct()
class OffsetDeleteRequestPartition:
    partition_index: Int32 = field("0+")


@struct()
class OffsetDeleteRequestTopic:
    name: TopicName = field("0+")
    partitions: Array[OffsetDeleteRequestPartition] = field("0+")


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: GroupId = field("0+")
    topics: Array[OffsetDeleteRequestTopic] = field("0+")


@struct()
class OffsetDeleteResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


@struct()
class OffsetDeleteResponseTopic:
    name: TopicName = field("0+")
    partitions: Array[OffsetDeleteResponsePartition] = field("0+")


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: Int16 = field("0+")
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: Array[OffsetDeleteResponseTopic] = field("0+")


OFFSET_DELETE = Api(OffsetDeleteRequest, OffsetDeleteResponse)
