"""NumberedLog: a StreamLog whose offsets are the numbers of events, over a log in which markers take offsets.

It shows the batches of committed transactions that have numbers, with the number of their first record as base offset.
Markers, aborted batches and records of other writers are not shown. The end is set by the writer (`committed`), so an
event can be read as soon as it is acknowledged: a read waits until the marker of its transaction is written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange, as_value
from kwire.streams.events.aborted_batches import AbortedBatches
from kwire.streams.log import (
    Appended,
    Bounds,
    Completed,
    NotReady,
    StreamLog,
    StreamRead,
    Usage,
    Watcher,
)
from kwire.streams.remote_events.numbers import first_number
from kwire.streams.remote_events.places import Place, Places
from storage.batch.format import TRANSACTIONAL_BIT
from storage.batch.record_batch import BatchHeader, parse_header

# A read walks over about this many offsets, events or bytes before its own event. Beyond it, it searches first.
WALK_MAX: Final = 2000
WALK_BYTES: Final = 512 * 1024
# The bytes of one read of a search. A larger batch is read whole.
SEARCH_BYTES: Final = 1
VIEW_BYTES: Final = 256 * 1024
# How long a read waits for the marker of a transaction whose commit was acknowledged.
MARKER_SECONDS: Final = 30.0
MARKER_FIRST_PAUSE_SECONDS: Final = 0.002
MARKER_PAUSE_SECONDS_MAX: Final = 0.2

_BASE_OFFSET_BYTES: Final = 8
_NO_RECORDS: Final = memoryview(b"")


class NumberedBatch(NamedTuple):
    """A batch of the inner log, the number of its first event, and how many events it has."""

    number: int
    event_count: int
    header: BatchHeader
    data: memoryview


def batches_in(found: StreamRead) -> Iterator[NumberedBatch]:
    """Yield the batches of committed transactions that have numbers. `event_count` is that of the records."""
    view, position = found.records, 0
    aborted = AbortedBatches(found.aborted)
    while position < len(view):
        header = parse_header(view, position)
        data = view[position : position + header.size_bytes]
        position += header.size_bytes
        if header.attributes & TRANSACTIONAL_BIT and not aborted.has(header.producer_id, header.base_offset):
            number = first_number(data, header)
            if number is not None:
                yield NumberedBatch(number, header.record_count, header, data)


class _Work(NotReady):
    """Work of a coroutine."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    def begin(self, completed: Completed) -> None:
        task = asyncio.ensure_future(self._work())

        def end(done: "asyncio.Future[None]") -> None:
            _running.discard(task)
            if not done.cancelled():
                completed(done.exception())

        _running.add(task)
        task.add_done_callback(end)

    async def wait(self) -> None:
        await self._work()


# References that keep the tasks of reads alive.
_running: set["asyncio.Future[None]"] = set()


