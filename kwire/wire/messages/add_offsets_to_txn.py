"""AddOffsetsToTxn, key 25: add a group to a transaction that is going to commit the group's offsets.

Version 2 adds PRODUCER_FENCED. Version 3 is flexible. Version 4 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import GroupId, Int16, Int32, Int64, TransactionalId


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: TransactionalId = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    group_id: GroupId = field("0+")


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")


ADD_OFFSETS_TO_TXN = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
