"""The records of `__transaction_state`; `kwire.wire.records.transaction_log` has their format."""

import struct

from msgspec import Struct

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.transaction.states import VERSION_WITH_TAGGED_FIELDS, Standing, State
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.errors import WireError
from kwire.wire.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions

TRANSACTION = 0

_PREFIX = struct.Struct(">h")


class TransactionRecord(Struct, frozen=True):
    """`standing` is None if the transactional id was forgotten."""

    transactional_id: str
    standing: Standing | None


def encode_record(transactional_id: str, standing: Standing | None, transaction_version: int) -> KeyValue:
    key = _PREFIX.pack(TRANSACTION) + encode_message(TransactionLogKey(transactional_id=transactional_id), 0)
    if standing is None:
        return key, None
    value = TransactionLogValue(
        producer_id=standing.producer_id,
        previous_producer_id=standing.previous_producer_id,
        next_producer_id=standing.next_producer_id,
        producer_epoch=standing.producer_epoch,
        transaction_timeout_ms=standing.timeout_ms,
        transaction_status=standing.state,
        transaction_partitions=None if standing.state is State.EMPTY else _by_topic(standing),
        transaction_last_update_timestamp_ms=standing.update_ms,
        transaction_start_timestamp_ms=standing.start_ms,
        client_transaction_version=standing.version,
    )
    # Before tagged fields were allowed, what they hold was not stored.
    version = 1 if transaction_version >= VERSION_WITH_TAGGED_FIELDS else 0
    return key, _PREFIX.pack(version) + encode_message(value, version)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None if its type belongs to somebody else. Raises WireError."""
    kind, body = _split(key)
    if kind != TRANSACTION:
        return None
    transactional_id = decode_message(TransactionLogKey, 0, body).transactional_id
    return TransactionRecord(transactional_id, None if value is None else _decode_standing(value))


def _decode_standing(value: bytes) -> Standing:
    version, body = _split(value)
    found = decode_message(TransactionLogValue, version, body)
    try:
        state = State(found.transaction_status)
    except ValueError as error:
        raise WireError(f"a transaction is in state {found.transaction_status}, which does not exist") from error
    return Standing(
        state=state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        timeout_ms=found.transaction_timeout_ms,
        partitions=frozenset(
            (one.topic, index) for one in found.transaction_partitions or () for index in one.partition_ids
        ),
        start_ms=found.transaction_start_timestamp_ms,
        update_ms=found.transaction_last_update_timestamp_ms,
        version=found.client_transaction_version,
    )


def _by_topic(standing: Standing) -> list[TransactionPartitions]:
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(standing.partitions):
        indexes.setdefault(topic, []).append(index)
    return [TransactionPartitions(topic=topic, partition_ids=found) for topic, found in indexes.items()]


def _split(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _PREFIX.size:
        raise WireError("a coordinator record is too short to name its type")
    return _PREFIX.unpack_from(data)[0], memoryview(data)[_PREFIX.size :]
