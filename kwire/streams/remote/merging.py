"""Merges small record batches of one partition into one, because a Produce request has one batch of each partition.

Only the first bytes of each record change: its timestamp delta and its offset delta.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from crc32c import crc32c

from storage.batch.format import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from storage.batch.record_batch import BatchHeader
from storage.batch.records import record_heads, varint

# Bounds of one merged batch. Merging a record takes about a microsecond, on the event loop.
RECORDS_MAX: Final = 500
BYTES_MAX: Final = 256 * 1024
# The deltas of a record may become longer by this number of bytes.
_GROWTH_BYTES_MAX: Final = 12


class GivenBatch(NamedTuple):
    batch: memoryview
    header: BatchHeader


def can_merge(header: BatchHeader) -> bool:
    """Whether the records of a batch can become part of another one: it is not compressed and has no attributes."""
    return header.attributes == 0 and header.producer_id == NO_PRODUCER_ID


def mergeable_count(headers: Iterable[BatchHeader], bytes_max: int) -> int:
    """Return how many of these batches, from the first on, fit into one. At least 1."""
    count = records = size = 0
    for header in headers:
        records += header.record_count
        size += header.size_bytes + header.record_count * _GROWTH_BYTES_MAX
        if count and (not can_merge(header) or records > RECORDS_MAX or size > min(bytes_max, BYTES_MAX)):
            break
        count += 1
        if not can_merge(header):
            break
    return count


def first_deltas(headers: Sequence[BatchHeader]) -> list[int]:
    """Return the offset of the first record of each batch in the merged batch."""
    return list(accumulate((header.record_count for header in headers), initial=0))[:-1]


def merge(given: Sequence[GivenBatch]) -> memoryview:
    """Return one batch with the records of all, in writable memory."""
    first = given[0].header
    base_ms, max_ms = first.base_timestamp, max(one.header.max_timestamp for one in given)
    parts: list[bytes] = [bytes(given[0].batch[HEADER_BYTES:])]
    count = first.record_count
    for batch, header in given[1:]:
        body = bytes(batch[HEADER_BYTES:])
        shift_ms = header.base_timestamp - base_ms
        for _, end, timestamp, _, position in record_heads(body, 0, len(body)):
            delta_ms = shift_ms + ((timestamp >> 1) ^ -(timestamp & 1))
            start = b"\x00" + varint(delta_ms) + varint(count)
            parts.append(varint(len(start) + end - position) + start)
            parts.append(body[position:end])
            count += 1
    records = b"".join(parts)
    merged = bytearray(HEADER_BYTES + len(records))
    HEADER.pack_into(
        merged,
        0,
        0,
        len(merged) - LENGTH_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        0,
        count - 1,
        base_ms,
        max_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    merged[HEADER_BYTES:] = records
    return memoryview(merged)


_PRODUCER = HEADER_BYTES - 18  # producer_id q, producer_epoch h, base_sequence i, record_count i


def stamp_producer(batch: memoryview, producer_id: int, epoch: int, sequence: int) -> None:
    """Write the producer, the sequence number of the first record and the new checksum into a batch."""
    batch[_PRODUCER : _PRODUCER + 8] = producer_id.to_bytes(8, signed=True)
    batch[_PRODUCER + 8 : _PRODUCER + 10] = epoch.to_bytes(2, signed=True)
    batch[_PRODUCER + 10 : _PRODUCER + 14] = sequence.to_bytes(4, signed=True)
    batch[CRC_START - 4 : CRC_START] = crc32c(batch[CRC_START:]).to_bytes(4)
