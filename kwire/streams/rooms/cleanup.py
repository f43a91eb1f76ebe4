"""RoomCleanup: deletes rooms that have not been used for a while, in periodic rounds over all rooms.

A room is deleted if it had no event, no subscriber and no read for `kwire.rooms.inactive.timeout.hours`, and if
`is_in_use` returns False for it. A room is in use if a group has committed offsets in it, if the stored definition of a
group names it, or if a webhook reads it. Topics that were not created as rooms are never deleted.

- Events: the time of the last event is the modification time of the log's files, which a thread reads. This is the
  time at which the event arrived, not the record's timestamp. A room without files has had no event, or retention has
  deleted all events. For such a room, only the time of its creation counts.
- Reads: each read, over Kafka's protocol or HTTP, sets the flag `Partition.is_fetched`. A round clears the flag and
  records the current time as the time of the read. The same happens when a log is parked. So the recorded time is never
  earlier than the read.
- After the last check before its deletion, a room accepts no events, so no event is acknowledged and then deleted.
  Rooms are deleted in batches, each with one commit of the catalogue.
- The recorded activity is in memory. A clean stop saves it for the next start (`saved_activity`). After a crash the
  times of earlier reads are not known, and every room is treated as read at the start of the server.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.topics import Topic, Topics
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import MetaStore
from kwire.streams.rooms.interface import Subscribers
from kwire.streams.rooms.rooms import Rooms
from kwire.streams.rooms.saved_activity import save_activity
from storage.disk.files import Files
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

# The number of rooms that are checked in one iteration of the event loop. A check takes a few microseconds.
NAMES_PER_ITERATION = 50
# The number of folders that are listed between two pauses. Listing a folder takes about 20 microseconds if the system
# has cached it, and a disk read otherwise. `is_in_use` searches all group shards, which takes about as long. The pauses
# limit the load on a node with a hundred thousand rooms.
FOLDERS_PER_BATCH = 25
BATCH_PAUSE_SECONDS = 0.01
# The number of partitions or rooms whose recorded activity is updated in one iteration of the event loop. Each takes a
# fraction of a microsecond.
PARTITIONS_PER_ITERATION = 2000
LOG_SUFFIX = ".log"
NEVER_MS = -1
CHANGED_MEANWHILE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT)


class StoredFolders(Protocol):
    """The folders of logs in the data directories."""

    @property
    def offline_dirs(self) -> Collection[str]: ...

    def path_of(self, folder: str) -> str | None: ...


class _Candidate(NamedTuple):
    """A room without recent readers, whose files are checked for recent events.

    If the room's write state differs from `write_state` later, the room has had an event in the meantime.
    """

    name: str
    topic_id: bytes
    path: str | None
    write_state: tuple[bool, int]


class RoomCleanup:
    """The background task that deletes unused rooms. Use it only in the event loop's thread.

    `removed_count` is the number of deleted rooms and `failures` the number of failed rounds, both since the start.
    `is_in_use` takes a topic's name and returns whether a group, a webhook or another consumer keeps a position in the
    topic. While this is not known yet, `is_in_use` raises KafkaError, and the round ends.
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
        """`fetched_before` is the activity that `load_activity` returned, or None if earlier reads are not known."""
        self._rooms = rooms
        self._topics = topics
        self._subscribers = subscribers
        self._clock = clock
        self._stored = stored
        self._files = files
        self._is_in_use = is_in_use
        # Reads before this time are not known.
        self._known_since_ms = clock.now_ms() if fetched_before is None else 0
        topics.room_fetches.update(fetched_before or {})
        # By topic name: the last time at which a round found subscribers of the room.
        self._subscribed: dict[str, int] = {}
        self.removed_count = 0
        self.failures = 0
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    def close(self) -> None:
        self._task.cancel()

    async def save_activity(self, metastore: MetaStore) -> None:
        """Save the time of the last use of each room for the next start.

        Called at a clean stop, after the last request.
        """
        await self._record_fetches()
        used = dict(self._topics.room_fetches)
        for name, seen_ms in self._subscribed.items():
            used[name] = max(seen_ms, used.get(name, 0))
        try:
            await save_activity(metastore, used)
        except StorageError:
            log.exception("room activity could not be saved; after the next start every room counts as just used")

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._rooms.config.cleanup_interval_ms / 1000)
            try:
                await self.round()
            except Exception:
                self.failures += 1
                log.exception("a clean-up round of rooms failed")

    # --- a round

    async def round(self) -> None:
        """Check every room once, and delete the unused ones."""
        timeout_ms = self._rooms.config.inactive_timeout_ms
        await self._record_fetches()
        # While rooms are disabled, clients cannot use them, so unused rooms must not be deleted. An offline directory
        # may hold events of rooms that seem to be empty.
        is_wanted = timeout_ms != NEVER_MS and self._rooms.is_delete_allowed and self._rooms.config.is_enabled
        if not is_wanted or self._stored.offline_dirs:
            return
        limit_ms = self._clock.now_ms() - timeout_ms
        await self._expire_activity(limit_ms)
        if self._known_since_ms > limit_ms:
            return
        catalogue = self._topics.catalogue
        last, found = "", list[_Candidate]()
        try:
            while names := catalogue.rooms_from(last, NAMES_PER_ITERATION):
                last = names[-1] + "\0"
                for name in names:
                    facts = catalogue.find(name)
                    if facts is not None and self._is_idle(facts, limit_ms):
                        path = self._stored.path_of(_folder(name))
                        found.append(_Candidate(name, facts.topic_id, path, self._write_state(name)))
                while len(found) >= FOLDERS_PER_BATCH:
                    some, found = found[:FOLDERS_PER_BATCH], found[FOLDERS_PER_BATCH:]
                    await self._delete_idle(some, limit_ms)
                    await asyncio.sleep(BATCH_PAUSE_SECONDS)
                await asyncio.sleep(0)
            await self._delete_idle(found, limit_ms)
        except KafkaError as error:
            # Groups are still being loaded, or the catalogue accepts no changes: the next round tries again.
            self.failures += 1
            log.warning("a clean-up round of rooms ended early and will be repeated: %s", error)

    def _is_idle(self, facts: TopicFacts, limit_ms: int) -> bool:
        """Return whether a room was created before `limit_ms` and has had no reader since. Records current readers."""
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

    async def _delete_idle(self, candidates: Sequence[_Candidate], limit_ms: int) -> None:
        """Delete the candidates that have had no event since `limit_ms`, with one commit."""
        if not candidates:
            return
        written = await self._topics.lanes.survey.run(lambda: [self._last_write_ms(one.path) for one in candidates])
        idle = dict[Topic, _Candidate]()
        for one, written_ms in zip(candidates, written, strict=True):
            if written_ms <= limit_ms and not self._is_in_use(one.name):
                topic = self._topics.get(one.name)
                if topic is not None and topic.topic_id == one.topic_id:
                    idle[topic] = one

        def is_idle(topic: Topic) -> bool:
            is_same = self._topics.live(topic.name) is topic
            is_quiet = (
                is_same
                and self._write_state(topic.name) == idle[topic].write_state
                and self._is_idle(topic.facts, limit_ms)
            )
            return is_quiet and not self._is_in_use(topic.name)

        if not idle:
            return
        try:
            removed = await self._rooms.clean_up(list(idle), is_idle)
        except KafkaError as error:
            if error.code not in CHANGED_MEANWHILE:
                raise
            # A client has deleted or changed one of the rooms at the same time. The next round checks all rooms again.
            return
        self.removed_count += len(removed)
        for topic in removed:
            log.info("deleted the room %s: it has not been used for a while", topic.name)

    def _write_state(self, name: str) -> tuple[bool, int]:
        """Return a value that changes with every append.

        It is (True, appended bytes) for an open log, and (False, stored bytes) for a closed one.
        """
        topic = self._topics.live(name)
        if topic is not None and topic.partitions[0].is_open:
            return True, topic.partitions[0].appended_bytes
        return False, self._topics.stored_bytes.get(_folder(name), 0)

    def _last_write_ms(self, path: str | None) -> int:
        """Return an upper bound for the arrival time of the last record; 0 if there is none. Called in a thread."""
        if path is None:
            return 0
        try:
            names = [name for name in self._files.listdir(path) if name.endswith(LOG_SUFFIX)]
            return max((self._files.modified_ms_of(os.path.join(path, name)) for name in names), default=0)
        except OSError:
            return self._clock.now_ms()  # deleted meanwhile, or unreadable: the room is kept

    # --- recorded activity

    async def _record_fetches(self) -> None:
        """Record which partitions were read since the last call, and clear their read flags."""
        opened = list(self._topics.open_partitions)
        for first in range(0, len(opened), PARTITIONS_PER_ITERATION):
            for partition in opened[first : first + PARTITIONS_PER_ITERATION]:
                if partition.is_fetched:
                    self._topics.note_fetch(partition)
            await asyncio.sleep(0)

    async def _expire_activity(self, limit_ms: int) -> None:
        """Delete recorded activity that is older than `limit_ms`, also of rooms that no longer exist."""
        for last_use in (self._topics.room_fetches, self._subscribed):
            names = list(last_use)
            for first in range(0, len(names), PARTITIONS_PER_ITERATION):
                for name in names[first : first + PARTITIONS_PER_ITERATION]:
                    if last_use[name] <= limit_ms:
                        del last_use[name]
                await asyncio.sleep(0)


def _folder(name: str) -> str:
    return f"{name}-0"
