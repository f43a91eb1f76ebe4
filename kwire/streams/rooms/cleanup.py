"""Rooms that nobody uses go: a round over all of them now and then, a few per loop turn.

A room goes when for `kwire.rooms.inactive.timeout.hours` it had no event, no subscriber and nobody who read it, and no
group has committed offsets in it or was defined to read it (nor anybody else counts on it: `is_in_use` says so). Rooms
only: whatever was made as a topic stays.

- An event leaves its mark as the time at which the files were written, whether the log is open or not: a thread looks.
  It counts when the record came, not what time it claims. A room without files has had no event, or has lost all of
  them to its retention; it is as old as the room.
- Every read, by Kafka's protocol or over HTTP, sets a flag of the partition (`Partition.is_fetched`). The flag is reset
  and noted with the time at each round, or when the log is parked, so no read is noted too early.
- From the moment at which a room is judged for the last time it takes no events: none is acknowledged and then deleted
  with it. Rooms go in portions, each with one commit of the catalogue.
- These notes end with the process. What was noted is handed over at a clean stop; after a kill nobody knows who has
  read, and every room counts as read at the start.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.broker.catalogue import TopicFacts
from kwire.broker.rooms.handover import HANDOVER_KEY
from kwire.broker.rooms.rooms import Rooms, Subscribers
from kwire.broker.topics import Topic, Topics
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, MetaStore
from storage.errors import StorageError
from storage.files import Files

log = logging.getLogger("kwire.broker")

# To see that a room is in use takes some microseconds; after this many the loop gets its turn.
NAMES_PER_TURN = 50
# To look at a folder takes some twenty microseconds when the system has it in memory, and a read of the disk when not;
# to ask all shards of groups for a topic takes as long. The pause keeps a node with a hundred thousand rooms from doing
# nothing else.
FOLDERS_PER_PORTION = 25
PORTION_PAUSE_SECONDS = 0.01
# A flag is taken back in a fraction of a microsecond.
PARTITIONS_PER_TURN = 2000
LOG_SUFFIX = ".log"
# How many rooms the note for the next start may name.
HANDOVER_ROOMS_MAX = 10_000
NEVER_MS = -1
CHANGED_MEANWHILE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT)


class StoredFolders(Protocol):
    """Where logs are: the store."""

    @property
    def offline_dirs(self) -> Collection[str]: ...

    def path_of(self, folder: str) -> str | None: ...


class _Candidate(NamedTuple):
    """A room without readers; it may have had events, which its files tell, as far as `mark`."""

    name: str
    topic_id: bytes
    path: str | None
    mark: tuple[bool, int]


class RoomCleanup:
    """Called from the event loop. `removed_count` and `failures` tell what has been done since the start.

    `is_in_use` is asked of a topic's name; it answers for groups, webhooks and whoever else keeps a place in a topic.
    Until it can answer it raises KafkaError, and the round ends.
    """

    def __init__(
        self,
        rooms: Rooms,
        topics: Topics,
        subscribers: Subscribers,
        clock: Clock,
        stored: StoredFolders,
        files: Files,
        is_in_use: Callable[[str], bool],
        fetched_before: Mapping[str, int] | None,
    ) -> None:
        """`fetched_before` is what `handed_over` found: None if nobody knows what clients have read."""
        self._rooms = rooms
        self._topics = topics
        self._subscribers = subscribers
        self._clock = clock
        self._stored = stored
        self._files = files
        self._is_in_use = is_in_use
        # Before this nobody knows who has read what.
        self._known_since_ms = clock.now_ms() if fetched_before is None else 0
        topics.room_fetches.update(fetched_before or {})
        # When a room was last seen with subscribers, by its topic's name.
        self._subscribed: dict[str, int] = {}
        self.removed_count = 0
        self.failures = 0
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    def close(self) -> None:
        self._task.cancel()

    async def hand_over(self, metastore: MetaStore) -> None:
        """Leave a note of which rooms were used for the next start. For a clean stop, after the last request."""
        await self._note_fetches()
        used = dict(self._topics.room_fetches)
        for name, seen_ms in self._subscribed.items():
            used[name] = max(seen_ms, used.get(name, 0))
        if len(used) <= HANDOVER_ROOMS_MAX:
            entry = metastore.get(HANDOVER_KEY)
            try:
                await metastore.commit([Change(HANDOVER_KEY, used, entry.revision if entry else 0)])
            except StorageError:
                # The next start takes every room for one that was read just now.
                log.exception("it could not be noted which rooms clients have read")

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._rooms.config.cleanup_interval_ms / 1000)
            try:
                await self.round()
            except Exception:
                self.failures += 1
                log.exception("a clean-up of rooms failed")

    # --- a round

    async def round(self) -> None:
        """Look at every room once, and delete those that nobody uses."""
        timeout_ms = self._rooms.config.inactive_timeout_ms
        await self._note_fetches()
        # Where rooms are switched off nobody can use them. In a directory that is offline there may be anything.
        is_wanted = timeout_ms != NEVER_MS and self._rooms.is_delete_allowed and self._rooms.config.is_enabled
        if not is_wanted or self._stored.offline_dirs:
            return
        limit_ms = self._clock.now_ms() - timeout_ms
        await self._forget(limit_ms)
        if self._known_since_ms > limit_ms:
            return
        catalogue = self._topics.catalogue
        last, found = "", list[_Candidate]()
        try:
            while names := catalogue.rooms_from(last, NAMES_PER_TURN):
                last = names[-1] + "\0"
                for name in names:
                    facts = catalogue.find(name)
                    if facts is not None and self._is_idle(facts, limit_ms):
                        path = self._stored.path_of(_folder(name))
                        found.append(_Candidate(name, facts.topic_id, path, self._mark(name)))
                while len(found) >= FOLDERS_PER_PORTION:
                    some, found = found[:FOLDERS_PER_PORTION], found[FOLDERS_PER_PORTION:]
                    await self._judge(some, limit_ms)
                    await asyncio.sleep(PORTION_PAUSE_SECONDS)
                await asyncio.sleep(0)
            await self._judge(found, limit_ms)
        except KafkaError as error:
            # Groups are still being loaded, or the catalogue takes no changes: the next round tries again.
            self.failures += 1
            log.warning("a clean-up of rooms ended early: %s", error)

    def _is_idle(self, facts: TopicFacts, limit_ms: int) -> bool:
        """Whether no reader speaks for a room; notes who reads it now."""
        if not facts.is_room or facts.partition_count != 1 or facts.created_ms > limit_ms:
            return False
        name = facts.name
        topic = self._topics.live(name)
        if topic is not None:
            if any(map(self._subscribers.count_of, topic.streams_in_use)):
                self._subscribed[name] = self._clock.now_ms()
                return False
            partition = topic.partitions[0]
            if partition.is_fetched:
                self._topics.note_fetch(partition)
                return False
        return name not in self._subscribed and name not in self._topics.room_fetches

    async def _judge(self, candidates: Sequence[_Candidate], limit_ms: int) -> None:
        """Delete those of them that had no event either, with one commit."""
        if not candidates:
            return
        written = await self._topics.lanes.survey.run(lambda: [self._written_ms(one.path) for one in candidates])
        idle = dict[Topic, _Candidate]()
        for one, written_ms in zip(candidates, written, strict=True):
            if written_ms <= limit_ms and not self._is_in_use(one.name):
                topic = self._topics.get(one.name)
                if topic is not None and topic.topic_id == one.topic_id:
                    idle[topic] = one

        def is_idle(topic: Topic) -> bool:
            is_same = self._topics.live(topic.name) is topic
            is_quiet = is_same and self._mark(topic.name) == idle[topic].mark and self._is_idle(topic.facts, limit_ms)
            return is_quiet and not self._is_in_use(topic.name)

        if not idle:
            return
        try:
            removed = await self._rooms.clean_up(list(idle), is_idle)
        except KafkaError as error:
            if error.code not in CHANGED_MEANWHILE:
                raise
            # Somebody deletes or changes one of them at this very moment: the next round looks at all of them again.
            return
        self.removed_count += len(removed)
        for topic in removed:
            log.info("removed the room %s: nobody has used it for a while", topic.name)

    def _mark(self, name: str) -> tuple[bool, int]:
        """Another one after every append: a log that is not open was not written to, or is longer than it was."""
        topic = self._topics.live(name)
        if topic is not None and topic.partitions[0].is_open:
            return True, topic.partitions[0].appended_bytes
        return False, self._topics.stored_bytes.get(_folder(name), 0)

    def _written_ms(self, path: str | None) -> int:
        """In the thread. When the last record came at the latest; 0 if there is none."""
        if path is None:
            return 0
        try:
            names = [name for name in self._files.listdir(path) if name.endswith(LOG_SUFFIX)]
            return max((self._files.modified_ms_of(os.path.join(path, name)) for name in names), default=0)
        except OSError:
            return self._clock.now_ms()  # deleted meanwhile, or not readable: it stays

    # --- notes

    async def _note_fetches(self) -> None:
        """Take down what was read since the last time."""
        opened = list(self._topics.open_partitions)
        for first in range(0, len(opened), PARTITIONS_PER_TURN):
            for partition in opened[first : first + PARTITIONS_PER_TURN]:
                if partition.is_fetched:
                    self._topics.note_fetch(partition)
            await asyncio.sleep(0)

    async def _forget(self, limit_ms: int) -> None:
        """Let go of notes that count no more; a note lasts for the timeout, whether its room is still there or not."""
        for notes in (self._topics.room_fetches, self._subscribed):
            names = list(notes)
            for first in range(0, len(names), PARTITIONS_PER_TURN):
                for name in names[first : first + PARTITIONS_PER_TURN]:
                    if notes[name] <= limit_ms:
                        del notes[name]
                await asyncio.sleep(0)


def _folder(name: str) -> str:
    return f"{name}-0"
