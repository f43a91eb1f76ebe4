"""ListOffsets, key 2: find offsets by position or by timestamp.

Version 2 adds the isolation level. Version 4 adds leader epochs. Version 7 adds the largest timestamp. Versions 8, 9
and 11 add positions in tiered storage. Version 10 adds the timeout.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Int8, Int16, Int32, Int64, TopicName


@struct()
class ListOffsetsPartition:
    partition_index: Int32 = field("0+")
    current_leader_epoch: Int32 = field("4+", default=-1)
    timestamp: Int64 = field("0+")


@struct()
class ListOffsetsTopic:
    name: TopicName = field("0+")
    partitions: Array[ListOffsetsPartition] = field("0+")


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32 = field("0+")
    isolation_level: Int8 = field("2+", default=0)
    topics: Array[ListOffsetsTopic] = field("0+")
    timeout_ms: Int32 = field("10+", default=0)


@struct()
class ListOffsetsPartitionResponse:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


@struct()
class ListOffsetsTopicResponse:
    name: TopicName = field("0+")
    partitions: Array[ListOffsetsPartitionResponse] = field("0+")


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: Array[ListOffsetsTopicResponse] = field("0+")


LIST_OFFSETS = Api(ListOffsetsRequest, ListOffsetsResponse)
