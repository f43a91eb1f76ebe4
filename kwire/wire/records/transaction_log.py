"""Transactions in `__transaction_state`, type 0: the state of a transactional id.

Version 1 of the value is flexible. As tagged fields it adds the previous and the next producer id, the next epoch, and
the version of the transaction protocol (KIP-890).
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Int8, Int16, Int32, Int64, String


@message(versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: String = field("0")


@struct()
class TransactionPartitions:
    topic: String = field("0+")
    partition_ids: Array[Int32] = field("0+")


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: Int64 = field("0+")
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16 = field("0+")
    next_producer_epoch: Int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: Int32 = field("0+")
    transaction_status: Int8 = field("0+")
    transaction_partitions: Array[TransactionPartitions] | None = field("0+")
    transaction_last_update_timestamp_ms: Int64 = field("0+")
    transaction_start_timestamp_ms: Int64 = field("0+")
    client_transaction_version: Int16 = field("1+", tag=2, default=0)
