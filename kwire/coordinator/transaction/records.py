"""Encodes and decodes the records of `__transaction_state`. `kwire.wire.records.transaction_log` has the format."""

import struct

from msgspec import Struct

from kwire.coordinator.log_records import KeyValue
from kwire.coordinator.transaction.states import VERSION_WITH_TAGGED_FIELDS, State, TransactionMetadata
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.errors import WireError
from kwire.wire.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions

TRANSACTION = 0

_PREFIX = struct.Struct(">h")


class TransactionRecord(Struct, frozen=True):
    """A decoded record. `metadata` is None in a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


def encode_record(transactional_id: str, metadata: TransactionMetadata | None, transaction_version: int) -> KeyValue:
    key = _PREFIX.pack(TRANSACTION) + encode_message(TransactionLogKey(transactional_id=transactional_id), 0)
    if metadata is None:
        return key, None
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is State.EMPTY else _by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.version,
    )
    # Version 0 has no tagged fields, so it does not store the previous and next producer id and `metadata.version`.
    version = 1 if transaction_version >= VERSION_WITH_TAGGED_FIELDS else 0
    return key, _PREFIX.pack(version) + encode_message(value, version)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record. Returns None if its type is unknown. Raises WireError."""
    kind, body = _split(key)
    if kind != TRANSACTION:
        return None
    transactional_id = decode_message(TransactionLogKey, 0, body).transactional_id
    return TransactionRecord(transactional_id, None if value is None else _decode_metadata(value))


def _decode_metadata(value: bytes) -> TransactionMetadata:
    version, body = _split(value)
    found = decode_message(TransactionLogValue, version, body)
    try:
        state = State(found.transaction_status)
    except ValueError as error:
        raise WireError(
            f"transaction of producer {found.producer_id}: unknown state {found.transaction_status}"
        ) from error
    return TransactionMetadata(
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


def _by_topic(metadata: TransactionMetadata) -> list[TransactionPartitions]:
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        indexes.setdefault(topic, []).append(index)
    return [TransactionPartitions(topic=topic, partition_ids=found) for topic, found in indexes.items()]


def _split(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _PREFIX.size:
        raise WireError("a coordinator record is too short for its type")
    return _PREFIX.unpack_from(data)[0], memoryview(data)[_PREFIX.size :]
