"""Reading all events in the order in which they were committed: a cursor over the journal.

It is used as `EventReader` is for one topic. An event's `offset` is its global position here, and its `event_id` is
`<topic>-<number>`, which says where it is in its topic. Events of topics that are gone are not shown.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kwire.broker.damage_report import report_unreadable
from kwire.broker.events.decoding import BatchCursor
from kwire.broker.events.event import Event
from kwire.broker.events.reading import (
    FOLDED_HERE_BYTES,
    PORTION_BYTES,
    PORTION_EVENTS,
    UNFOLDED_BYTES_MAX,
    UNFOLDED_HERE_BYTES,
    VIEW_BYTES,
)
from kwire.broker.store.journal import JournalCommit, JournalPart, commits_in
from kwire.broker.topics import Topics
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.log import NEXT_TURN, NotReady, StreamLog, Unreadable
from storage.batch import parse_header
from storage.errors import BudgetExceeded, CorruptBatch, StorageError, UnsupportedCompression
from storage.format import HEADER_BYTES

# Batches without anything to show that are passed over in one read; then others get their turn.
BATCHES_PER_READ = 100
# A batch that is larger is opened anew when somebody reads on: a slow reader holds no more than this.
KEPT_BYTES = 256 * 1024


# A third of the time that `_replace` takes.
_new_tuple = tuple.__new__

# Position of a commit and number of a part of it.
_Place = tuple[int, int]


class _Folded(Exception):
    """A part of a commit is compressed, and too large to be unfolded here: a thread has to do it first."""

    def __init__(self, place: _Place, codec: int, payload: bytes) -> None:
        self.place = place
        self.codec = codec
        self.payload = payload


class _Part(NamedTuple):
    """What is left of a part of a commit: the name of its topic (None: it is gone), its records, where it stands.

    The first `skipped` of its events are not wanted; `start_offset` is that of the first one behind them.
    """

    topic: str | None
    body: bytes
    cursor: BatchCursor
    event_count: int
    skipped: int
    start_offset: int


class GlobalReader:
    """A cursor. `next_offset` is the global position that comes next."""

    def __init__(self, topics: Topics, journal: StreamLog, position: int) -> None:
        self.next_offset = position
        self._topics = topics
        self._journal = journal
        # How often the journal has answered the read that is being made with NotReady.
        self._waits = 0
        # The rest of the batch that was opened last, from `next_offset` on.
        self._events: Iterator[Event | None] = iter(())
        self._batch_end = -1
        self._batch_bytes = 0
        # What threads have unfolded of the commit that is being read, or why they could not.
        self._unfolded: dict[_Place, bytes | StorageError] = {}

    def read(self, count_max: int = PORTION_EVENTS, bytes_max: int = PORTION_BYTES) -> list[Event] | NotReady:
        """The next events, at least one if there is one; none means that this is the head.

        Raises OffsetOutOfRange below the oldest position there is, Unreadable for damage (set `next_offset` to its
        `to_offset` to continue), and KafkaError when the disk fails.
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
            return NEXT_TURN
        except _Folded as folded:
            # The batch is opened anew, at the same place, when that is done.
            self._batch_end = -1
            return self._journal.in_thread(partial(self._unfold, folded))
        except UnsupportedCompression as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from error
        except (CorruptBatch, BudgetExceeded) as error:
            end, self._batch_end = max(self._batch_end, self.next_offset + 1), -1
            report_unreadable(self._journal.topic, self._journal.partition, self.next_offset, str(error))
            raise Unreadable(self.next_offset, end, str(error)) from error

    def put_down(self) -> None:
        """Nobody reads for a while: a large batch is let go of, and opened anew later."""
        if self._batch_bytes > KEPT_BYTES:
            self._events, self._batch_end, self._batch_bytes = iter(()), -1, 0
            self._unfolded.clear()

    def _open_batch(self) -> NotReady | None:
        """Open the batch that holds `next_offset`, if there is one yet."""
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
        """None: there are more in this batch, but enough was looked at for one turn."""
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
        except (_Folded, StorageError):
            if not events:
                raise
            # They are good, and the next read comes here again.
            self._batch_end = -1
            return events
        self.next_offset = max(self.next_offset, self._batch_end)
        return events

    def _events_of(self, batch: memoryview, position: int) -> Iterator[Event | None]:
        for commit in commits_in(batch):
            yield from self._events_of_commit(commit, max(position - commit.position, 0))

    def _events_of_commit(self, commit: JournalCommit, skipped: int) -> Iterator[Event | None]:
        """All but its first events. Those are passed over without being decoded, and there may be thousands: None comes
        whenever that was enough work for one turn."""
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
        self._unfolded.clear()
        if not order:
            for part in parts:
                left = part.event_count - part.skipped
                yield from _shown(part, position, left)
                position += left
            return
        streams = [None if part.topic is None else _events_in(part) for part in parts]
        for number in order[skipped:]:
            if number >= len(parts):
                raise CorruptBatch("a commit has fewer parts than it says")
            stream = streams[number]
            if stream is not None:
                while (event := next(stream)) is None:
                    yield None
                yield _new_tuple(Event, (position, f"{parts[number].topic}-{event[0] + 1}", *event[2:]))
            position += 1

    def _part(self, place: _Place, part: JournalPart, event_count: int, skipped: int) -> _Part:
        topic = self._topics.catalogue.name_of(part.topic_id)
        cursor, body = BatchCursor(), b""
        if topic is not None and skipped < event_count:
            header, payload = parse_header(part.batch), memoryview(part.batch)[HEADER_BYTES:]
            body = self._unfolded_body(place, header.compression, payload) if header.compression else bytes(payload)
            cursor.enter(header, len(body))
        return _Part(topic, body, cursor, event_count, skipped, part.base_offset + skipped)

    def _unfolded_body(self, place: _Place, codec: int, payload: memoryview) -> bytes:
        body = self._unfolded.get(place)
        if isinstance(body, StorageError):
            del self._unfolded[place]
            raise body
        if body is None:
            if len(payload) > FOLDED_HERE_BYTES:
                raise _Folded(place, codec, bytes(payload))
            try:
                body = _decompress(codec, payload, UNFOLDED_HERE_BYTES)
            except BudgetExceeded:
                raise _Folded(place, codec, bytes(payload)) from None
        self._batch_bytes += len(body)
        return body

    def _unfold(self, folded: _Folded) -> None:
        """Called from a thread, while the reader waits."""
        try:
            self._unfolded[folded.place] = _decompress(folded.codec, folded.payload, UNFOLDED_BYTES_MAX)
        except StorageError as error:
            self._unfolded[folded.place] = error


