"""A reader of all events in commit order: a cursor over the event journal.

`GlobalReader` has the interface of `EventReader`, which reads one topic. In the events that `GlobalReader` returns,
`offset` is the global position, and `event_id` is `<topic>-<number>`, with the number of the event in its topic. Events
of deleted topics are skipped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kwire.broker.maintenance.damage_report import report_unreadable
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.event_store.journal import JournalCommit, JournalPart, commits_in
from kwire.streams.event_store.pending_commit import NameOf
from kwire.streams.events.decoding import BatchCursor
from kwire.streams.events.event import Event
from kwire.streams.events.reading import (
    BYTES_PER_READ,
    DECOMPRESSED_BYTES_MAX,
    EVENTS_PER_READ,
    INLINE_COMPRESSED_BYTES_MAX,
    INLINE_DECOMPRESSED_BYTES_MAX,
    VIEW_BYTES,
)
from kwire.streams.log import NEXT_ITERATION, NotReady, StreamLog, Unreadable
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import parse_header
from storage.errors import BudgetExceeded, CorruptBatch, StorageError, UnsupportedCompression

# Batches without visible events that one call of `read` skips before it returns NEXT_ITERATION.
BATCHES_PER_READ = 100
# Size of an open batch that an idle reader keeps in memory. A larger batch is released, and it is read again when the
# reader continues.
IDLE_BATCH_BYTES_MAX = 256 * 1024


# Creating an Event with `tuple.__new__` takes a third of the time of `Event._replace`.
_new_tuple = tuple.__new__

# The position of a commit, and the number of one of its parts.
_PartKey = tuple[int, int]


class _NeedsThread(Exception):
    """A compressed part of a commit is too large for the event loop and must be decompressed in a thread first."""

    def __init__(self, key: _PartKey, codec: int, payload: bytes) -> None:
        self.key = key
        self.codec = codec
        self.payload = payload


class _Part(NamedTuple):
    """A part of a commit that is being read.

    `topic` is the name of the topic, or None if it is deleted. `body` has the decompressed records, and `cursor` is the
    position in these records. The first `skipped` events are not returned. `start_offset` is the topic offset of the
    first event that is returned.
    """

    topic: str | None
    body: bytes
    cursor: BatchCursor
    event_count: int
    skipped: int
    start_offset: int


class GlobalReader:
    """A cursor over all events. `next_offset` is the global position of the next event."""

    def __init__(self, name_of: NameOf, journal: StreamLog, position: int) -> None:
        self.next_offset = position
        self._name_of = name_of
        self._journal = journal
        # The number of times that the journal has returned NotReady for the current read.
        self._waits = 0
        # The remaining events of the open batch, from `next_offset` on.
        self._events: Iterator[Event | None] = iter(())
        self._batch_end = -1
        self._batch_bytes = 0
        # Parts of the current commit that a thread has decompressed, or the error of the decompression.
        self._decompressed: dict[_PartKey, bytes | StorageError] = {}

    def read(self, count_max: int = EVENTS_PER_READ, bytes_max: int = BYTES_PER_READ) -> list[Event] | NotReady:
        """Return the next events: at least one, or an empty list at the end of the journal.

        Returns NotReady if the caller must wait and call again. Raises OffsetOutOfRange if `next_offset` is below the
        oldest stored position. Raises Unreadable if the journal is damaged; to continue, set `next_offset` to the
        error's `to_offset`. Raises KafkaError if the disk fails.
        """
        try:
            for _ in range(BATCHES_PER_READ):
                if self.next_offset < self._journal.start_offset:
                    bounds = self._journal.bounds()
                    raise OffsetOutOfRange(self.next_offset, bounds.start, bounds.newest)
                if self.next_offset >= self._batch_end:
                    needed = self._open_batch()
                    if needed is not None:
                        return needed
                    if self._batch_end <= self.next_offset:
                        return []
                events = self._take(count_max, bytes_max)
                if events is None:
                    break
                if events:
                    return events
            return NEXT_ITERATION
        except _NeedsThread as large_part:
            # The next read opens the batch again at the same position. The thread has decompressed the part by then.
            self._batch_end = -1
            return self._journal.in_thread(partial(self._decompress_part, large_part))
        except UnsupportedCompression as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error
        except (CorruptBatch, BudgetExceeded) as error:
            end, self._batch_end = max(self._batch_end, self.next_offset + 1), -1
            report_unreadable(self._journal.topic, self._journal.partition, self.next_offset, str(error))
            raise Unreadable(self.next_offset, end, str(error)) from error

    def release_buffers(self) -> None:
        """Release the memory of a large open batch. The next read reads this batch again."""
        if self._batch_bytes > IDLE_BATCH_BYTES_MAX:
            self._events, self._batch_end, self._batch_bytes = iter(()), -1, 0
            self._decompressed.clear()

    def _open_batch(self) -> NotReady | None:
        """Open the batch that contains `next_offset`, if it is already committed.

        Returns NotReady if the journal cannot be read immediately.
        """
        position = self.next_offset
        read = self._journal.read(position, VIEW_BYTES, self._waits)
        if isinstance(read, NotReady):
            self._waits += 1
            return read
        self._waits = 0
        if read.records:
            header = parse_header(read.records)
            self._batch_end, self._batch_bytes = header.last_offset + 1, header.size_bytes
            self._events = self._events_of(read.records[: header.size_bytes], position)
        elif position < self._journal.committed_end:
            raise CorruptBatch("nothing can be read here")
        return None

    def _take(self, count_max: int, bytes_max: int) -> list[Event] | None:
        """Return the next events of the open batch; an empty list if it has no more visible events.

        Returns None if no event was found yet and the event loop should run other work first.
        """
        events: list[Event] = []
        try:
            for event in self._events:
                if event is None:
                    return events or None
                events.append(event)
                self.next_offset = event.offset + 1
                bytes_max -= event.size_bytes
                if len(events) >= count_max or bytes_max <= 0:
                    return events
        except (_NeedsThread, StorageError):
            if not events:
                raise
            # Return the events before the error. The next read opens the batch again and raises the error again.
            self._batch_end = -1
            return events
        self.next_offset = max(self.next_offset, self._batch_end)
        return events

    def _events_of(self, batch: memoryview, position: int) -> Iterator[Event | None]:
        for commit in commits_in(batch):
            yield from self._events_of_commit(commit, max(position - commit.position, 0))

    def _events_of_commit(self, commit: JournalCommit, skipped: int) -> Iterator[Event | None]:
        """Yield the events of a commit after the first `skipped` ones.

        Skipping thousands of events takes time, although they are not decoded. None is yielded whenever the event loop
        should run other work.
        """
        order: Sequence[int] = commit.order
        counts = [parse_header(part.batch).last_offset_delta + 1 for part in commit.parts]
        if skipped >= sum(counts):
            return
        position = commit.position + skipped
        skips = _skipped(counts, order, skipped)
        parts = [
            self._part((commit.position, number), part, counts[number], skips[number])
            for number, part in enumerate(commit.parts)
        ]
        self._decompressed.clear()
        if not order:
            for part in parts:
                left = part.event_count - part.skipped
                yield from _numbered_events(part, position, left)
                position += left
            return
        streams = [None if part.topic is None else _events_in(part) for part in parts]
        for number in order[skipped:]:
            if number >= len(parts):
                raise CorruptBatch("a commit refers to a part that it does not have")
            stream = streams[number]
            if stream is not None:
                while (event := next(stream)) is None:
                    yield None
                yield _new_tuple(Event, (position, f"{parts[number].topic}-{event[0] + 1}", *event[2:]))
            position += 1

    def _part(self, key: _PartKey, part: JournalPart, event_count: int, skipped: int) -> _Part:
        topic = self._name_of(part.topic_id)
        cursor, body = BatchCursor(), b""
        if topic is not None and skipped < event_count:
            header, payload = parse_header(part.batch), memoryview(part.batch)[HEADER_BYTES:]
            body = self._decompressed_body(key, header.compression, payload) if header.compression else bytes(payload)
            cursor.enter(header, len(body))
        return _Part(topic, body, cursor, event_count, skipped, part.base_offset + skipped)

    def _decompressed_body(self, key: _PartKey, codec: int, payload: memoryview) -> bytes:
        body = self._decompressed.get(key)
        if isinstance(body, StorageError):
            del self._decompressed[key]
            raise body
        if body is None:
            if len(payload) > INLINE_COMPRESSED_BYTES_MAX:
                raise _NeedsThread(key, codec, bytes(payload))
            try:
                body = _decompress(codec, payload, INLINE_DECOMPRESSED_BYTES_MAX)
            except BudgetExceeded:
                raise _NeedsThread(key, codec, bytes(payload)) from None
        self._batch_bytes += len(body)
        return body

    def _decompress_part(self, large_part: _NeedsThread) -> None:
        """Decompress a part and store the result or the error. A thread calls this while the reader waits."""
        try:
            body = _decompress(large_part.codec, large_part.payload, DECOMPRESSED_BYTES_MAX)
            self._decompressed[large_part.key] = body
        except StorageError as error:
            self._decompressed[large_part.key] = error


def _skipped(counts: Sequence[int], order: Sequence[int], skipped: int) -> list[int]:
    """Return, for each part of a commit, how many of the commit's first `skipped` events are in this part."""
    if order:
        passed = Counter(order[:skipped])
        return [passed[number] for number in range(len(counts))]
    found = []
    for count in counts:
        found.append(min(count, skipped))
        skipped -= found[-1]
    return found


def _numbered_events(part: _Part, position: int, count: int) -> Iterator[Event | None]:
    """Yield the events of a part with global positions from `position` on."""
    topic = part.topic
    if topic is not None:
        events = _events_in(part)
        for global_position in range(position, position + count):
            while (event := next(events)) is None:
                yield None
            yield _new_tuple(Event, (global_position, f"{topic}-{event[0] + 1}", *event[2:]))


def _events_in(part: _Part) -> Iterator[Event | None]:
    """Yield the events of a part after its first `skipped` ones, with their offsets in the topic.

    None is yielded when skipping events has taken enough time for one loop iteration. Raises CorruptBatch if the caller
    requests an event after the last one.
    """
    while part.cursor.left:
        events: list[Event] = []
        part.cursor.take(part.body, part.start_offset, events, EVENTS_PER_READ, DECOMPRESSED_BYTES_MAX)
        if events:
            yield from events
        else:
            yield None
    raise CorruptBatch("a part of a commit has fewer events than its header announces")


def _decompress(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
    # Imported here, because loading the codec libraries takes long and most commits are not compressed.
    from storage.batch.compression import decompress

    return decompress(codec, payload, budget_bytes)
