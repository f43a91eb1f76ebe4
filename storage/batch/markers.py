"""Transaction markers: the control batches that commit or abort a producer's transaction.

A control batch holds one record. The key of the record is a version and the type of the control record. The value of a
marker is a version and the epoch of the coordinator that wrote the marker.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from storage.batch.format import ABORT, COMMIT
from storage.batch.record_batch import BytesLike, Record, build_batch, read_records
from storage.errors import BudgetExceeded, CorruptBatch, InvalidBatch

# Versions of Kafka's control record keys and of its end-of-transaction markers.
_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
# A control batch that decompresses to more bytes counts as unreadable.
_BUDGET_BYTES: Final = 64 * 1024


class Marker(NamedTuple):
    """The outcome of a transaction, and the epoch of the coordinator that ended it."""

    is_commit: bool
    coordinator_epoch: int


def marker_record(kind: int, coordinator_epoch: int, timestamp_ms: int) -> Record:
    """The record of a marker. ``kind`` is ABORT or COMMIT."""
    return Record(_KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, coordinator_epoch), timestamp_ms)


def build_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, timestamp_ms: int
) -> bytes:
    """Build the control batch that ends a transaction."""
    record = marker_record(COMMIT if is_commit else ABORT, coordinator_epoch, timestamp_ms)
    batch = build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, is_control=True, is_transactional=True
    )
    return bytes(batch)


def control_type(record: Record) -> int | None:
    """The type of a control record: ABORT, COMMIT or another of Kafka's types; None if the key has no type."""
    if record.key is None or len(record.key) < _KEY.size:
        return None
    kind: int = _KEY.unpack_from(record.key)[1]
    return kind


def control_type_of(batch: BytesLike) -> int | None:
    """The control type of a control batch; None if the batch is empty or cannot be read."""
    record = _control_record(batch)
    return None if record is None else control_type(record)


def read_marker(batch: BytesLike) -> Marker | None:
    """The marker in a control batch; None if the batch is not a marker, is empty or cannot be read."""
    record = _control_record(batch)
    if record is None or record.value is None or len(record.value) < _VALUE.size:
        return None
    kind = control_type(record)
    if kind not in (ABORT, COMMIT):
        return None
    return Marker(kind == COMMIT, _VALUE.unpack_from(record.value)[1])


def require_marker(batch: BytesLike) -> Marker:
    """The marker in the control batch of a producer. Raises :class:`InvalidBatch` if there is none."""
    marker = read_marker(batch)
    if marker is None:
        raise InvalidBatch("a control batch with a producer id has to be a transaction marker")
    return marker


def _control_record(batch: BytesLike) -> Record | None:
    try:
        return next(iter(read_records(batch, _BUDGET_BYTES)), None)
    except (CorruptBatch, BudgetExceeded):
        return None
