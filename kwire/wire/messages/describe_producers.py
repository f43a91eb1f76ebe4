"""DescribeProducers, key 61: the producers with state in partitions, and their open transactions."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int16, Int32, Int64, TopicName


@struct()
class TopicRequest:
    name: TopicName = field("0+")
    partition_indexes: Array[Int32] = field("0+")


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: Array[TopicRequest] = field("0+")


@struct()
class ProducerState:
    producer_id: Int64 = field("0+")
    producer_epoch: Int32 = field("0+")
    last_sequence: Int32 = field("0+", default=-1)
    last_timestamp: Int64 = field("0+", default=-1)
    coordinator_epoch: Int32 = field("0+")
    current_txn_start_offset: Int64 = field("0+", default=-1)


@struct()
class PartitionResponse:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    active_producers: Array[ProducerState] = field("0+")


@struct()
class TopicResponse:
    name: TopicName = field("0+")
    partitions: Array[PartitionResponse] = field("0+")


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: Array[TopicResponse] = field("0+")


DESCRIBE_PRODUCERS = Api(DescribeProducersRequest, DescribeProducersResponse)
