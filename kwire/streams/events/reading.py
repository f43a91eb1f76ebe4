"""Reading a log as events: a cursor that takes portions, and what is built on it.

A portion is bounded in events and bytes, also inside one large batch, so no read holds the loop for long. A read that
has to wait for the log, or for a batch that takes long to decompress, returns `NotReady`. A large compressed batch, or
one of very many records, is read through a window that a thread cuts (`windows`).

Events are committed data: the records of aborted transactions are passed over like the markers. Both have offsets, but
there are no events at them, and no gap is reported.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from kwire.broker.damage_report import report_unreadable
from kwire.broker.events.aborted import AbortedBatches
from kwire.broker.events.decoding import BatchCursor
from kwire.broker.events.event import Event
from kwire.broker.events.windows import Window, window_at
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.log import NEXT_TURN, NotReady, StreamLog, StreamRead, Unreadable
from storage.batch import BatchHeader, is_intact, parse_header
from storage.errors import BudgetExceeded, CorruptBatch, StorageError, UnsupportedCompression
from storage.format import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_BIT,
)

PORTION_EVENTS = 500
PORTION_BYTES = 256 * 1024
# Looked at in one read, or one batch if that is larger.
VIEW_BYTES = 256 * 1024
# What one call of `read_events` holds at most.
READ_BYTES_MAX = 16 * 1024 * 1024

# Batches that are passed over (markers, what was aborted, what compaction emptied) in one read, and views of the log
# without a single event; then others get their turn.
BATCHES_PER_READ = 2000
VIEWS_PER_READ = 16
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


class EventReader:
    """A cursor. `next_offset` is the event that comes next, or the first one after it where some are gone."""

    __slots__ = ("_cursor", "_log", "_place", "_unfolded", "_waits", "_window", "next_offset")

    def __init__(self, log: StreamLog, offset: int) -> None:
        self.next_offset = offset
        self._log = log
        # Where it stands inside a batch, and in which: compaction may put another one in its place.
        self._cursor = BatchCursor()
        self._place = _NOWHERE
        # The records of a compressed batch, or why there are none; and which of its records they are, if it is large.
        self._unfolded: tuple[_Place, bytes | StorageError] | None = None
        self._window: tuple[_Place, Window] | None = None
        # How often the log has answered the read that is being made with NotReady.
        self._waits = 0

    def read(self, count_max: int = PORTION_EVENTS, bytes_max: int = PORTION_BYTES) -> list[Event] | NotReady:
        """The next events, at least one if there is one; none means that this is the head.

        Raises OffsetOutOfRange when the log begins after `next_offset`, Unreadable for damage (set `next_offset` to its
        `to_offset` to continue), and KafkaError when the log is gone or fails.
        """
        events: list[Event] = []
        batches = iter(range(BATCHES_PER_READ))
        for _ in range(VIEWS_PER_READ):
            found = self._log.read(self.next_offset, min(bytes_max, VIEW_BYTES), self._waits)
            if isinstance(found, NotReady):
                self._waits += 1
                return found
            self._waits = 0
            if not found.records:
                # The committed end, or a gap before it.
                self.next_offset = max(self.next_offset, found.next_offset)
                return events
            needed = self._walk(found, batches, events, count_max, bytes_max)
            if needed is not None:
                return events or needed
            if events:
                return events
        return NEXT_TURN

    def put_down(self) -> None:
        """Nobody reads for a while: what was unfolded is let go of if it is large, and unfolded anew later."""
        body = None if self._unfolded is None else self._unfolded[1]
        if isinstance(body, bytes) and len(body) > UNFOLDED_KEPT_BYTES:
            # They are unfolded anew from the next offset on.
            self._leave()

    def _walk(
        self,
        read: StreamRead,
        batches: Iterator[int],
        events: list[Event],
        count_max: int,
        bytes_max: int,
    ) -> NotReady | None:
        """Take events out of these batches, at most as many as `batches` has; NotReady if a thread has to decompress
        the next one first."""
        view, position = read.records, 0
        size = len(view)
        left_out = AbortedBatches(read.aborted) if read.aborted else None
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
                            work = partial(self._unfold, place, header, bytes(batch[HEADER_BYTES:]))
                            return self._log.in_thread(work)
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
                            return None if events else NEXT_TURN
                        self._leave()
            except UnsupportedCompression as error:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error
            except (CorruptBatch, BudgetExceeded) as error:
                self._leave()
                if events:  # they are good, and the next read comes here again
                    self.next_offset = max(self.next_offset, events[-1].offset + 1)
                    return None
                to_offset = max(self.next_offset + 1, min(next_offset, read.next_offset))
                report_unreadable(self._log.topic, self._log.partition, self.next_offset, str(error))
                raise Unreadable(self.next_offset, to_offset, str(error)) from error
            position = behind
            if position >= size:
                next_offset = max(next_offset, read.next_offset)
            if next_offset > self.next_offset:
                self.next_offset = next_offset
            if position >= size or len(events) >= count_max or taken_bytes >= bytes_max:
                return None
        return NEXT_TURN

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
        """Called from a thread, while the reader waits."""
        try:
            codec = header.compression
            body = _decompress(codec, payload, UNFOLDED_BYTES_MAX) if codec else payload
            batch = self._log.topic, self._log.partition, place, header.batch_length
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
    log: StreamLog, offset: int, count_max: int, *, to_offset: int | None = None, bytes_max: int = READ_BYTES_MAX
) -> list[Event]:
    """Up to `count_max` events from `offset` on, none after `to_offset`; yields to the event loop between portions.

    Raises as `EventReader.read`, but damage only if it comes before the first event.
    """
    reader = EventReader(log, offset)
    events: list[Event] = []
    bytes_left = bytes_max
    while len(events) < count_max and bytes_left > 0 and (to_offset is None or reader.next_offset <= to_offset):
        try:
            portion = reader.read(min(PORTION_EVENTS, count_max - len(events)), min(PORTION_BYTES, bytes_left))
        except (KafkaError, OffsetOutOfRange):
            if events:
                break
            raise
        if isinstance(portion, NotReady):
            await portion.wait()
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


def _decompress(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
    # The codecs' libraries take long to load, and most rooms never need them.
    from storage.compression import decompress

    return decompress(codec, payload, budget_bytes)