def _skipped(counts: Sequence[int], order: Sequence[int], skipped: int) -> list[int]:
    """How many of the first events of a commit are in each of its parts."""
    if order:
        passed = Counter(order[:skipped])
        return [passed[number] for number in range(len(counts))]
    found = []
    for count in counts:
        found.append(min(count, skipped))
        skipped -= found[-1]
    return found


def _shown(part: _Part, position: int, count: int) -> Iterator[Event | None]:
    """The events of a part, as they are seen from `position` on."""
    topic = part.topic
    if topic is not None:
        events = _events_in(part)
        for place in range(position, position + count):
            while (event := next(events)) is None:
                yield None
            yield _new_tuple(Event, (place, f"{topic}-{event[0] + 1}", *event[2:]))


def _events_in(part: _Part) -> Iterator[Event | None]:
    """Those that are wanted, as they are in the topic; raises CorruptBatch if more are asked for than there are.

    None: those that are not wanted were enough work for one turn.
    """
    while part.cursor.left:
        events: list[Event] = []
        part.cursor.take(part.body, part.start_offset, events, PORTION_EVENTS, UNFOLDED_BYTES_MAX)
        if events:
            yield from events
        else:
            yield None
    raise CorruptBatch("a part of a commit has fewer events than it says")


def _decompress(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
    # The codecs' libraries take long to load, and most commits never need them.
    from storage.compression import decompress

    return decompress(codec, payload, budget_bytes)
