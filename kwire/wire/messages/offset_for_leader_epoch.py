"""OffsetForLeaderEpoch, key 23: the end offset of a leader epoch, with which a consumer detects a truncated log.

Version 2 adds the client's current leader epoch and the throttle time. Version 3 adds the replica id; -2 is a consumer
that may read beyond the high watermark. Version 4 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Int16, Int32, Int64, TopicName


@struct()
class OffsetForLeaderPartition:
    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("2+", default=-1)
    leader_epoch: Int32 = field("0+")


@struct()
class OffsetForLeaderTopic:
    topic: TopicName = field("0+")
    partitions: Array[OffsetForLeaderPartition] = field("0+")


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = field("3+", default=-2)
    topics: Array[OffsetForLeaderTopic] = field("0+")


@struct()
class EpochEndOffset:
    error_code: Int16 = field("0+")
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("1+", default=-1)
    end_offset: Int64 = field("0+", default=-1)


@struct()
class OffsetForLeaderTopicResult:
    topic: TopicName = field("0+")
    partitions: Array[EpochEndOffset] = field("0+")


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: Array[OffsetForLeaderTopicResult] = field("0+")


OFFSET_FOR_LEADER_EPOCH = Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
