"""EventReader: a cursor over the events of a log. `read_events` reads a range of events.

A read returns a bounded number of events and bytes, even from one large batch, so it never blocks the event loop for
long. A read that has to wait for the log, or for a batch that takes long to decompress, returns `NotReady`. A large
compressed batch, or one with very many records, is read in windows that a thread prepares (`batch_windows`).

Only committed records are events. Transaction markers and records of aborted transactions are skipped. There are no
events at their offsets, and no gap is reported for them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from kwire.broker.maintenance.damage_report import report_unreadable
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.events.aborted_batches import AbortedBatches
from kwire.streams.events.batch_windows import Window, window_at
from kwire.streams.events.decoding import BatchCursor
from kwire.streams.events.event import Event
from kwire.streams.log import NEXT_ITERATION, NotReady, StreamLog, StreamRead, Unreadable
from storage.batch.format import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_BIT,
)
from storage.batch.record_batch import BatchHeader, is_intact, parse_header
from storage.errors import BudgetExceeded, CorruptBatch, StorageError, UnsupportedCompression

# The default limits of one read.
EVENTS_PER_READ = 500
BYTES_PER_READ = 256 * 1024
# The maximum number of bytes of the log that are examined at a time. A single batch may be larger.
VIEW_BYTES = 256 * 1024
# The default limit of one call of `read_events`.
READ_BYTES_MAX = 16 * 1024 * 1024

# The limits of the work of one read. BATCHES_PER_READ limits the examined batches, including transaction markers,
# aborted batches and batches that compaction has emptied. VIEWS_PER_READ limits the examined views of the log that have
# no event. At either limit, the read yields to the event loop.
BATCHES_PER_READ = 2000
VIEWS_PER_READ = 16
# A compressed batch is decompressed on the event loop if it exceeds neither limit, and otherwise by a thread.
INLINE_DECOMPRESSED_BYTES_MAX = 256 * 1024
INLINE_COMPRESSED_BYTES_MAX = 64 * 1024
# A batch with more records is read in windows even if it is not compressed, because finding a record takes long.
INLINE_RECORDS_MAX = 50_000
# A batch with a larger decompressed size cannot be read as events.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# After `release_buffers`, a reader keeps at most this many decompressed bytes.
RETAINED_BYTES_MAX = 256 * 1024

# Base offset and CRC of a batch.
_BatchKey = tuple[int, int]
_NO_KEY: _BatchKey = (-1, -1)


class EventReader:
    """A cursor over the events of a log. The next event is the first one at or after `next_offset`."""

    __slots__ = ("_batch_key", "_cursor", "_decompressed", "_log", "_waits", "_window", "next_offset")

    def __init__(self, log: StreamLog, offset: int) -> None:
        self.next_offset = offset
        self._log = log
        # The position inside a batch, and the key of that batch. The key changes if compaction replaces the batch.
        self._cursor = BatchCursor()
        self._batch_key = _NO_KEY
        # `_decompressed` holds the decompressed records of a batch, or the error of the decompression. For a large
        # batch it holds only the records of one window, and `_window` describes that window.
        self._decompressed: tuple[_BatchKey, bytes | StorageError] | None = None
        self._window: tuple[_BatchKey, Window] | None = None
        # The number of times that the log has returned NotReady for the current read.
        self._waits = 0

    def read(self, count_max: int = EVENTS_PER_READ, bytes_max: int = BYTES_PER_READ) -> list[Event] | NotReady:
        """Return the next events, at least one if there is one. Returns an empty list at the committed end.

        Raises OffsetOutOfRange if the log starts after `next_offset`, and KafkaError if the log was deleted or cannot
        be read. Raises Unreadable if the next records are damaged. To continue after the damage, set `next_offset` to
        the `to_offset` of the error.
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
                # `next_offset` is the committed end, or is in a gap before it.
                self.next_offset = max(self.next_offset, found.next_offset)
                return events
            needed = self._take_events(found, batches, events, count_max, bytes_max)
            if needed is not None:
                return events or needed
            if events:
                return events
        return NEXT_ITERATION

    def release_buffers(self) -> None:
        """Free a large decompressed batch while the reader pauses. The next read decompresses the batch again."""
        body = None if self._decompressed is None else self._decompressed[1]
        if isinstance(body, bytes) and len(body) > RETAINED_BYTES_MAX:
            self._reset()

    def _take_events(
        self,
        read: StreamRead,
        batches: Iterator[int],
        events: list[Event],
        count_max: int,
        bytes_max: int,
    ) -> NotReady | None:
        """Append the events of the batches in `read` to `events`. `batches` limits the number of examined batches.

        Returns NotReady if a thread has to decompress the next batch first, or if that limit was reached.
        """
        view, position = read.records, 0
        size = len(view)
        aborted = AbortedBatches(read.aborted) if read.aborted else None
        taken_bytes = 0
        for _ in batches:
            next_offset = read.next_offset
            try:
                header = parse_header(view, position)
                base_offset, length, last_delta = header.base_offset, header.batch_length, header.last_offset_delta
                attributes = header.attributes
                end = position + length + LENGTH_OVERHEAD
                if length < MIN_BATCH_LENGTH or end > size or last_delta < 0:
                    raise CorruptBatch("no batch begins here")
                next_offset = base_offset + last_delta + 1
                if next_offset > self.next_offset:
                    batch = view[position:end]
                    key = base_offset, header.crc
                    if key != self._batch_key and not is_intact(batch):
                        raise CorruptBatch("the CRC does not match the bytes")
                    is_skipped = attributes & CONTROL_BIT or (
                        aborted is not None
                        and attributes & TRANSACTIONAL_BIT
                        and aborted.has(header.producer_id, base_offset)
                    )
                    if header.record_count and not is_skipped:
                        codec = attributes & COMPRESSION_MASK
                        if codec or header.record_count > INLINE_RECORDS_MAX:
                            body = self._body_of(key, codec, batch)
                        else:
                            body = bytes(batch[HEADER_BYTES:])
                        if body is None:
                            # Pass a view: copying megabytes here would block the event loop.
                            payload = batch[HEADER_BYTES:]
                            return self._log.in_thread(partial(self._decompress_window, key, header, payload))
                        cursor = self._cursor
                        if key != self._batch_key:
                            window = self._window_of(key)
                            cursor.enter(header, len(body), None if window is None else window.record_count)
                            self._batch_key = key
                        taken_bytes += cursor.take(
                            body, self.next_offset, events, count_max - len(events), bytes_max - taken_bytes
                        )
                        if cursor.left or self._is_more_after_window(key):
                            self._stop_inside(events)
                            return None if events else NEXT_ITERATION
                        self._reset()
            except UnsupportedCompression as error:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error
            except (CorruptBatch, BudgetExceeded) as error:
                self._reset()
                if events:  # return the intact events; the next read reports the error
                    self.next_offset = max(self.next_offset, events[-1].offset + 1)
                    return None
                to_offset = max(self.next_offset + 1, min(next_offset, read.next_offset))
                report_unreadable(self._log.topic, self._log.partition, self.next_offset, str(error))
                raise Unreadable(self.next_offset, to_offset, str(error)) from error
            position = end
            if position >= size:
                next_offset = max(next_offset, read.next_offset)
            if next_offset > self.next_offset:
                self.next_offset = next_offset
            if position >= size or len(events) >= count_max or taken_bytes >= bytes_max:
                return None
        return NEXT_ITERATION

    def _window_of(self, key: _BatchKey) -> Window | None:
        return self._window[1] if self._window is not None and self._window[0] == key else None

    def _is_more_after_window(self, key: _BatchKey) -> bool:
        window = self._window_of(key)
        return window is not None and window.end.left > 0

    def _stop_inside(self, events: list[Event]) -> None:
        if events:
            self.next_offset = events[-1].offset + 1
        if not self._cursor.left:
            # All events of the window were read. The next read prepares the next window.
            self._decompressed, self._batch_key = None, _NO_KEY

    def _body_of(self, key: _BatchKey, codec: int, batch: memoryview) -> bytes | None:
        """Return the decompressed records of a batch or window; None if a thread has to prepare them."""
        if self._decompressed is not None and self._decompressed[0] == key:
            body = self._decompressed[1]
            if isinstance(body, StorageError):
                self._decompressed = None
                raise body
            return body
        if codec and len(batch) <= INLINE_COMPRESSED_BYTES_MAX:
            with suppress(BudgetExceeded):
                body = _decompress(codec, batch[HEADER_BYTES:], INLINE_DECOMPRESSED_BYTES_MAX)
                self._decompressed = key, body
                return body
        return None

    def _decompress_window(self, key: _BatchKey, header: BatchHeader, payload: memoryview) -> None:
        """Decompress a batch, and keep the next window. Called in a thread, while the reader waits."""
        try:
            codec = header.compression
            body = _decompress(codec, payload, DECOMPRESSED_BYTES_MAX) if codec else bytes(payload)
            batch = self._log.topic, self._log.partition, key, header.batch_length
            before = self._window_of(key)
            window = window_at(body, header, batch, self.next_offset, None if before is None else before.end)
            self._window = key, window
            self._decompressed = key, window.body
        except StorageError as error:
            self._window = None
            self._decompressed = key, error

    def _reset(self) -> None:
        self._batch_key, self._decompressed, self._window = _NO_KEY, None, None


