"""DescribeTransactions, key 65: state, producer and partitions of transactional ids."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Int16, Int32, Int64, String, TopicName, TransactionalId


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: Array[TransactionalId] = field("0+")


@struct()
class TopicData:
    topic: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class TransactionState:
    error_code: Int16 = field("0+")
    transactional_id: TransactionalId = field("0+")
    transaction_state: String = field("0+")
    transaction_timeout_ms: Int32 = field("0+")
    transaction_start_time_ms: Int64 = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    topics: Array[TopicData] = field("0+")


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    transaction_states: Array[TransactionState] = field("0+")


DESCRIBE_TRANSACTIONS = Api(DescribeTransactionsRequest, DescribeTransactionsResponse)
