"""Compaction of one batch: the batch stays unchanged, keeps fewer records, or becomes an empty batch.

The header keeps base offset, last offset, leader epoch, producer id, epoch and sequence in all cases.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from storage.batch.format import (
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
from storage.batch.record_batch import BatchHeader
from storage.compaction.key_map import KeyMap
from storage.compaction.record_selection import (
    KeptRecords,
    check_count,
    largest_delta,
    select_records,
    shift_timestamps,
)
from storage.segment.sealed_scan import StoredBatch

# Bound of the decompressed size of one batch.
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
# Upper bound of a delete horizon. Timestamp deltas relative to it still fit in 64 bits.
_HORIZON_MS_MAX: Final = 2**62


class CleanedBatch(NamedTuple):
    """A batch after compaction. ``max_timestamp`` is None if the batch has no records."""

    data: bytes
    base_offset: int
    max_timestamp: int | None
    record_count: int

    @classmethod
    def unchanged(cls, batch: StoredBatch) -> CleanedBatch:
        header = batch.header
        max_timestamp = header.max_timestamp if header.record_count else None
        return cls(batch.chunk[batch.start : batch.end], header.base_offset, max_timestamp, header.record_count)


def uncompressed_records(batch: StoredBatch) -> tuple[bytes, int, int]:
    """(bytes, start, end) of the uncompressed records. Nothing is copied if the batch is not compressed."""
    codec = batch.header.compression
    if not codec:
        body, start, end = batch.chunk, batch.start + HEADER_BYTES, batch.end
    else:
        # Imported on first use, because the codec libraries take longer to load than everything else.
        from storage.batch.compression import decompress

        body = decompress(
            codec, memoryview(batch.chunk)[batch.start + HEADER_BYTES : batch.end], DECOMPRESSED_BYTES_MAX
        )
        start, end = 0, len(body)
    check_count(batch.header, end - start)
    return body, start, end


def clean_data(
    batch: StoredBatch, offsets: KeyMap, now_ms: int, delete_retention_ms: int
) -> tuple[CleanedBatch | None, int]:
    """Compact a data batch. Returns (the cleaned batch, number of removed records without a key).

    The cleaned batch is None if no record is kept.
    """
    header = batch.header
    body, start, end = uncompressed_records(batch)
    has_horizon = header.attributes & DELETE_HORIZON_BIT != 0
    keeps_tombstones = not has_horizon or now_ms < header.base_timestamp
    kept = select_records(body, start, end, header, offsets, keeps_tombstones=keeps_tombstones)
    if not kept.kept_count:
        return None, kept.keyless_count
    horizon_ms = _horizon(now_ms, delete_retention_ms) if kept.has_tombstone and not has_horizon else None
    if kept.kept_count == header.record_count and horizon_ms is None:
        return CleanedBatch.unchanged(batch), 0
    return _rebuild(header, body, kept, horizon_ms), kept.keyless_count


def clean_control(
    batch: StoredBatch, marker: int | None, has_no_data: bool, now_ms: int, delete_retention_ms: int
) -> CleanedBatch | None:
    """Compact a control batch. Returns None if the batch may be removed.

    ``has_no_data``: no data batch of the marker's transaction is left.
    """
    header = batch.header
    if not header.record_count:
        return None
    if not has_no_data or marker not in (ABORT, COMMIT):
        return CleanedBatch.unchanged(batch)
    if header.attributes & DELETE_HORIZON_BIT:
        return CleanedBatch.unchanged(batch) if now_ms < header.base_timestamp else None
    body, start, end = uncompressed_records(batch)
    kept = KeptRecords([(start, end)], header.record_count, 0, False)
    return _rebuild(header, body, kept, _horizon(now_ms, delete_retention_ms))


def empty_batch(batch: StoredBatch) -> CleanedBatch:
    """The batch without records. It keeps its max timestamp, from which the age of its producer is computed."""
    header = batch.header
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    data = _encode_batch(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)
    return CleanedBatch(data, header.base_offset, None, 0)


def _horizon(now_ms: int, delete_retention_ms: int) -> int:
    return min(now_ms + delete_retention_ms, _HORIZON_MS_MAX)


def _rebuild(header: BatchHeader, body: bytes, kept: KeptRecords, horizon_ms: int | None) -> CleanedBatch:
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = base_timestamp + largest_delta(body, kept.runs, max_timestamp - base_timestamp)
    if horizon_ms is None:
        records = b"".join([body[start:end] for start, end in kept.runs])
    else:
        # The base timestamp becomes the delete horizon. The timestamp deltas are relative to the base timestamp, so
        # they are rewritten.
        records = shift_timestamps(body, kept.runs, base_timestamp - horizon_ms)
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_BIT
    if header.compression:
        from storage.batch.compression import compress

        records = compress(header.compression, records)
    data = _encode_batch(header, records, attributes, base_timestamp, max_timestamp, kept.kept_count)
    return CleanedBatch(data, header.base_offset, max_timestamp, kept.kept_count)


def _encode_batch(
    header: BatchHeader, records: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(records)
    fields = (attributes, header.last_offset_delta, base_timestamp, max_timestamp)
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    place = (header.base_offset, length, header.partition_leader_epoch, header.magic)
    checked = HEADER.pack(*place, 0, *fields, *producer, count)[CRC_START:] + records
    return HEADER.pack(*place, crc32c(checked), *fields, *producer, count) + records
