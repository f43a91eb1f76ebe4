"""The topics of this node: the catalogue says which there are, and live objects are made of those that are used.

A topic is created, widened, configured and deleted by one compare-and-set each; the live objects follow once it is
durable. Names seen here are full and already allowed to the caller.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from kwire import topic_config
from kwire.broker.catalogue import (
    EVENTS_TOPIC,
    HIDDEN_TOPICS,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Catalogue,
    TopicFacts,
    entry_value,
    look,
)
from kwire.broker.deletion_notes import DeletionNotes
from kwire.broker.full_disk import freeing
from kwire.broker.internal_topics import internal_topic
from kwire.broker.offset_marks import OffsetMarks
from kwire.broker.partition import UNKNOWN_EPOCH, Partition, Syncs
from kwire.broker.partition.opening import cut_damaged_end, open_log
from kwire.broker.topic_names import check_name, check_partition_count
from kwire.broker.topic_streams import OpenStream, TopicStreams
from kwire.clock import Clock
from kwire.config import Config, InvalidConfig
from kwire.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, MetaStore
from kwire.topic_config import TopicSettings
from storage.directories import LogDirectories
from storage.errors import PartitionOffline, StorageError
from storage.log_deletion import LogDeletion, end_background_work, run_all

__all__ = [
    "EVENTS_TOPIC",
    "METADATA_TOPIC",
    "OFFSETS_TOPIC",
    "TRANSACTIONS_TOPIC",
    "NewTopic",
    "Topic",
    "Topics",
]

log = logging.getLogger("kwire.broker")

R = TypeVar("R")

# Kafka keeps its catalogue under this name; a topic of that name would confuse its tools.
METADATA_TOPIC = "__cluster_metadata"
# To close a log and rename its folder takes a fifth of a millisecond each; after this many the loop gets its turn.
DELETIONS_PER_TURN = 10
# To give a partition its settings takes microseconds; after this many the loop gets its turn.
SETTINGS_PER_TURN = 500
# So many times the logs that may stay open are open: too many came at once.
CROWDED_FACTOR = 2
# Most topics of a large node are configured like many others, and share what was parsed for the first of them.
SHARED_SETTINGS_MAX = 1000

_INTERNAL_LOOKS = {look(name): name for name in INTERNAL_TOPICS}


class Topic(TopicStreams):
    """A live topic: its partitions, and its settings with everything parsed. `facts` are those of the catalogue.

    It lives as long as somebody holds it or one of its partitions; an open log does. So there is never a second one.
    """

    __slots__ = ("__weakref__", "facts", "is_hidden", "is_internal", "name", "revision", "settings")

    def __init__(self, facts: TopicFacts, settings: TopicSettings, open_stream: OpenStream) -> None:
        super().__init__(open_stream)
        self.facts = facts
        self.name = facts.name
        self.topic_id = facts.topic_id
        self.is_internal = facts.is_internal
        # Nobody but the server itself reads it.
        self.is_hidden = facts.name in HIDDEN_TOPICS
        self.settings = settings
        # Rises when its settings change and when it is deleted: anything derived from it has to be derived again.
        self.revision = 0
        self.partitions: list[Partition] = []

    @property
    def configs(self) -> Mapping[str, str]:
        """Only what was set on it."""
        return self.facts.configs

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class NewTopic(Struct, frozen=True):
    """What a creator asks for, checked by `Topics.check`."""

    name: str
    partition_count: int
    configs: Mapping[str, str]
    # None: one is made.
    topic_id: bytes | None = None


class Topics:
    """All topics by name and by id. Reading is plain dictionary work; changing is async and durable.

    A change that has begun is finished even if whoever asked for it goes away: catalogue and live objects stay equal.
    `open_partitions` are those whose log is open, the one that was opened or touched last at the end; `stored_bytes` is
    what the files of others hold, by folder, as far as somebody looked.
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
    ) -> None:
        self._store = store
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
        # Rises with each: whoever keeps partitions looks them up again then.
        self.deletion_count = 0
        # Called whenever a log has been opened or touched: somebody sees to it that not too many are.
        self.on_opened: Callable[[], None] | None = None
        self.stored_bytes: dict[str, int] = {}
        # Folders of offline partitions that were logged.
        self._reported_offline: set[str] = set()
        # When somebody read a room at the latest, by its topic's name; old ones go with each clean-up of rooms.
        self.room_fetches: dict[str, int] = {}
        # By topic: from which offset on retention has to leave its records, because somebody still needs them.
        self.held_from: dict[str, Callable[[], int]] = {}
        self.marks = OffsetMarks(metastore)
        self.deletion_notes = DeletionNotes(metastore, store)
        self.catalogue = Catalogue(metastore, self._check_stored, self.deletion_notes)

    def __iter__(self) -> Iterator[Topic]:
        """All of them, each made live for it: whoever has to look at many asks the catalogue."""
        for name in self.catalogue.names():
            topic = self.get(name)
            if topic is not None:
                yield topic

    def __len__(self) -> int:
        return len(self.catalogue)

    @property
    def live_count(self) -> int:
        """How many are more than an entry of the catalogue."""
        return len(self._live)

    def get(self, name: str) -> Topic | None:
        topic = self._live.get(name)
        if topic is None:
            facts = self.catalogue.find(name)
            if facts is not None:
                topic = self._bring_up(facts)
        return topic

    def leader_of(self, name: str, index: int, client_epoch: int = UNKNOWN_EPOCH) -> Partition:
        """The partition if this node leads it, in the epoch that the client knows; raises KafkaError."""
        partition = self.find_partition(name, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        partition.check_leader(client_epoch)
        return partition

    def find_partition(self, name: str, index: int) -> Partition | None:
        topic = self.get(name)
        return topic.partition(index) if topic is not None else None

    def live(self, name: str) -> Topic | None:
        """A topic if somebody uses it just now; it is not made live for it."""
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
        """By folder: the partitions that are not served, and why."""
        return self._store.offline_partitions

    def wake_readers(self) -> None:
        """Let everybody who waits for data look again, and be answered with what is there: the node is stopping."""
        for topic in list(self._live.values()):
            for partition in topic.partitions:
                partition.advance(partition.high_watermark)

    def report_offline(self, folder: str, error: PartitionOffline) -> None:
        """Log that a partition is not served, and the remedy, once."""
        if folder not in self._reported_offline:
            self._reported_offline.add(folder)
            log.error("%s", error.report)

    # --- open logs

    def touch(self, partition: Partition) -> None:
        """It was used since somebody looked: others are to be parked before it."""
        if partition in self.open_partitions:
            self._note_open(partition)

    def park(self, partition: Partition) -> bool:
        """Close an idle log until it is needed again; False if it is in use just now."""
        if partition.is_open and not partition.maintenance().park():
            return False
        self._store.forget_log(partition.topic_name, partition.index)
        self.open_partitions.pop(partition, None)
        self.stored_bytes[_folder(partition)] = partition.stored_bytes
        if partition.is_fetched:
            self.note_fetch(partition)
        return True

    @property
    def is_crowded(self) -> bool:
        """Far more logs are open than should be."""
        return len(self.open_partitions) > CROWDED_FACTOR * self._config.log.open_max

    def note_fetch(self, partition: Partition) -> None:
        """It was read since somebody looked: of a room that is noted, as of now."""
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
        self._note_open(partition)

    def _reserve(self, partition: Partition) -> None:
        topic = self._live.get(partition.topic_name)
        if topic is not None:
            self.marks.reserve(partition, topic.topic_id)

    # --- changes

    def check(self, new: NewTopic) -> None:
        """Raise KafkaError if a client cannot have this topic created. The first thing that is wrong is told."""
        self.check_new_name(new.name)
        self.check_configs(new.configs)
        check_partition_count(new.partition_count)

    def check_new_name(self, name: str) -> None:
        """Raise KafkaError if a client cannot have a topic of this name created."""
        if name == METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' cannot be created.")
        check_name(name)
        if name in INTERNAL_TOPICS and self.catalogue.find(name) is None:
            # Their partition counts decide where state is kept: the server makes them itself, when it needs them.
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is internal.")
        self._check_free(name, {})

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Raise KafkaError if a client cannot have a topic configured so."""
        if self._checked_settings(configs).is_event_topic:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Topics of the event store are made by POST /topics, with schemas."
            )

    def check_event_configs(self, configs: Mapping[str, str]) -> None:
        """The same of a topic that the event store makes."""
        self._checked_settings(configs)

    async def create(self, new: Iterable[NewTopic], beside: Sequence[Change] = ()) -> list[Topic]:
        """Create checked topics, all in one commit. Raises KafkaError if one of them has come into being meanwhile.

        `beside`: what else is to be committed with them, or not at all.
        """
        return await _to_the_end(self._create(list(new), beside))

    async def _create(self, new: Sequence[NewTopic], beside: Sequence[Change]) -> list[Topic]:
        # One after the other: names that differ but look the same are no conflict for the catalogue.
        async with self._creating:
            looks: dict[str, str] = {}
            for topic in new:
                self._check_free(topic.name, looks)
                # What is durable is used at every start, so it has to be good before.
                self._checked_settings(topic.configs)
                looks[look(topic.name)] = topic.name
            now_ms = self._clock.now_ms()
            await self.catalogue.add(
                {
                    topic.name: entry_value(
                        topic.topic_id or uuid.uuid4().bytes, topic.partition_count, topic.configs, now_ms
                    )
                    for topic in new
                },
                beside,
            )
            return [made for topic in new if (made := self.get(topic.name)) is not None]

    async def delete(self, topic: Topic) -> None:
        """Forget a topic durably, then let its files go."""
        await _to_the_end(self._delete([topic], lambda topic: True))

    async def delete_idle(self, topics: Sequence[Topic], is_idle: Callable[[Topic], bool]) -> list[Topic]:
        """Delete those that are idle, all in one commit, and tell which.

        From the moment at which `is_idle` is asked they take no records: none is acknowledged and deleted with them.
        """
        return await _to_the_end(self._delete(topics, is_idle))

    async def _delete(self, topics: Sequence[Topic], is_wanted: Callable[[Topic], bool]) -> list[Topic]:
        # Who creates a topic of such a name waits until the folders of this one are out of its way.
        async with self._creating:
            wanted = [topic for topic in topics if is_wanted(topic)]
            if not wanted:
                return []
            leaving = [partition for topic in wanted for partition in topic.partitions]
            for partition in leaving:
                partition.is_leaving = True
            try:
                # Their files free more than it takes to say that they are gone.
                await freeing(
                    self._store, self.lanes.settle, lambda: self.catalogue.remove([topic.facts for topic in wanted])
                )
            except BaseException:
                for partition in leaving:
                    partition.is_leaving = False
                raise
            for topic in wanted:
                self._live.pop(topic.name, None)
                self._live_by_id.pop(topic.topic_id, None)
                topic.revision += 1
            self.deletion_count += 1
            opened = [partition.maintenance() for partition in leaving if partition.is_open]
            if opened:
                # Jobs on their files may be waiting for the disk.
                await self.lanes.delete.run(end_background_work, opened)
            failed: set[str] = set()
            for start in range(0, len(leaving), DELETIONS_PER_TURN):
                failed.update(await self._delete_logs(leaving[start : start + DELETIONS_PER_TURN]))
            self.deletion_notes.mark_renamed([topic.topic_id for topic in wanted if topic.name not in failed])
            return wanted

    async def _delete_logs(self, partitions: Sequence[Partition]) -> list[str]:
        """Close the logs and let their files go; returns the topics whose files could not be renamed."""
        deletions = [(one, self._begin_deletion(one)) for one in partitions]
        await self.lanes.delete.run(run_all, [deletion for _, some in deletions for deletion in some])
        failed = []
        for partition, some in deletions:
            try:
                for deletion in some:
                    deletion.finish()
            except StorageError:
                # It is never served again, and the next start tries again: a later topic of this name has another id.
                log.exception("the files of %s-%d could not be deleted", partition.topic_name, partition.index)
                failed.append(partition.topic_name)
        return failed

    def _begin_deletion(self, partition: Partition) -> list[LogDeletion]:
        deletion = self._store.begin_deletion(partition.topic_name, partition.index)
        partition.forget()
        self.open_partitions.pop(partition, None)
        self.stored_bytes.pop(_folder(partition), None)
        # Readers that wait find the topic gone when they look again.
        partition.advance(partition.high_watermark)
        return deletion

    async def widen(self, topic: Topic, partition_count: int) -> None:
        value = entry_value(topic.topic_id, partition_count, topic.configs, topic.facts.created_ms)
        await _to_the_end(self._widen(topic, topic.facts, value))

    async def _widen(self, topic: Topic, facts: TopicFacts, value: dict[str, Any]) -> None:
        topic.facts = await self.catalogue.change(facts, value)
        self._add_partitions(topic)

    async def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        self._checked_settings(configs)
        value = entry_value(topic.topic_id, len(topic.partitions), configs, topic.facts.created_ms)
        await _to_the_end(self._configure(topic, topic.facts, value))

    async def _configure(self, topic: Topic, facts: TopicFacts, value: dict[str, Any]) -> None:
        topic.facts = await self.catalogue.change(facts, value)
        self._take_settings(topic)

    async def reconfigure(self, config: Config) -> None:
        """Let all topics follow a new configuration of the broker in what they do not say themselves."""
        self._config = config
        self._shared_settings.clear()
        partition_count = 0
        # What comes to life meanwhile follows it anyway.
        for topic in list(self._live.values()):
            self._take_settings(topic)
            partition_count += len(topic.partitions)
            if partition_count >= SETTINGS_PER_TURN:
                partition_count = 0
                await asyncio.sleep(0)

    def _take_settings(self, topic: Topic) -> None:
        topic.settings = self._settings(topic.configs)
        topic.revision += 1
        for partition in topic.partitions:
            partition.configure(topic.settings)

    async def get_or_create(self, name: str) -> Topic:
        """A topic as auto-creation makes it: `num.partitions`, no settings of its own, unless the server knows it."""
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
        """The topic that group coordinators keep their state in, made when the first group needs it."""
        return self.get(OFFSETS_TOPIC) or await self._create_internal(OFFSETS_TOPIC)

    async def transactions_topic(self) -> Topic:
        """The topic in which transactions keep their state, made when the first transactional id is looked for."""
        return self.get(TRANSACTIONS_TOPIC) or await self._create_internal(TRANSACTIONS_TOPIC)

    async def events_topic(self) -> Topic:
        """The journal of the event store, made when the first event needs it; its retention follows the broker's."""
        topic = self.get(EVENTS_TOPIC) or await self._create_internal(EVENTS_TOPIC)
        _, configs = internal_topic(EVENTS_TOPIC, self._config)
        if dict(topic.configs) != configs:
            await self.configure(topic, configs)
        return topic

    async def _create_internal(self, name: str) -> Topic:
        return await self._create_or_get(NewTopic(name, *internal_topic(name, self._config)))

    def cut_damaged_end(self, partition: Partition) -> None:
        """Continue a log that is damaged at its end without that end; raises StorageError. It has no readers yet."""
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

    def _check_free(self, name: str, looks: Mapping[str, str]) -> None:
        shown = look(name)
        # Internal topics have their looks to themselves, whether they exist yet or not.
        taken = looks.get(shown) or self.catalogue.twin_of(name)
        if taken == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        twin = _INTERNAL_LOOKS.get(shown) or taken
        if twin not in (None, name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {twin}")

    # --- settings

    def _check_stored(self, name: str, configs: Mapping[str, str]) -> None:
        try:
            self._settings(configs)
        except InvalidConfig as error:
            raise ValueError(f"topic {name} has a setting that cannot be: {error}") from error

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

    def _bring_up(self, facts: TopicFacts) -> Topic:
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
    # As the store names it; a name that is in the catalogue is known to be legal.
    return f"{partition.topic_name}-{partition.index}"


async def _to_the_end(change: Coroutine[Any, Any, R]) -> R:
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # Whoever asked has gone away, and nobody else will hear how it ended.
        task.add_done_callback(_note_failure)
        raise


def _note_failure(change: "asyncio.Future[Any]") -> None:
    error = None if change.cancelled() else change.exception()
    if error is not None and not isinstance(error, KafkaError):  # a refusal was for the one who asked
        log.error("a change of topics failed", exc_info=error)
