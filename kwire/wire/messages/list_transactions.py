"""ListTransactions, key 66: the transactions that this node coordinates.

Version 1 adds a filter by duration (KIP-994). Version 2 adds a filter by a pattern of the id (KIP-1152).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Int16, Int32, Int64, String, TransactionalId


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: Array[String] = field("0+")
    producer_id_filters: Array[Int64] = field("0+")
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", default=None)


@struct()
class TransactionState:
    transactional_id: TransactionalId = field("0+")
    producer_id: Int64 = field("0+")
    transaction_state: String = field("0+")


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    unknown_state_filters: Array[String] = field("0+")
    transaction_states: Array[TransactionState] = field("0+")


LIST_TRANSACTIONS = Api(ListTransactionsRequest, ListTransactionsResponse)