async def read_events(
    log: StreamLog, offset: int, count_max: int, *, to_offset: int | None = None, bytes_max: int = READ_BYTES_MAX
) -> list[Event]:
    """Read up to `count_max` events and `bytes_max` bytes from `offset` on, but no event after `to_offset`.

    Yields to the event loop between reads. Raises the same errors as `EventReader.read`, but only if no event was read
    before. If some events were read before the error, returns these events.
    """
    reader = EventReader(log, offset)
    events: list[Event] = []
    bytes_left = bytes_max
    while len(events) < count_max and bytes_left > 0 and (to_offset is None or reader.next_offset <= to_offset):
        try:
            found = reader.read(min(EVENTS_PER_READ, count_max - len(events)), min(BYTES_PER_READ, bytes_left))
        except (KafkaError, OffsetOutOfRange):
            if events:
                break
            raise
        if isinstance(found, NotReady):
            await found.wait()
            continue
        if not found:
            break
        events += found
        bytes_left -= sum(event.size_bytes for event in found)
        if len(events) < count_max:
            await asyncio.sleep(0)
    if to_offset is not None:
        while events and events[-1].offset > to_offset:
            events.pop()
    return events


def _decompress(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
    # Imported late, because the codec libraries take long to load and most rooms never need them.
    from storage.batch.compression import decompress

    return decompress(codec, payload, budget_bytes)
