"""AddPartitionsToTxn, key 24: add partitions to a transaction before it writes to them.

Version 2 adds PRODUCER_FENCED. Version 3 is flexible. From version 4 on a request may have several transactions, or may
only verify that partitions are in a transaction. Version 4 and later are used between brokers; clients use version 3.
Version 5 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Int16, Int32, Int64, TopicName, TransactionalId


@struct()
class AddPartitionsToTxnTopic:
    name: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class AddPartitionsToTxnTransaction:
    transactional_id: TransactionalId = field("4+", default="")
    producer_id: Int64 = field("4+", default=0)
    producer_epoch: Int16 = field("4+", default=0)
    verify_only: Bool = field("4+", default=False)
    topics: Array[AddPartitionsToTxnTopic] = field("4+", default=list)


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: Array[AddPartitionsToTxnTransaction] = field("4+", default=list)
    v3_and_below_transactional_id: TransactionalId = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field("0-3", default=list)


@struct()
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = field("0+")
    partition_error_code: Int16 = field("0+")


@struct()
class AddPartitionsToTxnTopicResult:
    name: TopicName = field("0+")
    results_by_partition: Array[AddPartitionsToTxnPartitionResult] = field("0+")


@struct()
class AddPartitionsToTxnResult:
    transactional_id: TransactionalId = field("4+", default="")
    topic_results: Array[AddPartitionsToTxnTopicResult] = field("4+", default=list)


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("4+", default=0)
    results_by_transaction: Array[AddPartitionsToTxnResult] = field("4+", default=list)
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field("0-3", default=list)


ADD_PARTITIONS_TO_TXN = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
