"""Produce, key 0: append record batches to partitions.

Versions 0-2 have message formats that Kafka no longer stores. They are advertised because old versions of librdkafka
require them (KAFKA-18659), and are answered with an error. Version 3 adds the transactional id. Version 5 adds the log
start offset. Version 8 adds errors per record. Version 10 adds the current leader after a leadership error. Version 12
adds transactions v2. Version 13 has topic ids instead of names.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import (
    ZERO_UUID,
    Array,
    ErrorText,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    TopicName,
    TransactionalId,
    Uuid,
)


@struct()
class PartitionProduceData:
    index: Int32 = field("0+")
    records: Records | None = field("0+")


@struct()
class TopicProduceData:
    name: TopicName = field("0-12", default="")
    topic_id: Uuid = field("13+", default=ZERO_UUID)
    partition_data: Array[PartitionProduceData] = field("0+")


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: TransactionalId | None = field("3+", default=None)
    acks: Int16 = field("0+")
    timeout_ms: Int32 = field("0+")
    topic_data: Array[TopicProduceData] = field("0+")


@struct()
class BatchIndexAndErrorMessage:
    batch_index: Int32 = field("8+", default=0)
    batch_index_error_message: ErrorText | None = field("8+", default=None)


@struct()
class LeaderIdAndEpoch:
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


@struct()
class PartitionProduceResponse:
    index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    base_offset: Int64 = field("0+")
    log_append_time_ms: Int64 = field("2+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    record_errors: Array[BatchIndexAndErrorMessage] = field("8+", default=list)
    error_message: ErrorText | None = field("8+", default=None)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0, default=LeaderIdAndEpoch)


@struct()
class TopicProduceResponse:
    name: TopicName = field("0-12", default="")
    topic_id: Uuid = field("13+", default=ZERO_UUID)
    partition_responses: Array[PartitionProduceResponse] = field("0+")


@struct()
class NodeEndpoint:
    node_id: Int32 = field("10+", default=0)
    host: String = field("10+", default="")
    port: Int32 = field("10+", default=0)
    rack: String | None = field("10+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: Array[TopicProduceResponse] = field("0+")
    throttle_time_ms: Int32 = field("1+", default=0)
    node_endpoints: Array[NodeEndpoint] = field("10+", tag=0, default=list)


PRODUCE = Api(ProduceRequest, ProduceResponse)
