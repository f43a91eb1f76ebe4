"""Live event files: the events of all event topics are read with a cursor per topic and written to files.

New events of all topics are collected into a round. Another process writes one round at a time. Events that arrive
meanwhile are written in the next round. The position of a topic is stored after its files, so after a kill the cursor
continues where the files end. Topics are identified by their ids. The files of a deleted topic are removed, and a topic
that is created again under the same name is written from its beginning.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from kwire.broker.topics.catalogue import EVENTS_CONFIG, TopicFacts
from kwire.broker.topics.topics import Topic, Topics
from kwire.concurrency.worker_process import WorkerDied
from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.event_store.files.layout import TOPIC_LENGTH_MAX, FileEvent, config_text, position_path, schemas_text
from kwire.streams.event_store.files.missing_files import Missing, missing_events
from kwire.streams.event_store.files.writer import (
    FolderConflict,
    PickledEvents,
    Position,
    TopicPart,
    begin_topic,
    open_root_locked,
    remove_some,
    remove_topic,
    with_lock,
    write_round,
)
from kwire.streams.events.event import Event, time_text
from kwire.streams.events.reading import BYTES_PER_READ, EVENTS_PER_READ, EventReader
from kwire.streams.log import NotReady, StreamLog, Unreadable
from storage.disk.files import Files
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

# Limits of a round. The last batch of events that is added may exceed them.
ROUND_EVENTS = 10_000
ROUND_BYTES = 8 * 1024 * 1024
# Configuration files that are compared in one round. A file is written if its content has changed.
ROUND_CONFIGS = 200
# Interval between checks for new topics.
TOPICS_CHECK_SECONDS = 0.5
NAMES_PER_TURN = 500
# Pause after a failure. It is doubled after each further failure, up to the maximum.
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 30.0
# Longest time for which `close` continues to write the remaining events.
CLOSE_SECONDS = 10.0
REFUSALS_LOGGED_MAX = 1000

# Runs a module-level function in another process (`WorkerProcess.run`).
Run = Callable[..., Awaitable[Any]]
# Returns the registered schemas of the topic with this id; an empty sequence if the topic is deleted.
SchemasOf = Callable[[bytes], Sequence[Any]]


class _Cursor:
    """The cursor on one topic. Events below `next_offset` have files. `reader` may be ahead of `next_offset`."""

    __slots__ = ("config", "log", "next_offset", "reader", "schemas_text", "topic", "topic_id")

    def __init__(self, topic: Topic, next_offset: int) -> None:
        self.topic = topic
        self.topic_id = topic.topic_id
        self.log = topic.stream()
        self.next_offset = next_offset
        self.reader = EventReader(self.log, next_offset)
        # The sequence and the schemas in the configuration file, as this process last compared or wrote them.
        self.config: tuple[int, bytes] | None = None
        self.schemas_text = b""

    @property
    def name(self) -> str:
        return self.topic.name

    def rewind(self) -> None:
        """Read again from where the files end."""
        self.reader = EventReader(self.log, self.next_offset)


class EventFiles:
    """The live event files of a server. Use it only in the event loop's thread.

    `written_count` is the number of events written, `skipped_count` the number of events that could not be read, and
    `failure_count` the number of failed attempts, which are retried. `refused_count` is the number of topics that get
    no files at present.
    """

    def __init__(
        self,
        directory: str,
        owner: str,
        topics: Topics,
        schemas_of: SchemasOf,
        files: Files,
        run: Run,
    ) -> None:
        """`owner` is the permanent id of this server. Each directory belongs to one owner."""
        self.directory = directory
        self.written_count = 0
        self.skipped_count = 0
        self.failure_count = 0
        self.refused_count = 0
        # The timestamp of the oldest event in the current round; None if no events wait.
        self.oldest_waiting_ms: int | None = None
        self._owner = owner
        self._topics = topics
        self._schemas_of = schemas_of
        self._files = files
        self._run = run
        # The positions stored in the directory, by topic name. Topics without a cursor are included.
        self._positions: dict[str, Position | None] = {}
        self._cursors: dict[str, _Cursor] = {}
        self._by_log: dict[StreamLog, _Cursor] = {}
        self._dirty: dict[_Cursor, None] = {}
        # Cursors whose configuration files have to be compared, and cursors that cannot be read at present.
        self._configs_to_check: dict[_Cursor, None] = {}
        self._stalled: dict[_Cursor, None] = {}
        # Cursors of new topics whose first position is not stored yet. Nothing is written before it is.
        self._unbegun: dict[_Cursor, None] = {}
        # Cursors whose files are being written.
        self._in_round: dict[_Cursor, None] = {}
        # Cursors whose existing files have not been checked yet, and the ranges of events whose files are missing.
        self._unverified: dict[_Cursor, None] = {}
        self._missing: deque[tuple[_Cursor, Missing]] = deque()
        self._refused: dict[str, bytes] = {}
        self._known_revision = -1
        # The time at which refused topics are tried again.
        self._refused_until = 0.0
        self._has_leftovers = True
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def pending_count(self) -> int:
        """The number of events that wait for their files."""
        waiting = self._dirty | self._stalled | self._in_round
        return sum(max(0, one.log.committed_end - one.next_offset) for one in waiting)

    async def open(self) -> None:
        """Start writing. Raises WrongOwner if the directory has another owner, OSError if it cannot be used."""
        self._positions = await self._run(open_root_locked, self._files, self.directory, self._owner)
        self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Write the remaining events, for at most CLOSE_SECONDS. The next start continues where the files end."""
        if self._task is None:
            return
        self._ending.set()
        self._wake.set()
        done, _ = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for cursor in self._cursors.values():
            cursor.log.unwatch(self._on_new_events)

    async def caught_up(self) -> None:
        """Wait until all events that can be read now have files, and files of deleted topics are removed."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        self._known_revision = -1
        self._wake.set()
        await idle

    def schemas_changed(self, topic_id: bytes) -> None:
        """Schedule a new configuration file for a topic."""
        topic = self._topics.get_by_id(topic_id)
        cursor = self._cursors.get(topic.name) if topic is not None else None
        if cursor is not None and cursor.topic_id == topic_id:
            self._configs_to_check[cursor] = None
            self._wake.set()

    # --- the work

    async def _work(self) -> None:
        retry_seconds = RETRY_SECONDS
        while True:
            waiting, self._idle = self._idle, []
            try:
                has_more = await self._step()
            except (OSError, StorageError, KafkaError, WorkerDied) as error:
                self._idle = waiting + self._idle
                self.failure_count += 1
                log.error("events cannot be written to %s: %s; the write is retried", self.directory, error)
                self._start_over()
                if self._ending.is_set():
                    return
                # New events do not shorten the pause.
                await _wait(self._ending, retry_seconds)
                retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)
                continue
            retry_seconds = RETRY_SECONDS
            if has_more:
                self._idle = waiting + self._idle
                continue
            self.oldest_waiting_ms = None
            for idle in waiting:
                if not idle.done():
                    idle.set_result(None)
            if self._ending.is_set():
                return
            await _wait(self._wake, TOPICS_CHECK_SECONDS)
            self._dirty |= self._stalled
            self._stalled = {}

    async def _step(self) -> bool:
        """Write one round or do one unit of low-priority work. Returns whether there is more work."""
        self._wake.clear()
        try:
            await self._follow_topics()
        except (OSError, WorkerDied):
            # Nothing can be written, but the metrics show the age of the oldest event that waits.
            await self._next_parts()
            raise
        parts = await self._next_parts()
        if parts:
            await self._write(parts)
        elif not self._ending.is_set():
            # Low-priority work. If it is not finished before the server stops, the next start finds it again.
            if self._missing:
                await self._replace_missing(*self._missing[0])
            elif self._unverified:
                await self._find_missing(next(iter(self._unverified)))
            elif self._has_leftovers:
                self._has_leftovers = await self._run(with_lock, remove_some, self._files, self.directory)
        has_more = bool(self._has_leftovers or self._missing or self._unverified) and not self._ending.is_set()
        return (
            has_more
            or bool(self._dirty or self._configs_to_check)
            or self._known_revision != self._topics.catalogue.revision
        )

    def _start_over(self) -> None:
        """Read all topics again from where their files end, and compare their configuration files again."""
        for cursor in self._cursors.values():
            if cursor.reader.next_offset != cursor.next_offset:
                cursor.rewind()
                self._dirty[cursor] = None
            if cursor.config != (cursor.next_offset, cursor.schemas_text):
                self._configs_to_check[cursor] = None

    # --- topics

    async def _follow_topics(self) -> None:
        catalogue, now = self._topics.catalogue, asyncio.get_running_loop().time()
        is_retry = self.refused_count > 0 and now >= self._refused_until
        if catalogue.revision == self._known_revision and not is_retry:
            return
        revision = catalogue.revision
        found = await self._event_topics()
        for name, cursor in list(self._cursors.items()):
            if found.get(name) != cursor.topic_id and catalogue.name_of(cursor.topic_id) is None:
                has_files = cursor not in self._unbegun
                self._drop_cursor(cursor)
                if has_files:
                    await self._remove_files(name, cursor.topic_id.hex())
        for name, position in list(self._positions.items()):
            if name in self._cursors or position is None:
                continue
            topic_id = bytes.fromhex(position.topic_id)
            if found.get(name) != topic_id and catalogue.name_of(topic_id) is None:
                await self._remove_files(name, position.topic_id)
        for name, topic_id in found.items():
            if name not in self._cursors:
                self._add_cursor(name, topic_id)
        for cursor in list(self._unbegun):
            await self._begin(cursor)
        self.refused_count = sum(name not in self._cursors for name in found)
        self._refused_until = now + RETRY_SECONDS_MAX
        self._known_revision = revision

    async def _event_topics(self) -> dict[str, bytes]:
        """Return the names and ids of all event topics. Yields to the event loop between pages of names."""
        catalogue = self._topics.catalogue
        found: dict[str, bytes] = {}
        first = ""
        while names := catalogue.names_from(first, NAMES_PER_TURN):
            for name in names:
                facts = catalogue.find(name)
                if facts is not None and _is_event_topic(facts):
                    found[name] = facts.topic_id
            first = names[-1] + "\0"
            await asyncio.sleep(0)
        return found

    def _add_cursor(self, name: str, topic_id: bytes) -> None:
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return  # the topic was deleted meanwhile, and the new revision of the catalogue causes another pass
        try:
            position = self._position_of(topic)
        except (KafkaError, StorageError, FolderConflict) as error:
            self._refuse(name, topic_id, str(error))
            return
        cursor = self._cursors[name] = self._by_log[topic.stream()] = _Cursor(topic, position.next_offset)
        self._unverified[cursor] = None
        if name not in self._positions:
            self._unbegun[cursor] = None
        cursor.log.watch(self._on_new_events)
        self._dirty[cursor] = self._configs_to_check[cursor] = None

    async def _begin(self, cursor: _Cursor) -> None:
        """Store the first position of a topic."""
        position = Position(cursor.topic_id.hex(), cursor.next_offset)
        try:
            await self._run(with_lock, begin_topic, self._files, self.directory, cursor.name, position)
        except FolderConflict as error:
            self._drop_cursor(cursor)
            self._refuse(cursor.name, cursor.topic_id, str(error))
            return
        self._positions[cursor.name] = position
        del self._unbegun[cursor]

    def _position_of(self, topic: Topic) -> Position:
        name, topic_id = topic.name, topic.topic_id.hex()
        if len(name) > TOPIC_LENGTH_MAX:
            raise FolderConflict(f"the topic's name is longer than {TOPIC_LENGTH_MAX} characters")
        bounds = topic.stream().bounds()
        if name not in self._positions:
            return Position(topic_id, bounds.start)
        known = self._positions[name]
        if known is None or known.topic_id != topic_id or known.next_offset > bounds.end:
            raise FolderConflict(
                f"the files do not belong to this topic: move them and {position_path(name)} elsewhere"
            )
        return known

    def _refuse(self, name: str, topic_id: bytes, reason: str) -> None:
        """Log why a topic gets no files. The reason is logged only once for each topic."""
        if self._refused.get(name) == topic_id:
            return
        if len(self._refused) >= REFUSALS_LOGGED_MAX:
            self._refused.clear()
        self._refused[name] = topic_id
        log.error("topic %s gets no event files in %s: %s", name, self.directory, reason)

    def _drop_cursor(self, cursor: _Cursor) -> None:
        cursor.log.unwatch(self._on_new_events)
        del self._cursors[cursor.name]
        del self._by_log[cursor.log]
        for those in (
            self._dirty,
            self._configs_to_check,
            self._stalled,
            self._in_round,
            self._unverified,
            self._unbegun,
        ):
            those.pop(cursor, None)

    async def _remove_files(self, name: str, topic_id: str) -> None:
        await self._run(with_lock, remove_topic, self._files, self.directory, name, topic_id)
        self._positions.pop(name, None)
        self._has_leftovers = True

    def _on_new_events(self, risen: StreamLog) -> None:
        cursor = self._by_log.get(risen)
        if cursor is not None:
            self._dirty[cursor] = None
            self._wake.set()

    # --- rounds

    async def _next_parts(self) -> list[tuple[_Cursor, TopicPart]]:
        """Return the content of the next round. Batches are read from the topics in turn, until the round is full."""
        events: dict[_Cursor, PickledEvents] = {}
        event_count = size_bytes = 0
        oldest_ms = sys.maxsize
        self._in_round = {}
        while self._dirty and event_count < ROUND_EVENTS and size_bytes < ROUND_BYTES:
            cursor = next(iter(self._dirty))
            del self._dirty[cursor]
            batch = await self._read_batch(cursor)
            if batch is None:
                self._stalled[cursor] = None
            elif batch:
                self._dirty[cursor] = self._in_round[cursor] = None  # the cursor is now the last of `_dirty`
                oldest_ms = min(oldest_ms, batch[0].timestamp_ms)
                events.setdefault(cursor, PickledEvents()).add(file_events(batch))
                event_count += len(batch)
                size_bytes += sum(event.size_bytes for event in batch)
            await asyncio.sleep(0)
        if event_count:
            self.oldest_waiting_ms = oldest_ms
        compared = list(islice(self._configs_to_check, ROUND_CONFIGS))
        for cursor in compared:
            del self._configs_to_check[cursor]
            cursor.schemas_text = schemas_text(self._schemas_of(cursor.topic_id))
        parts = [
            self._part(cursor, events.get(cursor, PickledEvents())) for cursor in {**events, **dict.fromkeys(compared)}
        ]
        return [part for part in parts if part is not None]

    def _part(self, cursor: _Cursor, events: PickledEvents) -> tuple[_Cursor, TopicPart] | None:
        # Use the reader's offset, because events that could not be read may follow the last event of the round.
        position = Position(cursor.topic_id.hex(), cursor.reader.next_offset)
        config = None
        if cursor.config != (position.next_offset, cursor.schemas_text):
            config = config_text(cursor.name, position.next_offset, cursor.schemas_text)
        return (cursor, TopicPart(cursor.name, position, events, config)) if len(events) or config is not None else None

    async def _read_batch(self, cursor: _Cursor) -> list[Event] | None:
        """Return the next events of a topic. Events that are damaged or no longer retained are skipped.

        Returns an empty list at the end of the topic, and None if the topic cannot be read at present.
        """
        while True:
            try:
                batch = cursor.reader.read(EVENTS_PER_READ, BYTES_PER_READ)
                if isinstance(batch, NotReady):
                    await batch.wait()
                    continue
                return batch
            except OffsetOutOfRange as error:
                self._skip(cursor, error.oldest, "are no longer retained")
            except Unreadable as error:
                self._skip(cursor, error.to_offset, "cannot be read")
            except KafkaError as error:
                if cursor.log.is_gone:
                    return []
                self._refuse(cursor.name, cursor.topic_id, f"{error}; reading is retried")
                return None

    def _skip(self, cursor: _Cursor, to_offset: int, why: str) -> None:
        first = cursor.reader.next_offset
        self.skipped_count += to_offset - first
        log.warning("events %d to %d of topic %s %s and get no files", first + 1, to_offset, cursor.name, why)
        cursor.reader = EventReader(cursor.log, to_offset)

    # --- missing files

    async def _find_missing(self, cursor: _Cursor) -> None:
        try:
            first, last = cursor.log.bounds().start + 1, cursor.next_offset
        except KafkaError:
            del self._unverified[cursor]  # the topic cannot be read, so missing files cannot be written again
            return
        found: list[Missing] = await self._run(
            with_lock, missing_events, self._files, self.directory, cursor.name, first, last
        )
        if found:
            count = sum(one.last - one.first + 1 for one in found)
            log.warning(
                "files of %d events of topic %s are missing in %s and are written again",
                count,
                cursor.name,
                self.directory,
            )
        self._missing.extend((cursor, one) for one in found)
        self._unverified.pop(cursor, None)

    async def _replace_missing(self, cursor: _Cursor, missing: Missing) -> None:
        """Write the next batch of missing files. The stored position of the topic does not change."""
        rereader = _Cursor(cursor.topic, missing.first - 1)
        batch = await self._read_batch(rereader) if self._cursors.get(cursor.name) is cursor else None
        events = file_events([event for event in batch or () if event.offset < missing.last])
        if events:
            position = Position(cursor.topic_id.hex(), cursor.next_offset)
            part = TopicPart(cursor.name, position, events)
            await self._run(with_lock, write_round, self._files, self.directory, [part])
            self.written_count += len(events)
        self._missing.popleft()
        if batch and rereader.reader.next_offset < missing.last:
            self._missing.appendleft((cursor, Missing(rereader.reader.next_offset + 1, missing.last)))

    async def _write(self, parts: list[tuple[_Cursor, TopicPart]]) -> None:
        live = [one for one in parts if not one[0].log.is_gone]
        if not live:
            return
        written = [part for _, part in live]
        await self._run(with_lock, write_round, self._files, self.directory, written)
        for cursor, part in live:
            cursor.next_offset = part.position.next_offset
            if part.config is not None:
                cursor.config = cursor.next_offset, cursor.schemas_text
            self._positions[cursor.name] = part.position
            self.written_count += len(part.events)
        self._in_round = {}


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until `event` is set, for at most this many seconds."""
    # `asyncio.wait_for` is not used, because it can lose a cancellation that arrives together with the timeout.
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()


def _is_event_topic(facts: TopicFacts) -> bool:
    return facts.configs.get(EVENTS_CONFIG, "").strip().lower() == "true"


def file_events(events: Sequence[Event]) -> list[FileEvent]:
    """Convert events of a topic to `FileEvent`s."""
    found = []
    known_ms, timestamp = -1, time_text(-1)
    for event in events:
        if event.timestamp_ms != known_ms:
            known_ms, timestamp = event.timestamp_ms, time_text(event.timestamp_ms)
        found.append(FileEvent(event.offset + 1, timestamp, event.type, event.data, event.metadata, event.key))
    return found
