"""What compaction leaves of one batch: its bytes as they are, fewer records in the same frame, or an empty frame.

A frame keeps base offset, last offset, leader epoch, producer id, epoch and sequence whatever becomes of its records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from storage.batch import BatchHeader
from storage.batch_walk import StoredBatch
from storage.format import (
    ABORT,
    COMMIT,
    COMPRESSION_MASK,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from storage.key_map import KeyMap
from storage.record_walk import Kept, check_count, choose_records, largest_delta, shift_timestamps

# What one compressed batch may unfold to.
UNFOLD_BUDGET_BYTES: Final = 64 * 1024 * 1024
# Far enough, and no difference to it leaves 64 bits.
_HORIZON_MS_MAX: Final = 2**62


class CleanedBatch(NamedTuple):
    """``max_timestamp`` is None when there are no records."""

    data: bytes
    base_offset: int
    max_timestamp: int | None
    record_count: int

    @classmethod
    def as_it_is(cls, batch: StoredBatch) -> CleanedBatch:
        header = batch.header
        max_timestamp = header.max_timestamp if header.record_count else None
        return cls(batch.chunk[batch.start : batch.end], header.base_offset, max_timestamp, header.record_count)


def unfold(batch: StoredBatch) -> tuple[bytes, int, int]:
    """(bytes, start, end) of the records, out of their compression; not copied when there is none."""
    codec = batch.header.compression
    if not codec:
        body, start, end = batch.chunk, batch.start + HEADER_BYTES, batch.end
    else:
        # Its libraries take longer to load than all the rest, and many logs never need them.
        from storage.compression import decompress

        body = decompress(codec, memoryview(batch.chunk)[batch.start + HEADER_BYTES : batch.end], UNFOLD_BUDGET_BYTES)
        start, end = 0, len(body)
    check_count(batch.header, end - start)
    return body, start, end


def clean_data(
    batch: StoredBatch, offsets: KeyMap, now_ms: int, delete_retention_ms: int
) -> tuple[CleanedBatch | None, int]:
    """(what stays of a batch of records, how many records without a key it had)."""
    header = batch.header
    body, start, end = unfold(batch)
    has_horizon = header.attributes & DELETE_HORIZON_BIT != 0
    keeps_tombstones = not has_horizon or now_ms < header.base_timestamp
    kept = choose_records(body, start, end, header, offsets, keeps_tombstones=keeps_tombstones)
    if not kept.kept_count:
        return None, kept.keyless_count
    horizon_ms = _horizon(now_ms, delete_retention_ms) if kept.has_tombstone and not has_horizon else None
    if kept.kept_count == header.record_count and horizon_ms is None:
        return CleanedBatch.as_it_is(batch), 0
    return _refill(header, body, kept, horizon_ms), kept.keyless_count


def clean_control(
    batch: StoredBatch, marker: int | None, is_last_trace: bool, now_ms: int, delete_retention_ms: int
) -> CleanedBatch | None:
    """``is_last_trace``: no batch of its transaction is left."""
    header = batch.header
    if not header.record_count:
        return None
    if not is_last_trace or marker not in (ABORT, COMMIT):
        return CleanedBatch.as_it_is(batch)
    if header.attributes & DELETE_HORIZON_BIT:
        return CleanedBatch.as_it_is(batch) if now_ms < header.base_timestamp else None
    body, start, end = unfold(batch)
    kept = Kept([(start, end)], header.record_count, 0, False)
    return _refill(header, body, kept, _horizon(now_ms, delete_retention_ms))


def emptied(batch: StoredBatch) -> CleanedBatch:
    """The frame without records. Its largest timestamp stays: the age of its producer is told by it."""
    header = batch.header
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    data = _frame(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)
    return CleanedBatch(data, header.base_offset, None, 0)


def _horizon(now_ms: int, delete_retention_ms: int) -> int:
    return min(now_ms + delete_retention_ms, _HORIZON_MS_MAX)


def _refill(header: BatchHeader, body: bytes, kept: Kept, horizon_ms: int | None) -> CleanedBatch:
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = base_timestamp + largest_delta(body, kept.runs, max_timestamp - base_timestamp)
    if horizon_ms is None:
        records = b"".join([body[start:end] for start, end in kept.runs])
    else:
        # Records count their time from the base, so when that becomes the moment of deletion they are written anew.
        records = shift_timestamps(body, kept.runs, base_timestamp - horizon_ms)
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_BIT
    if header.compression:
        from storage.compression import compress

        records = compress(header.compression, records)
    data = _frame(header, records, attributes, base_timestamp, max_timestamp, kept.kept_count)
    return CleanedBatch(data, header.base_offset, max_timestamp, kept.kept_count)


def _frame(
    header: BatchHeader, records: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(records)
    fields = (attributes, header.last_offset_delta, base_timestamp, max_timestamp)
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    place = (header.base_offset, length, header.partition_leader_epoch, header.magic)
    checked = HEADER.pack(*place, 0, *fields, *producer, count)[CRC_START:] + records
    return HEADER.pack(*place, crc32c(checked), *fields, *producer, count) + records
