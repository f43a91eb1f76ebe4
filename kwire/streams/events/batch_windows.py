"""Windows of large batches: parts with a bounded number of bytes, from a given offset on.

A batch of one megabyte can decompress to three million records. A reader that needs the last record has to skip all
others. A reader that needs all records reads a few hundred at a time. Therefore a thread decompresses the batch,
searches for the requested record and keeps a window that begins with it. A reader never keeps more than one window in
memory. The search caches some record positions, so that the next search does not start at the beginning of the batch.
"""

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import NamedTuple

from storage.batch.format import MIN_RECORD_BYTES
from storage.batch.record_batch import BatchHeader
from storage.batch.records import read_number, record_heads
from storage.errors import CorruptBatch

# The maximum size of a window. A window with a single record may be larger.
WINDOW_BYTES = 384 * 1024
# The maximum number of batches with cached positions, and the number of records between two cached positions. A cached
# position takes an offset and two numbers.
CACHED_BATCHES_MAX = 64
RECORDS_PER_POSITION = 20_000
# Records that a thread skips before it releases the interpreter lock for the event loop.
RECORDS_PER_YIELD = 2000

_ANY_DELTA = 2**63


class RecordPosition(NamedTuple):
    """The position of a record in a decompressed batch, and the number of records from this one on (`left`)."""

    position: int
    left: int


class Window(NamedTuple):
    """`record_count` whole records from `start` on. `end` is the position at which the next window begins."""

    body: bytes
    record_count: int
    start: RecordPosition
    end: RecordPosition


class PositionCache:
    """A cache of record positions by batch and offset. It may be used in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: OrderedDict[Hashable, list[tuple[int, RecordPosition]]] = OrderedDict()

    def before(self, batch: Hashable, offset: int) -> RecordPosition | None:
        """Return the last cached position that is not after the record at `offset`; None if there is none."""
        with self._lock:
            known = self._batches.get(batch)
            if known is None:
                return None
            self._batches.move_to_end(batch)
            index = bisect_right(known, offset, key=lambda one: one[0])
            return known[index - 1][1] if index else None

    def remember(self, batch: Hashable, offset: int, record: RecordPosition) -> None:
        """Cache the position of the first record at or after `offset`."""
        with self._lock:
            known = self._batches.setdefault(batch, [])
            if not known or known[-1][0] < offset:
                known.append((offset, record))
            while len(self._batches) > CACHED_BATCHES_MAX:
                self._batches.popitem(last=False)


POSITIONS = PositionCache()


def window_at(body: bytes, header: BatchHeader, batch: Hashable, offset: int, start: RecordPosition | None) -> Window:
    """Return the window that begins with the first record at or after `offset`. Raises CorruptBatch.

    `start` is a position at or before that record, or None. A window has at least one record, if there is one.
    """
    if header.record_count < 0 or header.record_count * MIN_RECORD_BYTES > len(body):
        raise CorruptBatch(f"{header.record_count} records cannot fit in {len(body)} bytes")
    known = start or POSITIONS.before(batch, offset) or RecordPosition(0, header.record_count)
    first = _seek(body, header, batch, offset, known)
    window = Window(b"", 0, first, first)
    position_max = max(first.position + WINDOW_BYTES, _end_of_record(body, first))
    is_more = first.left > 0
    while is_more:
        skipped = _skip(body, window.end, _ANY_DELTA, position_max)
        record_count = window.record_count + window.end.left - skipped.next.left
        window = window._replace(record_count=record_count, end=skipped.next)
        if skipped.is_broken and not record_count:
            raise CorruptBatch("a record is longer than its batch")
        is_more = skipped.is_more and skipped.next.left > 0
        time.sleep(0)
    # The last window includes all remaining bytes. If there are bytes after the last record, the code that parses the
    # window reports the batch as corrupt.
    return window._replace(body=body[first.position : window.end.position if window.end.left else len(body)])


def _seek(body: bytes, header: BatchHeader, batch: Hashable, offset: int, start: RecordPosition) -> RecordPosition:
    """Return the position of the first record at or after `offset`."""
    record, cached = start, start
    while record.left:
        skipped = _skip(body, record, offset - header.base_offset, len(body))
        record = skipped.next
        if skipped.is_broken:
            raise CorruptBatch("a record is longer than its batch")
        if not skipped.is_more:
            break
        if cached.left - record.left >= RECORDS_PER_POSITION:
            cached = record
            POSITIONS.remember(batch, header.base_offset + skipped.last_delta + 1, record)
        # Releases the interpreter lock, so that the event loop can run.
        time.sleep(0)
    return record


class _Skipped(NamedTuple):
    """The result of `_skip`.

    `is_more` is True if `_skip` stopped after RECORDS_PER_YIELD records, and further records may have to be skipped.
    `is_broken` is True if the next record is corrupt or missing.
    """

    next: RecordPosition
    last_delta: int
    is_more: bool = False
    is_broken: bool = False


def _skip(body: bytes, record: RecordPosition, delta_wanted: int, position_max: int) -> _Skipped:
    """Skip at most RECORDS_PER_YIELD records whose offset deltas are below `delta_wanted`, up to `position_max`."""
    if record.left >= RECORDS_PER_YIELD:
        skipped = _skip_equal_sized(body, record, delta_wanted, position_max)
        if skipped is not None:
            return skipped
    position, left = record
    last_delta = -1
    stop_at = max(0, left - RECORDS_PER_YIELD)
    try:
        for start, end, _, delta, _ in islice(record_heads(body, position, len(body)), left - stop_at):
            delta = (delta >> 1) ^ -(delta & 1)
            if delta >= delta_wanted or end > position_max:
                return _Skipped(RecordPosition(start, left), last_delta)
            last_delta = delta
            position = end
            left -= 1
    except CorruptBatch:
        return _Skipped(RecordPosition(position, left), last_delta, is_broken=True)
    # The body may hold fewer records than the header says.
    is_broken = left > stop_at
    return _Skipped(RecordPosition(position, left), last_delta, is_more=not is_broken, is_broken=is_broken)


def _skip_equal_sized(body: bytes, record: RecordPosition, delta_wanted: int, position_max: int) -> _Skipped | None:
    """A variant of `_skip` for records of equal length, in a hundredth of the time. Returns None if the lengths differ.

    Most large batches have records of equal length. If the length field at each multiple of the first record's size has
    the same value, all records have that size, because each record begins where the one before it ends.
    """
    position = record.position
    stride = _end_of_record(body, record) - position
    end = position + RECORDS_PER_YIELD * stride
    if stride <= 0 or end > min(position_max, len(body)):
        return None
    length_bytes = 1 if body[position] < 0x80 else 2
    for at in range(position, position + length_bytes):
        if body[at:end:stride].count(body[at]) != RECORDS_PER_YIELD:
            return None
    if length_bytes == 2 and body[position + 1] >= 0x80:
        return None
    last = _skip(body, RecordPosition(end - stride, 1), delta_wanted, end)
    if not last.is_more:
        return None
    return _Skipped(RecordPosition(end, record.left - RECORDS_PER_YIELD), last.last_delta, is_more=True)


def _end_of_record(body: bytes, record: RecordPosition) -> int:
    """Return the end of a record according to its length field, or its start if the field cannot be read."""
    try:
        length, inside = read_number(body, record.position)
    except (IndexError, CorruptBatch):
        return record.position
    return record.position if length & 1 else inside + (length >> 1)
