"""The live files: a cursor on each topic of the event store, woken when it grows, that has its events written.

What is new of all topics goes into a round; one round at a time is written, beside the server, and what comes meanwhile
is in the next. A topic's position is durable with its files, so after a kill the cursor goes on where the files end.
Topics are followed by their ids: the files of one that was deleted go, and one made anew under its name begins anew.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from kwire.broker.catalogue import EVENTS_CONFIG, TopicFacts
from kwire.broker.events.event import Event, time_text
from kwire.broker.events.reading import PORTION_BYTES, PORTION_EVENTS, EventReader
from kwire.broker.store.files.layout import TOPIC_LENGTH_MAX, FileEvent, config_text, position_path, schemas_text
from kwire.broker.store.files.missing import Missing, missing_events
from kwire.broker.store.files.writing import (
    FolderTaken,
    Portions,
    Position,
    TopicPart,
    alone,
    begin_topic,
    open_root_alone,
    remove_some,
    remove_topic,
    write_round,
)
from kwire.broker.topics import Topic, Topics
from kwire.broker.worker_process import WorkerDied
from kwire.errors import KafkaError, OffsetOutOfRange
from kwire.streams.log import NotReady, StreamLog, Unreadable
from storage.errors import StorageError
from storage.files import Files

log = logging.getLogger("kwire.broker")

# What goes into one round; a portion more at most.
ROUND_EVENTS = 10_000
ROUND_BYTES = 8 * 1024 * 1024
# Topics of which only the description is looked at, and written if it has changed.
ROUND_CONFIGS = 200
# So often somebody looks for new topics.
LOOK_SECONDS = 0.5
NAMES_PER_TURN = 500
# After a failure; doubled each time.
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 30.0
# At the stop: how long what is left is worked on.
CLOSE_SECONDS = 10.0
REFUSALS_TOLD_MAX = 1000

# Runs a function of a module, with these arguments, where it holds up nobody: `WorkerProcess.run`.
Run = Callable[..., Awaitable[Any]]
# The schemas of the topic with this id, as they were registered; none if it is gone.
SchemasOf = Callable[[bytes], Sequence[Any]]


class _Cursor:
    """One topic. `next_offset` is where its files end, the reader may be ahead of it."""

    __slots__ = ("config", "log", "next_offset", "reader", "schemas_text", "topic", "topic_id")

    def __init__(self, topic: Topic, next_offset: int) -> None:
        self.topic = topic
        self.topic_id = topic.topic_id
        self.log = topic.stream()
        self.next_offset = next_offset
        self.reader = EventReader(self.log, next_offset)
        # Of the file that describes it: what it was made of, None before it was looked at in this run.
        self.config: tuple[int, bytes] | None = None
        self.schemas_text = b""

    @property
    def name(self) -> str:
        return self.topic.name

    def go_back(self) -> None:
        self.reader = EventReader(self.log, self.next_offset)


class EventFiles:
    """Used from the event loop.

    `written_count` counts events, `skipped_count` those that could not be read, `failure_count` what is tried again
    because of it. `refused_count` is how many topics get no files at present.
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
        """`owner` names this server for ever: a directory belongs to one."""
        self.directory = directory
        self.written_count = 0
        self.skipped_count = 0
        self.failure_count = 0
        self.refused_count = 0
        # The time of the oldest event that is known to wait for its file.
        self.oldest_waiting_ms: int | None = None
        self._owner = owner
        self._topics = topics
        self._schemas_of = schemas_of
        self._files = files
        self._run = run
        # By name, as the directory has them; of topics that have no cursor yet.
        self._positions: dict[str, Position | None] = {}
        self._cursors: dict[str, _Cursor] = {}
        self._by_log: dict[StreamLog, _Cursor] = {}
        self._dirty: dict[_Cursor, None] = {}
        # Those whose descriptions are looked at next; and who could not be read, for a while.
        self._unlooked: dict[_Cursor, None] = {}
        self._stalled: dict[_Cursor, None] = {}
        # Those whose files are being written.
        self._in_round: dict[_Cursor, None] = {}
        # Those of an earlier run whose files have not been counted yet; and what was found to be missing.
        self._uncounted: dict[_Cursor, None] = {}
        self._missing: deque[tuple[_Cursor, Missing]] = deque()
        self._refused: dict[str, bytes] = {}
        self._known_revision = -1
        # When those that were refused are tried again.
        self._refused_until = 0.0
        self._has_leftovers = True
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def behind_count(self) -> int:
        """How many events wait for their files."""
        waiting = self._dirty | self._stalled | self._in_round
        return sum(max(0, one.log.committed_end - one.next_offset) for one in waiting)

    async def open(self) -> None:
        """Begin. Raises WrongOwner if the directory is not this server's, OSError if it cannot be used."""
        self._positions = await self._run(open_root_alone, self._files, self.directory, self._owner)
        self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Write what is left, if that does not take long; the next start goes on with the rest."""
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
            cursor.log.unwatch(self._rose)

    async def caught_up(self) -> None:
        """Wait until everything that can be read now has its files, and what is gone has none."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(told)
        self._known_revision = -1
        self._wake.set()
        await told

    def schemas_changed(self, topic_id: bytes) -> None:
        """Its description is to be written anew."""
        topic = self._topics.get_by_id(topic_id)
        cursor = self._cursors.get(topic.name) if topic is not None else None
        if cursor is not None and cursor.topic_id == topic_id:
            self._unlooked[cursor] = None
            self._wake.set()

    # --- the work

    async def _work(self) -> None:
        retry_seconds = RETRY_SECONDS
        while True:
            waiting, self._idle = self._idle, []
            try:
                is_rest = await self._step()
            except (OSError, StorageError, KafkaError, WorkerDied) as error:
                self._idle = waiting + self._idle
                self.failure_count += 1
                log.error("events cannot be written to %s: %s; it is tried again", self.directory, error)
                self._start_over()
                if self._ending.is_set():
                    return
                # New events are no reason to try sooner.
                await _wait(self._ending, retry_seconds)
                retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)
                continue
            retry_seconds = RETRY_SECONDS
            if is_rest:
                self._idle = waiting + self._idle
                continue
            self.oldest_waiting_ms = None
            for told in waiting:
                if not told.done():
                    told.set_result(None)
            if self._ending.is_set():
                return
            await _wait(self._wake, LOOK_SECONDS)
            self._dirty |= self._stalled
            self._stalled = {}

    async def _step(self) -> bool:
        """Whether there is more to do."""
        self._wake.clear()
        await self._follow_topics()
        parts = await self._next_parts()
        if parts:
            await self._write(parts)
        elif not self._ending.is_set():
            # What can wait: the next start finds it again.
            if self._missing:
                await self._replace_missing(*self._missing[0])
            elif self._uncounted:
                await self._find_missing(next(iter(self._uncounted)))
            elif self._has_leftovers:
                self._has_leftovers = await self._run(alone, remove_some, self._files, self.directory)
        is_rest = bool(self._has_leftovers or self._missing or self._uncounted) and not self._ending.is_set()
        return is_rest or bool(self._dirty or self._unlooked) or self._known_revision != self._topics.catalogue.revision

    def _start_over(self) -> None:
        """Read again from where the files end, and describe anew."""
        for cursor in self._cursors.values():
            if cursor.reader.next_offset != cursor.next_offset:
                cursor.go_back()
                self._dirty[cursor] = None
            if cursor.config != (cursor.next_offset, cursor.schemas_text):
                self._unlooked[cursor] = None

    # --- which topics there are

    async def _follow_topics(self) -> None:
        catalogue, now = self._topics.catalogue, asyncio.get_running_loop().time()
        is_retry = self.refused_count > 0 and now >= self._refused_until
        if catalogue.revision == self._known_revision and not is_retry:
            return
        revision = catalogue.revision
        found = await self._event_topics()
        for name, cursor in list(self._cursors.items()):
            if found.get(name) != cursor.topic_id and catalogue.name_of(cursor.topic_id) is None:
                self._drop(cursor)
                await self._remove(name, cursor.topic_id.hex())
        for name, position in list(self._positions.items()):
            if name in self._cursors or position is None:
                continue
            topic_id = bytes.fromhex(position.topic_id)
            if found.get(name) != topic_id and catalogue.name_of(topic_id) is None:
                await self._remove(name, position.topic_id)
        for name, topic_id in found.items():
            if name not in self._cursors:
                await self._take(name, topic_id)
        self.refused_count = sum(name not in self._cursors for name in found)
        self._refused_until = now + RETRY_SECONDS_MAX
        self._known_revision = revision

    async def _event_topics(self) -> dict[str, bytes]:
        """Names and ids; others get their turn meanwhile."""
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

    async def _take(self, name: str, topic_id: bytes) -> None:
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return  # gone again: the catalogue has another revision
        try:
            position = await self._position_of(topic)
        except (KafkaError, StorageError, FolderTaken) as error:
            self._refuse(name, topic_id, str(error))
            return
        cursor = self._cursors[name] = self._by_log[topic.stream()] = _Cursor(topic, position.next_offset)
        self._uncounted[cursor] = None
        cursor.log.watch(self._rose)
        self._dirty[cursor] = self._unlooked[cursor] = None

    async def _position_of(self, topic: Topic) -> Position:
        name, topic_id = topic.name, topic.topic_id.hex()
        if len(name) > TOPIC_LENGTH_MAX:
            raise FolderTaken(f"its name is longer than {TOPIC_LENGTH_MAX} characters")
        bounds = topic.stream().bounds()
        if name not in self._positions:
            position = Position(topic_id, bounds.start)
            await self._run(alone, begin_topic, self._files, self.directory, name, position)
            self._positions[name] = position
            return position
        known = self._positions[name]
        if known is None or known.topic_id != topic_id or known.next_offset > bounds.end:
            raise FolderTaken(f"its files are not those of its log: move them and {position_path(name)} away")
        return known

    def _refuse(self, name: str, topic_id: bytes, reason: str) -> None:
        """Say it once for each topic."""
        if self._refused.get(name) == topic_id:
            return
        if len(self._refused) >= REFUSALS_TOLD_MAX:
            self._refused.clear()
        self._refused[name] = topic_id
        log.error("events of %s get no files in %s: %s", name, self.directory, reason)

    def _drop(self, cursor: _Cursor) -> None:
        cursor.log.unwatch(self._rose)
        del self._cursors[cursor.name]
        del self._by_log[cursor.log]
        for those in (self._dirty, self._unlooked, self._stalled, self._in_round, self._uncounted):
            those.pop(cursor, None)

    async def _remove(self, name: str, topic_id: str) -> None:
        await self._run(alone, remove_topic, self._files, self.directory, name, topic_id)
        self._positions.pop(name, None)
        self._has_leftovers = True

    def _rose(self, risen: StreamLog) -> None:
        cursor = self._by_log.get(risen)
        if cursor is not None:
            self._dirty[cursor] = None
            self._wake.set()

    # --- rounds

    async def _next_parts(self) -> list[tuple[_Cursor, TopicPart]]:
        """What the next round writes: a portion of each topic in turn, until there is enough."""
        events: dict[_Cursor, Portions] = {}
        event_count = size_bytes = 0
        oldest_ms = sys.maxsize
        self._in_round = {}
        while self._dirty and event_count < ROUND_EVENTS and size_bytes < ROUND_BYTES:
            cursor = next(iter(self._dirty))
            del self._dirty[cursor]
            portion = await self._portion(cursor)
            if portion is None:
                self._stalled[cursor] = None
            elif portion:
                self._dirty[cursor] = self._in_round[cursor] = None  # behind the others
                oldest_ms = min(oldest_ms, portion[0].timestamp_ms)
                events.setdefault(cursor, Portions()).add(file_events(portion))
                event_count += len(portion)
                size_bytes += sum(event.size_bytes for event in portion)
            await asyncio.sleep(0)
        if event_count:
            self.oldest_waiting_ms = oldest_ms
        looked = list(islice(self._unlooked, ROUND_CONFIGS))
        for cursor in looked:
            del self._unlooked[cursor]
            cursor.schemas_text = schemas_text(self._schemas_of(cursor.topic_id))
        parts = [self._part(cursor, events.get(cursor, Portions())) for cursor in {**events, **dict.fromkeys(looked)}]
        return [part for part in parts if part is not None]

    def _part(self, cursor: _Cursor, events: Portions) -> tuple[_Cursor, TopicPart] | None:
        # Where something could not be read the reader is further than the last event.
        position = Position(cursor.topic_id.hex(), cursor.reader.next_offset)
        config = None
        if cursor.config != (position.next_offset, cursor.schemas_text):
            config = config_text(cursor.name, position.next_offset, cursor.schemas_text)
        return (cursor, TopicPart(cursor.name, position, events, config)) if len(events) or config is not None else None

    async def _portion(self, cursor: _Cursor) -> list[Event] | None:
        """The next events of a topic; none if that is all, None if nothing can be read just now."""
        while True:
            try:
                portion = cursor.reader.read(PORTION_EVENTS, PORTION_BYTES)
                if isinstance(portion, NotReady):
                    await portion.wait()
                    continue
                return portion
            except OffsetOutOfRange as error:
                self._skip(cursor, error.oldest, "are older than what the topic keeps")
            except Unreadable as error:
                self._skip(cursor, error.to_offset, "cannot be read")
            except KafkaError as error:
                if cursor.log.is_gone:
                    return []
                self._refuse(cursor.name, cursor.topic_id, f"{error}; it is tried again")
                return None

    def _skip(self, cursor: _Cursor, to_offset: int, why: str) -> None:
        first = cursor.reader.next_offset
        self.skipped_count += to_offset - first
        log.warning("events %d to %d of %s %s: they get no files", first + 1, to_offset, cursor.name, why)
        cursor.reader = EventReader(cursor.log, to_offset)

    # --- files that somebody removed

    async def _find_missing(self, cursor: _Cursor) -> None:
        try:
            first, last = cursor.log.bounds().start + 1, cursor.next_offset
        except KafkaError:
            del self._uncounted[cursor]  # nothing could be made anew from it
            return
        found: list[Missing] = await self._run(
            alone, missing_events, self._files, self.directory, cursor.name, first, last
        )
        if found:
            count = sum(one.last - one.first + 1 for one in found)
            log.warning(
                "files of %d events of %s are gone from %s: they are made anew", count, cursor.name, self.directory
            )
        self._missing.extend((cursor, one) for one in found)
        self._uncounted.pop(cursor, None)

    async def _replace_missing(self, cursor: _Cursor, missing: Missing) -> None:
        """Write the next portion of them; the position stays where it is."""
        again = _Cursor(cursor.topic, missing.first - 1)
        portion = await self._portion(again) if self._cursors.get(cursor.name) is cursor else None
        events = file_events([event for event in portion or () if event.offset < missing.last])
        if events:
            position = Position(cursor.topic_id.hex(), cursor.next_offset)
            part = TopicPart(cursor.name, position, events)
            await self._run(alone, write_round, self._files, self.directory, [part])
            self.written_count += len(events)
        self._missing.popleft()
        if portion and again.reader.next_offset < missing.last:
            self._missing.appendleft((cursor, Missing(again.reader.next_offset + 1, missing.last)))

    async def _write(self, parts: list[tuple[_Cursor, TopicPart]]) -> None:
        live = [one for one in parts if not one[0].log.is_gone]
        if not live:
            return
        written = [part for _, part in live]
        await self._run(alone, write_round, self._files, self.directory, written)
        for cursor, part in live:
            cursor.next_offset = part.position.next_offset
            if part.config is not None:
                cursor.config = cursor.next_offset, cursor.schemas_text
            self._positions[cursor.name] = part.position
            self.written_count += len(part.events)
        self._in_round = {}


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until it is set, or for so long."""
    # Not `wait_for`, which can lose a cancellation that comes with the end of its time.
    told = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([told], timeout=seconds)
    finally:
        told.cancel()


def _is_event_topic(facts: TopicFacts) -> bool:
    return facts.configs.get(EVENTS_CONFIG, "").strip().lower() == "true"


def file_events(events: Sequence[Event]) -> list[FileEvent]:
    """Events of a topic as their files say them."""
    found = []
    known_ms, timestamp = -1, time_text(-1)
    for event in events:
        if event.timestamp_ms != known_ms:
            known_ms, timestamp = event.timestamp_ms, time_text(event.timestamp_ms)
        found.append(FileEvent(event.offset + 1, timestamp, event.type, event.data, event.metadata, event.key))
    return found
