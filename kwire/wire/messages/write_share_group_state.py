"""WriteShareGroupState, key 85: store the delivery state of records (KIP-932). Used between brokers.

Version 1 adds the number of completed records from the start offset on (KIP-1226).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int8, Int16, Int32, Int64, String, Uuid


@struct()
class StateBatch:
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_state: Int8 = field("0+")
    delivery_count: Int16 = field("0+")


@struct()
class PartitionData:
    partition: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("1+", default=-1)
    state_batches: Array[StateBatch] = field("0+")


@struct()
class WriteStateData:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: String = field("0+")
    topics: Array[WriteStateData] = field("0+")


@struct()
class PartitionResult:
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@struct()
class WriteStateResult:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionResult] = field("0+")


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: Array[WriteStateResult] = field("0+")


WRITE_SHARE_GROUP_STATE = Api(WriteShareGroupStateRequest, WriteShareGroupStateResponse)
