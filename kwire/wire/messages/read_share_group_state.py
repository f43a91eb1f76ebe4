"""ReadShareGroupState, key 84: the complete state of share partitions (KIP-932). Used between brokers."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int8, Int16, Int32, Int64, String, Uuid


@struct()
class PartitionData:
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


@struct()
class ReadStateData:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: String = field("0+")
    topics: Array[ReadStateData] = field("0+")


@struct()
class StateBatch:
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_state: Int8 = field("0+")
    delivery_count: Int16 = field("0+")


@struct()
class PartitionResult:
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    state_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    state_batches: Array[StateBatch] = field("0+")


@struct()
class ReadStateResult:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionResult] = field("0+")


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: Array[ReadStateResult] = field("0+")


READ_SHARE_GROUP_STATE = Api(ReadShareGroupStateRequest, ReadShareGroupStateResponse)
