"""The topics of this node: the catalogue lists all of them, and topics in use have live objects.

A topic is created, extended with partitions, configured or deleted by one compare-and-set in the metadata store. The
live objects change once that is durable. Callers check the client's permission first.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from kwire.access.audit.entries import NO_AUDIT, TOPIC, Audit, changed_names
from kwire.broker.partition import UNKNOWN_EPOCH, Partition, Syncs
from kwire.broker.partition.opening import cut_damaged_end, open_log
from kwire.broker.topics.catalogue import (
    ADDED_PER_COMMIT_MAX,
    EVENTS_TOPIC,
    HIDDEN_TOPICS,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PROTECTED_TOPICS,
    REMOVED_PER_COMMIT_MAX,
    TRANSACTIONS_TOPIC,
    Catalogue,
    TopicFacts,
    collision_key,
    entry_value,
)
from kwire.broker.topics.complete_changes import run_in_portions, run_to_end
from kwire.broker.topics.deletion_notes import DeletionNotes
from kwire.broker.topics.full_disk import commit_with_reserve
from kwire.broker.topics.internal_topics import internal_topic
from kwire.broker.topics.names import check_name, check_partition_count
from kwire.broker.topics.offset_marks import OffsetMarks
from kwire.broker.topics.streams import OpenStream, TopicStreams
from kwire.broker.topics.topic_traffic import TopicTraffic
from kwire.clock import Clock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import Config, InvalidConfig
from kwire.config.resources import topic as topic_config
from kwire.config.resources.topic import TopicSettings
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, MetaStore
from storage.data_directory.directories import LogDirectories
from storage.errors import PartitionOffline, StorageError
from storage.log.deletion import LogDeletion, end_background_work, run_all

__all__ = [
    "EVENTS_TOPIC",
    "METADATA_TOPIC",
    "OFFSETS_TOPIC",
    "TRANSACTIONS_TOPIC",
    "NewTopic",
    "Topic",
    "Topics",
    "protected_topic",
]

log = logging.getLogger("kwire.broker")

R = TypeVar("R")

# Kafka stores its metadata in a log of this name. A topic of that name would confuse Kafka's tools.
METADATA_TOPIC = "__cluster_metadata"
# Closing a log and renaming its folder take 0.2 ms each. After this many logs, the event loop runs other work.
DELETIONS_PER_CHUNK = 10
# Configuring a partition takes microseconds. After this many partitions, the event loop runs other work.
SETTINGS_PER_CHUNK = 500
# No rooms are created while more logs are open than this multiple of `kwire.log.open.max`.
OPEN_LOGS_FACTOR_MAX = 2
# The number of different parsed settings that are cached. Topics with the same settings share one object.
SHARED_SETTINGS_MAX = 1000

_INTERNAL_COLLISION_KEYS = {collision_key(name): name for name in INTERNAL_TOPICS}


class Topic(TopicStreams):
    """A live topic: its partitions and its parsed settings. `facts` is its entry in the catalogue.

    The object exists as long as code refers to it, to one of its partitions or to one of their open logs. So there is
    never a second object for the same topic.
    """

    __slots__ = (
        "__weakref__",
        "facts",
        "is_hidden",
        "is_internal",
        "is_protected",
        "is_server_owned",
        "name",
        "revision",
        "settings",
    )

    def __init__(self, facts: TopicFacts, settings: TopicSettings, open_stream: OpenStream) -> None:
        super().__init__(open_stream)
        self.facts = facts
        self.name = facts.name
        self.topic_id = facts.topic_id
        self.is_internal = facts.is_internal
        # Whether only the server itself may read the topic.
        self.is_hidden = facts.name in HIDDEN_TOPICS
        # Whether every change by a client is refused with TOPIC_AUTHORIZATION_FAILED, whatever the client's rights are.
        self.is_protected = facts.name in PROTECTED_TOPICS
        # Whether only the server itself may write to the topic and delete from it.
        self.is_server_owned = self.is_internal or self.is_protected
        self.settings = settings
        # Incremented when the topic's settings change and when the topic is deleted. Code that caches values that it
        # derived from the topic then computes them again.
        self.revision = 0
        self.partitions: list[Partition] = []

    @property
    def configs(self) -> Mapping[str, str]:
        """The settings that were set on the topic itself."""
        return self.facts.configs

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def protected_topic(name: str) -> KafkaError:
    """Return the error of a request that would change a protected topic."""
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"Topic '{name}' can only be changed by the server.")


class NewTopic(Struct, frozen=True):
    """A topic to be created. `Topics.check` checks whether a client may create it."""

    name: str
    partition_count: int
    configs: Mapping[str, str]
    # If this is None, the topic gets a random id.
    topic_id: bytes | None = None


class Topics:
    """All topics by name and by id. Lookups read only memory. Changes are async, and durable when they return.

    A change that has begun is completed even if its caller is cancelled, so that the live objects always agree with the
    catalogue. `open_partitions` are the partitions whose log is open, in the order of their last opening or their last
    call of `touch`. `stored_bytes` contains the sizes of logs that are not open and have been measured, by folder
    name.
    """

    def __init__(
        self,
        metastore: MetaStore,
        store: LogDirectories,
        config: Config,
        clock: Clock,
        leader_epoch: int,
        syncs: Syncs,
        lanes: DiskLanes,
        open_stream: OpenStream,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._store = store
        self._audit = audit
        self.lanes = lanes
        self._syncs = syncs
        self._open_stream = open_stream
        self._config = config
        self._clock = clock
        self._shared_settings: dict[frozenset[tuple[str, str]], TopicSettings] = {}
        self._live: WeakValueDictionary[str, Topic] = WeakValueDictionary()
        self._live_by_id: WeakValueDictionary[bytes, Topic] = WeakValueDictionary()
        self._creating = asyncio.Lock()
        self.leader_epoch = leader_epoch
        self.open_partitions: dict[Partition, None] = {}
        # The number of deletions so far. Code that caches partitions looks them up again when the number has changed.
        self.deletion_count = 0
        # Called after a log was opened, and after `touch`, to enforce the limit on open logs.
        self.on_opened: Callable[[], None] | None = None
        # The folder names of logs that were opened, while a snapshot is made; else None.
        self.opened_folders: set[str] | None = None
        self.is_parking_paused = False
        self.stored_bytes: dict[str, int] = {}
        # The folder names of the offline partitions that have been logged.
        self._reported_offline: set[str] = set()
        # The time of the last read of each room, by topic name. The clean-up of rooms removes old entries.
        self.room_fetches: dict[str, int] = {}
        # By topic name: a function that returns the first offset that retention must keep for the event store.
        self.retained_from: dict[str, Callable[[], int]] = {}
        self.traffic = TopicTraffic(config.metrics.topics_max)
        self.marks = OffsetMarks(metastore)
        self.deletion_notes = DeletionNotes(metastore, store)
        self.catalogue = Catalogue(metastore, self._check_stored, self.deletion_notes)

    def __iter__(self) -> Iterator[Topic]:
        """Iterate over all topics. Each becomes live. Code that needs only catalogue entries uses `catalogue.facts`."""
        for name in self.catalogue.names():
            topic = self.get(name)
            if topic is not None:
                yield topic

    def __len__(self) -> int:
        return len(self.catalogue)

    @property
    def live_count(self) -> int:
        """The number of live topics."""
        return len(self._live)

    def get(self, name: str) -> Topic | None:
        topic = self._live.get(name)
        if topic is None:
            facts = self.catalogue.find(name)
            if facts is not None:
                topic = self._make_live(facts)
        return topic

    def leader_of(self, name: str, index: int, client_epoch: int = UNKNOWN_EPOCH) -> Partition:
        """Return the partition. Raises KafkaError unless it exists and this node leads it in the client's epoch."""
        partition = self.find_partition(name, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        partition.check_leader(client_epoch)
        return partition

    def find_partition(self, name: str, index: int) -> Partition | None:
        topic = self.get(name)
        return topic.partition(index) if topic is not None else None

    def live(self, name: str) -> Topic | None:
        """Return the topic if it is live. Unlike `get`, this does not make it live."""
        return self._live.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        topic = self._live_by_id.get(topic_id)
        if topic is None:
            name = self.catalogue.name_of(topic_id)
            if name is not None:
                topic = self.get(name)
        return topic

    @property
    def offline_partitions(self) -> Mapping[str, PartitionOffline]:
        """The partitions that are not served, by folder name. The error gives the reason."""
        return self._store.offline_partitions

    def wake_readers(self) -> None:
        """Wake all readers that wait for records. Called when the node stops, so that their requests are answered."""
        for topic in list(self._live.values()):
            for partition in topic.partitions:
                partition.advance(partition.high_watermark)

    def report_offline(self, folder: str, error: PartitionOffline) -> None:
        """Log that a partition is not served, and the remedy. Each folder is logged only once."""
        if folder not in self._reported_offline:
            self._reported_offline.add(folder)
            log.error("%s", error.report)

    # --- open logs

    def touch(self, partition: Partition) -> None:
        """Move an open log to the end of `open_partitions`, so that other logs are parked before it."""
        if partition in self.open_partitions:
            self._note_open(partition)

    def park(self, partition: Partition) -> bool:
        """Close an idle log until it is used again. Returns False if the log cannot be closed now."""
        self.traffic.add_from((partition,))
        if self.is_parking_paused or (partition.is_open and not partition.maintenance().park()):
            return False
        self._store.forget_log(partition.topic_name, partition.index)
        self.open_partitions.pop(partition, None)
        self.stored_bytes[_folder(partition)] = partition.stored_bytes
        if partition.is_fetched:
            self.note_fetch(partition)
        return True

    @property
    def has_too_many_open_logs(self) -> bool:
        """Whether more than OPEN_LOGS_FACTOR_MAX times `kwire.log.open.max` logs are open."""
        return len(self.open_partitions) > OPEN_LOGS_FACTOR_MAX * self._config.log.open_max

    def note_fetch(self, partition: Partition) -> None:
        """Clear the partition's `is_fetched`. If its topic is a room, record the current time as its last read."""
        partition.is_fetched = False
        if partition.settings.is_room:
            self.room_fetches[partition.topic_name] = self._clock.now_ms()

    def _note_open(self, partition: Partition) -> None:
        self.open_partitions.pop(partition, None)
        self.open_partitions[partition] = None
        if self.on_opened is not None:
            self.on_opened()

    def _note_opened(self, partition: Partition) -> None:
        topic = self._live.get(partition.topic_name)
        if topic is not None:
            partition.take_mark(self.marks.mark_of(topic.topic_id, partition.index))
        if self.opened_folders is not None:
            self.opened_folders.add(_folder(partition))
        self._note_open(partition)

    def _reserve(self, partition: Partition) -> None:
        topic = self._live.get(partition.topic_name)
        if topic is not None:
            self.marks.reserve(partition, topic.topic_id)

    # --- changes

    def check(self, new: NewTopic) -> None:
        """Raise KafkaError if a client may not create this topic. The error describes the first problem found."""
        self.check_new_name(new.name)
        self.check_configs(new.configs)
        check_partition_count(new.partition_count)

    def check_new_name(self, name: str) -> None:
        """Raise KafkaError if a client may not create a topic of this name."""
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' cannot be created.")
        check_name(name)
        if name in INTERNAL_TOPICS and self.catalogue.find(name) is None:
            # The partition count of an internal topic decides where state is stored, so clients must not choose it. The
            # server creates the topic itself on first use.
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is internal.")
        if name in PROTECTED_TOPICS:
            raise protected_topic(name)
        self._check_free(name, {})

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Raise KafkaError if a client may not give a topic these settings."""
        if self._checked_settings(configs).is_event_topic:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Topics of the event store can only be created by POST /topics, with schemas."
            )

    def check_event_configs(self, configs: Mapping[str, str]) -> None:
        """Raise KafkaError if a topic that the event store creates cannot have these settings."""
        self._checked_settings(configs)

    async def create(self, new: Iterable[NewTopic], extra_changes: Sequence[Change] = ()) -> list[Topic]:
        """Create topics that were checked. Raises KafkaError if one of them exists by now.

        Up to ADDED_PER_COMMIT_MAX topics are created in one commit. Of more, earlier ones stay if a later commit fails.
        `extra_changes` are part of the commit. They can only be given if there is one commit.
        """
        return await run_in_portions(list(new), ADDED_PER_COMMIT_MAX, lambda some: self._create(some, extra_changes))

    async def _create(self, new: Sequence[NewTopic], extra_changes: Sequence[Change]) -> list[Topic]:
        # One creation at a time, because the catalogue detects no conflict between two names with one collision key.
        async with self._creating:
            taken_keys: dict[str, str] = {}
            for topic in new:
                self._check_free(topic.name, taken_keys)
                # Invalid settings must not be stored, because the next start of the server would fail.
                self._checked_settings(topic.configs)
                taken_keys[collision_key(topic.name)] = topic.name
            now_ms = self._clock.now_ms()
            await self.catalogue.add(
                {
                    topic.name: entry_value(
                        topic.topic_id or uuid.uuid4().bytes, topic.partition_count, topic.configs, now_ms
                    )
                    for topic in new
                },
                extra_changes,
            )
            for topic in new:
                facts = {"partitions": topic.partition_count, "settings": sorted(topic.configs)}
                self._audit.changed("topic.created", TOPIC, topic.name, facts)
            return [made for topic in new if (made := self.get(topic.name)) is not None]

    async def delete(self, topic: Topic) -> None:
        """Delete a topic from the catalogue durably, then delete its files."""
        await run_to_end(self._delete([topic], lambda topic: True))

    async def delete_idle(self, topics: Sequence[Topic], is_idle: Callable[[Topic], bool]) -> list[Topic]:
        """Delete the topics for which `is_idle` is true, and return them.

        After `is_idle` was called for them, these topics accept no records. So no acknowledged record is deleted. Up to
        REMOVED_PER_COMMIT_MAX topics are deleted in one commit. Of more, earlier ones are deleted if a later commit
        fails.
        """
        return await run_in_portions(topics, REMOVED_PER_COMMIT_MAX, lambda some: self._delete(some, is_idle))

    async def _delete(self, topics: Sequence[Topic], is_wanted: Callable[[Topic], bool]) -> list[Topic]:
        # The lock also delays the creation of a topic of the same name until the old folders are renamed.
        async with self._creating:
            wanted = [topic for topic in topics if is_wanted(topic)]
            if not wanted:
                return []
            leaving = [partition for topic in wanted for partition in topic.partitions]
            for partition in leaving:
                partition.is_being_deleted = True
            try:
                # The commit may use the disk reserve, because deleting the files frees more space than the commit
                # needs.
                await commit_with_reserve(
                    self._store, self.lanes.settle, lambda: self.catalogue.remove([topic.facts for topic in wanted])
                )
            except BaseException:
                for partition in leaving:
                    partition.is_being_deleted = False
                raise
            for topic in wanted:
                self._audit.changed("topic.deleted", TOPIC, topic.name)
                self._live.pop(topic.name, None)
                self._live_by_id.pop(topic.topic_id, None)
                topic.revision += 1
            self.deletion_count += 1
            opened = [partition.maintenance() for partition in leaving if partition.is_open]
            if opened:
                # In a thread, because background jobs on these logs may be waiting for the disk.
                await self.lanes.delete.run(end_background_work, opened)
            failed: set[str] = set()
            for start in range(0, len(leaving), DELETIONS_PER_CHUNK):
                failed.update(await self._delete_logs(leaving[start : start + DELETIONS_PER_CHUNK]))
            self.deletion_notes.mark_renamed([topic.topic_id for topic in wanted if topic.name not in failed])
            return wanted

    async def _delete_logs(self, partitions: Sequence[Partition]) -> list[str]:
        """Close the logs and delete their files. Returns the names of topics whose folders could not be renamed."""
        deletions = [(one, self._begin_deletion(one)) for one in partitions]
        await self.lanes.delete.run(run_all, [deletion for _, some in deletions for deletion in some])
        failed = []
        for partition, some in deletions:
            try:
                for deletion in some:
                    deletion.finish()
            except StorageError:
                # The partition is never served again, because a later topic of this name has another id. The next start
                # tries to delete the files again.
                log.exception("the files of %s-%d could not be deleted", partition.topic_name, partition.index)
                failed.append(partition.topic_name)
        return failed

    def _begin_deletion(self, partition: Partition) -> list[LogDeletion]:
        deletion = self._store.begin_deletion(partition.topic_name, partition.index)
        partition.forget()
        self.traffic.forget(partition.topic_name)
        self.open_partitions.pop(partition, None)
        self.stored_bytes.pop(_folder(partition), None)
        # Wake waiting readers, so that they notice the deletion.
        partition.advance(partition.high_watermark)
        return deletion

    async def create_partitions(self, topic: Topic, partition_count: int) -> None:
        value = entry_value(topic.topic_id, partition_count, topic.configs, topic.facts.created_ms)
        await run_to_end(self._create_partitions(topic, topic.facts, value))

    async def _create_partitions(self, topic: Topic, facts: TopicFacts, value: dict[str, Any]) -> None:
        topic.facts = await self.catalogue.change(facts, value)
        self._audit.changed("topic.extended", TOPIC, topic.name, {"partitions": topic.facts.partition_count})
        self._add_partitions(topic)

    async def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        self._checked_settings(configs)
        value = entry_value(topic.topic_id, len(topic.partitions), configs, topic.facts.created_ms)
        await run_to_end(self._configure(topic, topic.facts, value))

    async def _configure(self, topic: Topic, facts: TopicFacts, value: dict[str, Any]) -> None:
        topic.facts = await self.catalogue.change(facts, value)
        self._audit.changed("topic.configured", TOPIC, topic.name, changed_names(facts.configs, topic.configs))
        self._take_settings(topic)

    async def reconfigure(self, config: Config) -> None:
        """Apply a new broker configuration. It affects the settings that a topic does not override."""
        self._config = config
        self._shared_settings.clear()
        partition_count = 0
        # Topics that become live during this loop already use the new configuration.
        for topic in list(self._live.values()):
            self._take_settings(topic)
            partition_count += len(topic.partitions)
            if partition_count >= SETTINGS_PER_CHUNK:
                partition_count = 0
                await asyncio.sleep(0)

    def _take_settings(self, topic: Topic) -> None:
        topic.settings = self._settings(topic.configs)
        topic.revision += 1
        for partition in topic.partitions:
            partition.configure(topic.settings)

    async def get_or_create(self, name: str) -> Topic:
        """Return the topic. If it does not exist, create it with `num.partitions`, or as an internal topic."""
        if name == OFFSETS_TOPIC:
            return await self.offsets_topic()
        if name == TRANSACTIONS_TOPIC:
            return await self.transactions_topic()
        topic = self.get(name)
        if topic is None:
            new = NewTopic(name, self._config.topics.partition_count, {})
            self.check(new)
            topic = await self._create_or_get(new)
        return topic

    async def offsets_topic(self) -> Topic:
        """Return the topic with the state of groups. It is created when the first group needs it."""
        return self.get(OFFSETS_TOPIC) or await self._create_internal(OFFSETS_TOPIC)

    async def transactions_topic(self) -> Topic:
        """Return the topic with the state of transactions. It is created at the first use of a transactional id."""
        return self.get(TRANSACTIONS_TOPIC) or await self._create_internal(TRANSACTIONS_TOPIC)

    async def events_topic(self) -> Topic:
        """Return the topic of the event journal. It is created for the first event.

        If the broker's setting for the retention of this topic has changed, the topic's settings are updated.
        """
        topic = self.get(EVENTS_TOPIC) or await self._create_internal(EVENTS_TOPIC)
        _, configs = internal_topic(EVENTS_TOPIC, self._config)
        if dict(topic.configs) != configs:
            await self.configure(topic, configs)
        return topic

    async def _create_internal(self, name: str) -> Topic:
        return await self._create_or_get(NewTopic(name, *internal_topic(name, self._config)))

    def cut_damaged_end(self, partition: Partition) -> None:
        """Truncate the damaged end of a log that has no readers yet. Raises StorageError."""
        topic = self.get(partition.topic_name)
        if topic is not None:
            cut_damaged_end(self._store, partition, topic.topic_id)

    async def _create_or_get(self, new: NewTopic) -> Topic:
        try:
            return (await self.create([new]))[0]
        except KafkaError as error:
            topic = self.get(new.name)
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and topic is not None:
                return topic
            raise

    def _check_free(self, name: str, taken_keys: Mapping[str, str]) -> None:
        shown = collision_key(name)
        # No topic may collide with an internal topic, even if the internal topic does not exist yet.
        taken = taken_keys.get(shown) or self.catalogue.find_colliding(name)
        if taken == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        twin = _INTERNAL_COLLISION_KEYS.get(shown) or taken
        if twin not in (None, name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {twin}")

    # --- settings

    def _check_stored(self, name: str, configs: Mapping[str, str]) -> None:
        try:
            self._settings(configs)
        except InvalidConfig as error:
            raise ValueError(f"topic {name} has an invalid stored setting: {error}") from error

    def _checked_settings(self, configs: Mapping[str, str]) -> TopicSettings:
        try:
            topic_config.validate(configs)
            return self._settings(configs)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _settings(self, configs: Mapping[str, str]) -> TopicSettings:
        known = self._shared_settings
        key = frozenset(configs.items())
        settings = known.get(key)
        if settings is None:
            settings = topic_config.settings_for(configs, self._config)
            if len(known) >= SHARED_SETTINGS_MAX:
                known.clear()
            known[key] = settings
        return settings

    # --- live objects

    def _make_live(self, facts: TopicFacts) -> Topic:
        topic = Topic(facts, self._settings(facts.configs), self._open_stream)
        self._add_partitions(topic)
        self._live[topic.name] = self._live_by_id[topic.topic_id] = topic
        return topic

    def _add_partitions(self, topic: Topic) -> None:
        for index in range(len(topic.partitions), topic.facts.partition_count):
            partition = Partition(
                topic.name,
                index,
                self.leader_epoch,
                topic.settings,
                self._clock,
                partial(open_log, self._store, self.report_offline, topic, index),
                self._syncs,
                on_open=self._note_opened,
                on_mark_due=self._reserve,
            )
            if self.stored_bytes:
                partition.stored_bytes = self.stored_bytes.get(_folder(partition), 0)
            topic.partitions.append(partition)


def _folder(partition: Partition) -> str:
    # This is the folder name that `LogDirectories` uses.
    return f"{partition.topic_name}-{partition.index}"
