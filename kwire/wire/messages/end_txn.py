"""EndTxn, key 26: commit or abort a transaction.

Version 2 adds PRODUCER_FENCED. Version 3 is flexible. Version 4 adds TRANSACTION_ABORTABLE. Version 5 returns the
producer id and epoch of the next transaction (KIP-890).
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import Bool, Int16, Int32, Int64, TransactionalId


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: TransactionalId = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    committed: Bool = field("0+")


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("5+", default=-1)
    producer_epoch: Int16 = field("5+", default=-1)


END_TXN = Api(EndTxnRequest, EndTxnResponse)
