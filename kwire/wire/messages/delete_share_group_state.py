"""DeleteShareGroupState, key 86: delete the state of share partitions (KIP-932). Used between brokers."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int16, Int32, String, Uuid


@struct()
class PartitionData:
    partition: Int32 = field("0+")


@struct()
class DeleteStateData:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: String = field("0+")
    topics: Array[DeleteStateData] = field("0+")


@struct()
class PartitionResult:
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@struct()
class DeleteStateResult:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionResult] = field("0+")


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: Array[DeleteStateResult] = field("0+")


DELETE_SHARE_GROUP_STATE = Api(DeleteShareGroupStateRequest, DeleteShareGroupStateResponse)
