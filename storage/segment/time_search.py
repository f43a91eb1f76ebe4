"""Searches by timestamp in the segments of a log: the first record at or after a time, and the largest timestamp.

A search includes only offsets from ``start`` up to, but not including, ``upto``: records below the log start offset are
gone, and those from the high watermark on are not visible yet. The max timestamp of a segment or a batch is only an
upper bound: compaction may have removed the record that had it, or that record may be outside the range. So the records
are read, and the result is always a record that exists, unless its batch cannot be decompressed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from storage.batch.record_batch import BatchHeader, parse_header, read_records
from storage.errors import BudgetExceeded, CorruptBatch
from storage.segment.index import NO_MAX_TIMESTAMP
from storage.segment.segment import LogSegment

# Bound of the decompressed size of one batch during a search.
TIMESTAMP_BUDGET_BYTES: Final = 64 * 1024 * 1024
_ALL_BYTES: Final = 2**63


class TimestampAndOffset(NamedTuple):
    timestamp_ms: int
    offset: int


def first_at_or_after(
    segments: Iterable[LogSegment], timestamp_ms: int, start: int, upto: int
) -> TimestampAndOffset | None:
    """The first record with ``timestamp_ms`` or later."""
    for segment in _within(segments, start, upto):
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in(segment, timestamp_ms, start, upto)
            if found is not None:
                return found
    return None


def find_largest(segments: Iterable[LogSegment], start: int, upto: int) -> TimestampAndOffset | None:
    """The first record with the largest timestamp; None if no record has a timestamp."""
    bounded = [(_bound(segment, upto), segment) for segment in _within(segments, start, upto)]
    # Sort by timestamp, largest first. The sort is stable, so equal timestamps stay in offset order.
    bounded.sort(key=lambda pair: -pair[0])
    best: TimestampAndOffset | None = None
    for bound, segment in bounded:
        if bound < 0 or (best is not None and bound <= best.timestamp_ms):
            break
        found = _first_in(segment, bound, start, upto) or _largest_in(segment, start, upto)
        if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
            best = found
    return best


def _within(segments: Iterable[LogSegment], start: int, upto: int) -> Iterator[LogSegment]:
    return (one for one in segments if one.next_offset > start and one.base_offset < upto)


def _first_in(segment: LogSegment, timestamp_ms: int, start: int, upto: int) -> TimestampAndOffset | None:
    for batch, header in _batches(segment, timestamp_ms, start, upto):
        if header.max_timestamp < timestamp_ms:
            continue
        for found in _times(batch, header, start, upto):
            if found.timestamp_ms >= timestamp_ms:
                return found
    return None


def _largest_in(segment: LogSegment, start: int, upto: int) -> TimestampAndOffset | None:
    """Read all batches, for a segment in which no record has the segment's max timestamp."""
    best: TimestampAndOffset | None = None
    for batch, header in _batches(segment, NO_MAX_TIMESTAMP, start, upto):
        known = -1 if best is None else best.timestamp_ms
        if header.max_timestamp <= known:
            continue
        for found in _times(batch, header, start, upto):
            if found.timestamp_ms > known:
                best, known = found, found.timestamp_ms
    return best


def _batches(segment: LogSegment, timestamp_ms: int, start: int, upto: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches that may have a record of this time or later in the offset range."""
    for batch in segment.batches_for_timestamp(timestamp_ms):
        header = parse_header(batch)
        if header.base_offset >= upto:
            return
        if header.last_offset >= start and header.record_count > 0:
            yield batch, header


def _times(batch: memoryview, header: BatchHeader, start: int, upto: int) -> Iterator[TimestampAndOffset]:
    try:
        for record in read_records(batch, TIMESTAMP_BUDGET_BYTES):
            if start <= record.offset < upto:
                yield TimestampAndOffset(record.timestamp_ms, record.offset)
    except (BudgetExceeded, CorruptBatch):
        # The records cannot be read, so the max timestamp of the batch is returned as an approximation.
        yield TimestampAndOffset(header.max_timestamp, max(header.base_offset, start))


def _bound(segment: LogSegment, upto: int) -> int:
    """Upper bound of the timestamps of records below ``upto``. A bound that is too large only slows the search."""
    if segment.next_offset <= upto or segment.holes:
        return segment.max_timestamp
    # The last batches are not visible yet. The nearest index entry has the largest timestamp before it, and only the
    # few batches after that entry are read.
    index = segment.index
    at = bisect_right(index.offsets, upto - index.base_offset) - 1
    before = index.timestamps[at] if at >= 0 else NO_MAX_TIMESTAMP
    near = index.base_offset + (index.offsets[at] if at >= 0 else 0)
    if near >= upto:
        return before
    return max([before, *_max_timestamps(segment.read(near, _ALL_BYTES, upto, True).view)])


def _max_timestamps(view: memoryview) -> Sequence[int]:
    found = []
    while view:
        header = parse_header(view)
        found.append(header.max_timestamp)
        view = view[header.size_bytes :]
    return found
