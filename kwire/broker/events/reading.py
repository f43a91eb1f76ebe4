"""Reading a partition as events: a cursor that takes portions, and what is built on it.

A portion is bounded in events and bytes, also inside one large batch, so no read holds the loop for long. What would
wait for the disk, or would take long to unfold, is handed back as `NeedsDisk`: a thread runs it, then the same read is
made again. A large compressed batch, or one of very many records, is read through a window that a thread cuts
(`windows`).

Events are committed data: nothing at or above the last stable offset is ever read, and what a transaction left that was
aborted is passed over like its marker. Both have offsets, but there are no events at them, and no gap is told.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kwire.broker.cold_reads import ColdReads
from kwire.broker.damage_report import report_unreadable
from kwire.broker.events.aborted import AbortedBatches
from kwire.broker.events.decoding import BatchCursor
from kwire.broker.events.event import Event
from kwire.broker.events.windows import Window, window_at
from kwire.broker.partition import Partition, code_of
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from storage.batch import BatchHeader, is_intact, parse_header
from storage.errors import BudgetExceeded, CorruptBatch, LogClosed, QuarantinedRange, StorageError
from storage.format import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_BIT,
)
from storage.reads import LogRead
from storage.transactions import AbortedTransaction

PORTION_EVENTS = 500
PORTION_BYTES = 1024 * 1024
# Looked at in one read, or one batch if that is larger.
VIEW_BYTES = 256 * 1024
# What one call of `read_events` holds at most.
READ_BYTES_MAX = 16 * 1024 * 1024

# Batches that are passed over (markers, what was aborted, what compaction emptied) in one read, and views of the log
# without a single event; then others get their turn.
BATCHES_PER_READ = 2000
VIEWS_PER_READ = 16
# Under memory pressure pages may be gone again before they are read; after some tries the loop waits for them itself.
WARM_UPS_MAX = 3
# A compressed batch is unfolded on the loop if it is small, before and after; else by a thread.
UNFOLDED_HERE_BYTES = 256 * 1024
FOLDED_HERE_BYTES = 64 * 1024
# A batch of more records is read through a window even if it is not compressed: to walk to a record takes long.
RECORDS_HERE_MAX = 50_000
# What a batch may unfold to for anybody to see it as events.
UNFOLDED_BYTES_MAX = 64 * 1024 * 1024
# A reader that is put down holds no more than this.
UNFOLDED_KEPT_BYTES = 256 * 1024

# Base offset and CRC of a batch.
_Place = tuple[int, int]
_NOWHERE: _Place = (-1, -1)


class NeedsDisk(NamedTuple):
    """Nothing can be said before this has run, in a thread: read again then, and not before."""

    warm_up: Callable[[], None]


class Unreadable(KafkaError):
    """The records from `from_offset` up to and without `to_offset` are damaged; a reader can go on behind them."""

    def __init__(self, from_offset: int, to_offset: int, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"offsets {from_offset}..{to_offset - 1} cannot be read: {reason}")
        self.from_offset = from_offset
        self.to_offset = to_offset


def oldest_offset(partition: Partition) -> int:
    """The first offset that can be read; that of the next event if there is none."""
    _open(partition)
    return partition.log_start_offset


def newest_offset(partition: Partition) -> int:
    """The last offset that can be read; one below the oldest if there is none.

    Like every offset it may have no event, or none any more: a transaction ends with a marker.
    """
    _open(partition)
    return partition.last_stable_offset - 1


class EventReader:
    """A cursor. `next_offset` is the event that comes next, or the first one behind it where some are gone."""

    __slots__ = ("_cursor", "_partition", "_place", "_unfolded", "_warm_ups", "_window", "next_offset")

    def __init__(self, partition: Partition, offset: int) -> None:
        self.next_offset = offset
        self._partition = partition
        # Where it stands inside a batch, and in which: compaction may put another one in its place.
        self._cursor = BatchCursor()
        self._place = _NOWHERE
        # The records of a compressed batch, or why there are none; and which of its records they are, if it is large.
        self._unfolded: tuple[_Place, bytes | StorageError] | None = None
        self._window: tuple[_Place, Window] | None = None
        self._warm_ups = 0

    def read(self, count_max: int = PORTION_EVENTS, bytes_max: int = PORTION_BYTES) -> list[Event] | NeedsDisk:
        """The next events, at least one if there is one; none means that this is the head.

        Raises OffsetOutOfRange when the log begins behind `next_offset`, Unreadable for damage (set `next_offset` to
        its `to_offset` to go on), and KafkaError when the topic is deleted or the disk fails.
        """
        # Whoever reads a room uses it, as Kafka's consumers do: it is not cleaned up.
        self._partition.is_fetched = True
        try:
            events: list[Event] = []
            batches = iter(range(BATCHES_PER_READ))
            for _ in range(VIEWS_PER_READ):
                found = self._find(min(bytes_max, VIEW_BYTES))
                if isinstance(found, NeedsDisk):
                    return found
                if found is None:
                    return events
                needed = self._walk(*found, batches, events, count_max, bytes_max)
                if needed is not None:
                    return events or needed
                if events:
                    return events
            return NeedsDisk(_nothing)
        except QuarantinedRange as error:
            raise Unreadable(self.next_offset, error.end_offset, "the bytes on disk are damaged") from None
        except StorageError as error:
            raise KafkaError(code_of(error), str(error)) from error

    def put_down(self) -> None:
        """Nobody reads for a while: what was unfolded is let go of if it is large, and unfolded anew later."""
        body = None if self._unfolded is None else self._unfolded[1]
        if isinstance(body, bytes) and len(body) > UNFOLDED_KEPT_BYTES:
            # They are unfolded anew from the next offset on.
            self._leave()

    def _find(self, max_bytes: int) -> tuple[LogRead, list[AbortedTransaction]] | NeedsDisk | None:
        """Batches from `next_offset` on that can be looked at without waiting; None at the head."""
        partition = self._partition
        if partition.is_closed:
            raise LogClosed("the topic is deleted")
        offset = self.next_offset
        if offset < partition.log_start_offset:
            raise OffsetOutOfRange(offset, partition.log_start_offset, partition.last_stable_offset - 1)
        if offset >= partition.last_stable_offset:
            return None
        warm_up = partition.cold_start(offset) or partition.cold_aborted(offset)
        if warm_up is None or self._warm_ups >= WARM_UPS_MAX:
            read, aborted = partition.read_committed(offset, max_bytes)
            if not read.view:
                self._pass_gap()
                return None
            warm_up = None if read.is_warm() else read.warm_up
            if warm_up is None or self._warm_ups >= WARM_UPS_MAX:
                self._warm_ups = 0
                return read, aborted
        self._warm_ups += 1
        return NeedsDisk(warm_up)

    def _pass_gap(self) -> None:
        """It is not at the head, but no batch lies before that: a gap that compaction left, and then damage, or what
        may not be read yet."""
        head = self._partition.last_stable_offset
        for one in self._partition.quarantined:
            if self.next_offset < one.end_offset and one.start_offset < head:
                raise Unreadable(self.next_offset, one.end_offset, "the bytes on disk are damaged")
        if head < self._partition.log_end_offset:
            self.next_offset = head

    def _walk(
        self,
        read: LogRead,
        aborted: list[AbortedTransaction],
        batches: Iterator[int],
        events: list[Event],
        count_max: int,
        bytes_max: int,
    ) -> NeedsDisk | None:
        """Take events out of these batches; what a thread has to do if the next one cannot be opened here.

        `batches` are as many as may be looked at.
        """
        view, position = read.view, 0
        size = len(view)
        left_out = AbortedBatches(aborted) if aborted else None
        taken_bytes = 0
        for _ in batches:
            next_offset = read.next_offset
            try:
                header = parse_header(view, position)
                base_offset, length, last_delta = header.base_offset, header.batch_length, header.last_offset_delta
                attributes = header.attributes
                behind = position + length + LENGTH_OVERHEAD
                if length < MIN_BATCH_LENGTH or behind > size or last_delta < 0:
                    raise CorruptBatch("no batch begins here")
                next_offset = base_offset + last_delta + 1
                if next_offset > self.next_offset:
                    batch = view[position:behind]
                    place = base_offset, header.crc
                    if place != self._place and not is_intact(batch):
                        raise CorruptBatch("the CRC does not fit the bytes")
                    is_left_out = attributes & CONTROL_BIT or (
                        left_out is not None
                        and attributes & TRANSACTIONAL_BIT
                        and left_out.has(header.producer_id, base_offset)
                    )
                    if header.record_count and not is_left_out:
                        codec = attributes & COMPRESSION_MASK
                        if codec or header.record_count > RECORDS_HERE_MAX:
                            body = self._unfolded_body(place, codec, batch)
                        else:
                            body = bytes(batch[HEADER_BYTES:])
                        if body is None:
                            return NeedsDisk(partial(self._unfold, place, header, bytes(batch[HEADER_BYTES:])))
                        cursor = self._cursor
                        if place != self._place:
                            window = self._window_of(place)
                            cursor.enter(header, len(body), None if window is None else window.record_count)
                            self._place = place
                        taken_bytes += cursor.take(
                            body, self.next_offset, events, count_max - len(events), bytes_max - taken_bytes
                        )
                        if cursor.left or self._is_more_after_window(place):
                            self._stop_inside(events)
                            return None if events else NeedsDisk(_nothing)
                        self._leave()
            except (CorruptBatch, BudgetExceeded) as error:
                self._leave()
                if events:  # they are good, and the next read comes here again
                    self.next_offset = max(self.next_offset, events[-1].offset + 1)
                    return None
                to_offset = max(self.next_offset + 1, min(next_offset, read.next_offset))
                partition = self._partition
                report_unreadable(partition.topic_name, partition.index, self.next_offset, str(error))
                raise Unreadable(self.next_offset, to_offset, str(error)) from error
            position = behind
            if position >= size:
                next_offset = max(next_offset, read.next_offset)
            if next_offset > self.next_offset:
                self.next_offset = next_offset
            if position >= size or len(events) >= count_max or taken_bytes >= bytes_max:
                return None
        return NeedsDisk(_nothing)

    def _window_of(self, place: _Place) -> Window | None:
        return self._window[1] if self._window is not None and self._window[0] == place else None

    def _is_more_after_window(self, place: _Place) -> bool:
        window = self._window_of(place)
        return window is not None and window.end.left > 0

    def _stop_inside(self, events: list[Event]) -> None:
        if events:
            self.next_offset = events[-1].offset + 1
        if not self._cursor.left:
            # The window was read to its end: the next one begins there.
            self._unfolded, self._place = None, _NOWHERE

    def _unfolded_body(self, place: _Place, codec: int, batch: memoryview) -> bytes | None:
        """The records of a compressed batch, or some of a large one; None if a thread has to unfold them."""
        if self._unfolded is not None and self._unfolded[0] == place:
            body = self._unfolded[1]
            if isinstance(body, StorageError):
                self._unfolded = None
                raise body
            return body
        if codec and len(batch) <= FOLDED_HERE_BYTES:
            with suppress(BudgetExceeded):
                body = _decompress(codec, batch[HEADER_BYTES:], UNFOLDED_HERE_BYTES)
                self._unfolded = place, body
                return body
        return None

    def _unfold(self, place: _Place, header: BatchHeader, payload: bytes) -> None:
        """Called from a thread, while nobody reads."""
        try:
            codec = header.compression
            body = _decompress(codec, payload, UNFOLDED_BYTES_MAX) if codec else payload
            batch = self._partition.topic_name, self._partition.index, place, header.batch_length
            before = self._window_of(place)
            window = window_at(body, header, batch, self.next_offset, None if before is None else before.end)
            self._window = place, window
            self._unfolded = place, window.body
        except StorageError as error:
            self._window = None
            self._unfolded = place, error

    def _leave(self) -> None:
        self._place, self._unfolded, self._window = _NOWHERE, None, None


async def read_events(
    partition: Partition,
    offset: int,
    count_max: int,
    cold_reads: ColdReads,
    *,
    to_offset: int | None = None,
    bytes_max: int = READ_BYTES_MAX,
) -> list[Event]:
    """Up to `count_max` events from `offset` on, none behind `to_offset`; others get their turn meanwhile.

    Raises as `EventReader.read`, but damage only if nothing lies in front of it.
    """
    reader = EventReader(partition, offset)
    events: list[Event] = []
    bytes_left = bytes_max
    while len(events) < count_max and bytes_left > 0 and (to_offset is None or reader.next_offset <= to_offset):
        try:
            portion = reader.read(min(PORTION_EVENTS, count_max - len(events)), min(PORTION_BYTES, bytes_left))
        except (KafkaError, OffsetOutOfRange):
            if events:
                break
            raise
        if isinstance(portion, NeedsDisk):
            await _warmed(cold_reads, portion)
            continue
        if not portion:
            break
        events += portion
        bytes_left -= sum(event.size_bytes for event in portion)
        if len(events) < count_max:
            await asyncio.sleep(0)
    if to_offset is not None:
        while events and events[-1].offset > to_offset:
            events.pop()
    return events


async def _warmed(cold_reads: ColdReads, needed: NeedsDisk) -> None:
    try:
        await cold_reads.do([needed.warm_up])
    except StorageError as error:
        raise KafkaError(code_of(error), str(error)) from error


def _open(partition: Partition) -> None:
    try:
        partition.open()
    except StorageError as error:
        raise KafkaError(code_of(error), str(error)) from error


def _nothing() -> None:
    """Enough was looked at for one turn."""


def _decompress(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
    # The codecs' libraries take long to load, and most rooms never need them.
    from storage.compression import decompress

    return decompress(codec, payload, budget_bytes)
