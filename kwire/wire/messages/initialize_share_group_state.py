"""InitializeShareGroupState, key 83: create the state of share partitions (KIP-932). Used between brokers."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int16, Int32, Int64, String, Uuid


@struct()
class PartitionData:
    partition: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")


@struct()
class InitializeStateData:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: String = field("0+")
    topics: Array[InitializeStateData] = field("0+")


@struct()
class PartitionResult:
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@struct()
class InitializeStateResult:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionResult] = field("0+")


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: Array[InitializeStateResult] = field("0+")


INITIALIZE_SHARE_GROUP_STATE = Api(InitializeShareGroupStateRequest, InitializeShareGroupStateResponse)