class NumberedLog(StreamLog):
    """`refresh` asks for the bounds of the inner log. The numbers of a new topic begin at 0."""

    def __init__(self, inner: StreamLog, end: int, refresh: Callable[[], Awaitable[None]]) -> None:
        self.topic = inner.topic
        self.partition = inner.partition
        self.incarnation = inner.incarnation
        self._inner = inner
        self._refresh = refresh
        self._end = end
        self._start: int | None = None
        # The start of the inner log for which `_start` was found.
        self._start_offset = -1
        self._places = Places()
        self._watchers: set[Watcher] = set()
        self._failure: KafkaError | None = None

    @property
    def is_gone(self) -> bool:
        return self._inner.is_gone

    @property
    def is_closing(self) -> bool:
        return self._inner.is_closing

    @property
    def max_batch_bytes(self) -> int:
        return self._inner.max_batch_bytes

    # --- what the writer does

    def committed(self, number: int, count: int, offset: int) -> None:
        """Events were committed. `offset` is that of the first one, or -1 if it is not known."""
        if offset >= 0:
            self._places.add(number, offset, count)
        self._end = number + count
        self._call_watchers()

    def fail(self, error: KafkaError) -> None:
        """Refuse all further reads."""
        self._failure = error
        self._call_watchers()

    def _call_watchers(self) -> None:
        watchers = self._watchers
        for watcher in tuple(watchers):
            if watcher in watchers:
                watcher(self)

    # --- bounds

    async def ready(self) -> None:
        self._check()
        await self._inner.ready()
        if self._start is None or self._inner.start_offset != self._start_offset:
            await self._find_start()

    def bounds(self) -> Bounds:
        self._check()
        self._inner.bounds()
        return Bounds(self.start_offset, self._end, self._end)

    @property
    def start_offset(self) -> int:
        return self._start or 0

    @property
    def committed_end(self) -> int:
        return self._end

    @property
    def high_watermark(self) -> int:
        return self._end

    def usage(self) -> Usage:
        return self._inner.usage()

    def _check(self) -> None:
        if self._failure is not None:
            raise as_value(self._failure)

    # --- records

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        appended(KafkaError(ErrorCode.INVALID_REQUEST, f"topic {self.topic!r}: publish events with POST /events"))

    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        self._check()
        self._inner.bounds()
        if offset < self.start_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self._end - 1)
        if offset >= self._end:
            return StreamRead(_NO_RECORDS, offset, ())
        place = self._places.before(offset)
        if self._is_far(offset, place):
            return _Work(lambda: self._locate(offset))
        if place.offset < self._inner.start_offset and self._start_offset != self._inner.start_offset:
            return _Work(self._find_start)
        at = max(place.offset, self._inner.start_offset)
        try:
            found = self._inner.read(at, max_bytes, waits)
        except OffsetOutOfRange:
            return _Work(self._find_start)
        if isinstance(found, NotReady):
            return found
        if not found.records and found.next_offset <= at:
            return _Work(lambda: self._await_marker(at))
        if (shown := self._shown(found, offset)) is not None:
            return shown
        # Only markers, or events before the wanted one. The search for it is one wait of the reader, whatever its
        # length: the inner log counts the waits of one read.
        return _Work(lambda: self._walk(offset, found.next_offset))

    def read_uncommitted(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        return self.read(offset, max_bytes, waits)

    def _is_far(self, number: int, place: Place) -> bool:
        """Whether there is more than a walk between a place and the event with a number."""
        distance = number - place.number
        if distance < max(1, place.event_count):
            return False
        following, walk_max = self._places.after(number), self._walk_max()
        last_offset = self._inner.high_watermark if following is None else following.offset
        return distance >= walk_max and last_offset - max(place.offset, self._inner.start_offset) > walk_max

    def _walk_max(self) -> int:
        """Return how many offsets or events a read may walk over. The mean size of records is a hint only."""
        size_bytes = self._inner.usage().size_bytes
        offset_count = self._inner.high_watermark - self._inner.start_offset
        return max(1, min(WALK_MAX, WALK_BYTES * offset_count // size_bytes if size_bytes else WALK_MAX))

    def _shown(self, found: StreamRead, wanted: int) -> StreamRead | None:
        """Return the batches from a number on; None if there are none, and then the place of the number moves on."""
        parts: list[bytes] = []
        end = wanted
        for batch in self._batches_from(found, wanted):
            end = batch.number + batch.event_count
            self._places.add(batch.number, batch.header.base_offset, batch.event_count)
            parts.append(self._renumbered(batch))
        self._places.add(end, found.next_offset)
        return StreamRead(memoryview(b"".join(parts)), end, ()) if parts else None

    def _batches_from(self, found: StreamRead, number: int) -> Iterator[NumberedBatch]:
        """Yield the batches with events from a number on."""
        for one in batches_in(found):
            batch = self._with_count(one)
            if batch.number + batch.event_count > number:
                yield batch

    def _with_count(self, batch: NumberedBatch) -> NumberedBatch:
        """Return a batch with the right number of events."""
        return batch

    def _renumbered(self, batch: NumberedBatch) -> bytes:
        """Return a batch whose base offset is its number. The checksum does not include the base offset."""
        return batch.number.to_bytes(_BASE_OFFSET_BYTES) + bytes(batch.data[_BASE_OFFSET_BYTES:])

    async def offset_for_time(self, timestamp_ms: int) -> int:
        self._check()
        offset = await self._inner.offset_for_time(timestamp_ms)
        batch = await self._first_batch(offset, self._inner.committed_end)
        if batch is None:
            return self._end
        return min(self._end, max(self.start_offset, batch.number + self._events_before(batch, offset)))

    def _events_before(self, batch: NumberedBatch, offset: int) -> int:
        return max(0, offset - batch.header.base_offset)

    def in_thread(self, work: Callable[[], None]) -> NotReady:
        return self._inner.in_thread(work)

    # --- searches

    async def _find_start(self) -> None:
        await self._refresh()
        start_offset = self._inner.start_offset
        if start_offset == 0:
            self._start, self._start_offset = 0, 0
            return
        batch = await self._first_batch(start_offset, self._inner.committed_end)
        if batch is not None:
            start = batch.number + self._events_before(batch, start_offset)
            self._places.add(batch.number, batch.header.base_offset)
        else:
            # All events that can be read were deleted. Those whose marker is not written yet have a place.
            place = self._places.first_from(max(start_offset, self._inner.committed_end))
            start = self._end if place is None else min(place.number, self._end)
        self._start, self._start_offset = max(start, self.start_offset), start_offset

    async def find_end(self) -> int:
        """Return the number after the newest event that the inner log has, 0 if it has none. Await its bounds first."""
        first, upto = self._inner.committed_end, self._inner.committed_end
        step = 1
        while first > self._inner.start_offset:
            first = max(self._inner.start_offset, first - step)
            end, offset = 0, first
            while (batch := await self._first_batch(offset, upto)) is not None:
                end, offset = batch.number + batch.event_count, batch.header.last_offset + 1
            if end:
                return end
            upto, step = first, 2 * step
        return 0

    async def _locate(self, number: int) -> None:
        """Search until a place is so near that a read can walk from there."""
        await self.ready()
        low, following = self._places.before(number), self._places.after(number)
        # Everything before the start is deleted.
        low_offset = max(low.offset, self._inner.start_offset)
        high_offset = self._inner.committed_end if following is None else following.offset
        walk_max = self._walk_max()
        while number - low.number >= max(walk_max, low.event_count) and high_offset - low_offset > walk_max:
            middle = (low_offset + high_offset) // 2
            batch = await self._first_batch(middle, high_offset)
            if batch is None or batch.number > number:
                high_offset = middle
            else:
                low = _at_or_after(batch, number)
                low_offset = max(middle, low.offset)
        self._places.add(*low)
        if number >= low.number + low.event_count:
            self._places.add(number, low_offset)

    async def _walk(self, number: int, offset: int) -> None:
        """Read on from an offset until the event with a number is found, and add its place. Raises KafkaError."""
        try:
            while True:
                self._check()
                found = await self._read_inner(offset, VIEW_BYTES)
                for batch in self._batches_from(found, number):
                    self._places.add(batch.number, batch.header.base_offset, batch.event_count)
                    return
                if found.next_offset <= offset:
                    await self._await_marker(offset)
                offset = max(offset, found.next_offset)
                self._places.add(number, offset)
                await asyncio.sleep(0)
        except OffsetOutOfRange:
            # Deleted meanwhile. The reader finds out what the oldest event is.
            await self._find_start()

    async def _first_batch(self, offset: int, end: int) -> NumberedBatch | None:
        """Return the first numbered batch that has records at `offset` or after it, but not from `end` on."""
        while offset < end:
            found = await self._read_inner(offset, SEARCH_BYTES)
            for one in batches_in(found):
                batch = self._with_count(one)
                if batch.header.last_offset >= offset:
                    return batch if batch.header.base_offset < end else None
            if found.next_offset <= offset:
                return None
            offset = found.next_offset
            await asyncio.sleep(0)
        return None

    async def _read_inner(self, offset: int, max_bytes: int) -> StreamRead:
        waits = 0
        while isinstance(found := self._inner.read(offset, max_bytes, waits), NotReady):
            waits += 1
            await found.wait()
        return found

    async def _await_marker(self, offset: int) -> None:
        """Wait until a record at `offset` can be read. Raises KafkaError."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + MARKER_SECONDS, MARKER_FIRST_PAUSE_SECONDS
        while True:
            self._check()
            await self._refresh()
            if self._inner.committed_end > offset or self._inner.start_offset > offset:
                return
            if loop.time() > deadline:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"topic {self.topic!r}: the cluster has not ended a transaction within {MARKER_SECONDS:g} s",
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, MARKER_PAUSE_SECONDS_MAX)

    # --- signals

    def watch(self, watcher: Watcher) -> None:
        if not self._watchers:
            self._inner.watch(self._on_inner)
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            if not self._watchers:
                self._inner.unwatch(self._on_inner)

    def _on_inner(self, _: StreamLog) -> None:
        """The writer announces new events. Only the deletion of the topic is news."""
        if self._inner.is_gone:
            self._call_watchers()


def _at_or_after(batch: NumberedBatch, number: int) -> Place:
    """Return the place of a batch, or the place after it if the batch does not have the event."""
    end = batch.number + batch.event_count
    if number < end:
        return Place(batch.number, batch.header.base_offset, batch.event_count)
    return Place(end, batch.header.last_offset + 1)
