"""Windows into large batches: the records from a wanted one on, a bounded number of bytes of them.

A batch of a megabyte can unfold to three million records. A reader that wants the last one has to get past all the
others, and one that reads them all takes some hundred at a time. So a thread unfolds the batch, walks to the wanted
record and keeps a window; a reader never holds more. Places that were passed are remembered, so that the next reader
does not walk from the beginning.
"""

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import NamedTuple

from storage.batch import BatchHeader
from storage.errors import CorruptBatch
from storage.format import MIN_RECORD_BYTES
from storage.records import read_number, record_heads

# What a reader of a large batch holds while it reads; a single record may be larger.
WINDOW_BYTES = 384 * 1024
# Batches whose places are remembered, and records between two places: an offset and two numbers each.
BATCHES_REMEMBERED_MAX = 64
RECORDS_PER_PLACE = 20_000
# Records that a thread passes before it lets the event loop run.
RECORDS_PER_BREATH = 2000

_ANY_DELTA = 2**63


class Place(NamedTuple):
    """A record in an unfolded batch: where it begins, and how many records there are from it on."""

    position: int
    left: int


class Window(NamedTuple):
    """`record_count` whole records, which begin at the place `start`; `end` is where the next window begins."""

    body: bytes
    record_count: int
    start: Place
    end: Place


class PlacesInBatches:
    """Places by batch and offset. Called from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: OrderedDict[Hashable, list[tuple[int, Place]]] = OrderedDict()

    def before(self, batch: Hashable, offset: int) -> Place | None:
        """The last known place that is not after the record at `offset`."""
        with self._lock:
            known = self._batches.get(batch)
            if known is None:
                return None
            self._batches.move_to_end(batch)
            index = bisect_right(known, offset, key=lambda one: one[0])
            return known[index - 1][1] if index else None

    def remember(self, batch: Hashable, offset: int, place: Place) -> None:
        """Every record before this place has a lower offset."""
        with self._lock:
            known = self._batches.setdefault(batch, [])
            if not known or known[-1][0] < offset:
                known.append((offset, place))
            while len(self._batches) > BATCHES_REMEMBERED_MAX:
                self._batches.popitem(last=False)


PLACES = PlacesInBatches()


def window_at(body: bytes, header: BatchHeader, batch: Hashable, offset: int, start: Place | None) -> Window:
    """The window that begins with the first record at or after `offset`; raises CorruptBatch.

    `start`: a place that is known not to be after that record. A window has at least one record, if any is left.
    """
    if header.record_count < 0 or header.record_count * MIN_RECORD_BYTES > len(body):
        raise CorruptBatch(f"{header.record_count} records cannot fit in {len(body)} bytes")
    first = _walk(body, header, batch, offset, start or PLACES.before(batch, offset) or Place(0, header.record_count))
    window = Window(b"", 0, first, first)
    position_max = max(first.position + WINDOW_BYTES, _end_of_record(body, first))
    is_more = first.left > 0
    while is_more:
        passed = _pass(body, window.end, _ANY_DELTA, position_max)
        record_count = window.record_count + window.end.left - passed.place.left
        window = window._replace(record_count=record_count, end=passed.place)
        if passed.is_broken and not record_count:
            raise CorruptBatch("a record is longer than its batch")
        is_more = passed.is_more and passed.place.left > 0
        time.sleep(0)
    # What follows the last record of the batch is the cursor's to find.
    return window._replace(body=body[first.position : window.end.position if window.end.left else len(body)])


def _walk(body: bytes, header: BatchHeader, batch: Hashable, offset: int, start: Place) -> Place:
    """The place of the first record at or after `offset`."""
    place, remembered = start, start
    while place.left:
        passed = _pass(body, place, offset - header.base_offset, len(body))
        place = passed.place
        if passed.is_broken:
            raise CorruptBatch("a record is longer than its batch")
        if not passed.is_more:
            break
        if remembered.left - place.left >= RECORDS_PER_PLACE:
            remembered = place
            PLACES.remember(batch, header.base_offset + passed.last_delta + 1, place)
        # The loop may run: this thread holds the interpreter otherwise.
        time.sleep(0)
    return place


class _Passed(NamedTuple):
    """How far some records were passed. `is_more`: it was enough for once, and the next record may be passed too."""

    place: Place
    last_delta: int
    is_more: bool = False
    is_broken: bool = False


def _pass(body: bytes, place: Place, delta_wanted: int, position_max: int) -> _Passed:
    """Pass RECORDS_PER_BREATH records with offsets below `delta_wanted` from the batch's, up to `position_max`."""
    if place.left >= RECORDS_PER_BREATH:
        passed = _pass_equal(body, place, delta_wanted, position_max)
        if passed is not None:
            return passed
    position, left = place
    last_delta = -1
    stop_at = max(0, left - RECORDS_PER_BREATH)
    try:
        for start, end, _, delta, _ in islice(record_heads(body, position, len(body)), left - stop_at):
            delta = (delta >> 1) ^ -(delta & 1)
            if delta >= delta_wanted or end > position_max:
                return _Passed(Place(start, left), last_delta)
            last_delta = delta
            position = end
            left -= 1
    except CorruptBatch:
        return _Passed(Place(position, left), last_delta, is_broken=True)
    # The bytes may hold fewer records than the batch says.
    is_broken = left > stop_at
    return _Passed(Place(position, left), last_delta, is_more=not is_broken, is_broken=is_broken)


def _pass_equal(body: bytes, place: Place, delta_wanted: int, position_max: int) -> _Passed | None:
    """The same, in a hundredth of the time, if all these records are of one length, as in most large batches.

    A record begins where the one before it ends, so if each that would begin there says the same length, it does.
    """
    position = place.position
    stride = _end_of_record(body, place) - position
    end = position + RECORDS_PER_BREATH * stride
    if stride <= 0 or end > min(position_max, len(body)):
        return None
    length_bytes = 1 if body[position] < 0x80 else 2
    for at in range(position, position + length_bytes):
        if body[at:end:stride].count(body[at]) != RECORDS_PER_BREATH:
            return None
    if length_bytes == 2 and body[position + 1] >= 0x80:
        return None
    last = _pass(body, Place(end - stride, 1), delta_wanted, end)
    if not last.is_more:
        return None
    return _Passed(Place(end, place.left - RECORDS_PER_BREATH), last.last_delta, is_more=True)


def _end_of_record(body: bytes, place: Place) -> int:
    """Where the record ends that begins here, as far as it says so; here if that cannot be read."""
    try:
        length, inside = read_number(body, place.position)
    except (IndexError, CorruptBatch):
        return place.position
    return place.position if length & 1 else inside + (length >> 1)
