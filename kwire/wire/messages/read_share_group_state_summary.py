"""ReadShareGroupStateSummary, key 87: the state of share partitions without `state_batches` (KIP-932).

Used between brokers. Version 1 adds the number of completed records from the start offset on (KIP-1226).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int16, Int32, Int64, String, Uuid


@struct()
class PartitionData:
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


@struct()
class ReadStateSummaryData:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: String = field("0+")
    topics: Array[ReadStateSummaryData] = field("0+")


@struct()
class PartitionResult:
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("1+", default=-1)


@struct()
class ReadStateSummaryResult:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionResult] = field("0+")


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: Array[ReadStateSummaryResult] = field("0+")


READ_SHARE_GROUP_STATE_SUMMARY = Api(ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse)
