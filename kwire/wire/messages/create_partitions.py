"""CreatePartitions, key 37: raise the partition count of topics."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Int16, Int32, TopicName


@struct()
class CreatePartitionsAssignment:
    broker_ids: Array[Int32] = field("0+")


@struct()
class CreatePartitionsTopic:
    name: TopicName = field("0+")
    count: Int32 = field("0+")
    assignments: Array[CreatePartitionsAssignment] | None = field("0+")


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: Array[CreatePartitionsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")
    validate_only: Bool = field("0+")


@struct()
class CreatePartitionsTopicResult:
    name: TopicName = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    results: Array[CreatePartitionsTopicResult] = field("0+")


CREATE_PARTITIONS = Api(CreatePartitionsRequest, CreatePartitionsResponse)
