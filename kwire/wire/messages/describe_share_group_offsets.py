"""DescribeShareGroupOffsets, key 90: the offsets of share groups (KIP-932).

Version 1 adds the lag (KIP-1226).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int16, Int32, Int64, TopicName, Uuid


@struct()
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class DescribeShareGroupOffsetsRequestGroup:
    group_id: GroupId = field("0+")
    topics: Array[DescribeShareGroupOffsetsRequestTopic] | None = field("0+")


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: Array[DescribeShareGroupOffsetsRequestGroup] = field("0+")


@struct()
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    leader_epoch: Int32 = field("0+")
    lag: Int64 = field("1+", default=-1)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@struct()
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: TopicName = field("0+")
    topic_id: Uuid = field("0+")
    partitions: Array[DescribeShareGroupOffsetsResponsePartition] = field("0+")


@struct()
class DescribeShareGroupOffsetsResponseGroup:
    group_id: GroupId = field("0+")
    topics: Array[DescribeShareGroupOffsetsResponseTopic] = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: Array[DescribeShareGroupOffsetsResponseGroup] = field("0+")


DESCRIBE_SHARE_GROUP_OFFSETS = Api(DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse)
