"""The topics of this node: the catalogue in the metadata store, and the live objects made from it.

A topic is created, widened, configured and deleted by one compare-and-set each; the live objects follow once it is
durable. Names seen here are full and already allowed to the caller.
"""

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kwire import topic_config
from kwire.broker.partition import Partition
from kwire.clock import Clock
from kwire.config import Config, InvalidConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.topic_config import TopicSettings
from storage.errors import StorageError
from storage.format import CREATE_TIME, LOG_APPEND_TIME
from storage.log import Log
from storage.settings import LogSettings
from storage.store import LogStore, partition_folder

log = logging.getLogger("kwire.broker")

R = TypeVar("R")

KEY_PREFIX = "topics/"
NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
# Renaming a folder takes a tenth of a millisecond; after this many the loop gets its turn.
DELETIONS_PER_TURN = 100

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Topic:
    """A live topic. `configs` holds only what was set on it; `settings` is everything, parsed.

    `revision` is that of the catalogue's entry the object was made from: a change of what it says is judged by it.
    """

    __slots__ = ("configs", "is_internal", "name", "partitions", "revision", "settings", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, revision: int, configs: Mapping[str, str], settings: TopicSettings
    ) -> None:
        self.name = name
        self.is_internal = name in INTERNAL_TOPICS
        self.topic_id = topic_id
        self.revision = revision
        self.configs = dict(configs)
        self.settings = settings
        self.partitions: list[Partition] = []

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What a creator asks for, checked by `Topics.check`."""

    name: str
    partition_count: int
    configs: Mapping[str, str]


class Topics:
    """All topics by name and by id. Reading is plain dictionary work; changing is async and durable.

    A change that has begun is finished even if whoever asked for it goes away: catalogue and live objects stay equal.
    """

    def __init__(self, metastore: MetaStore, store: LogStore, config: Config, clock: Clock, leader_epoch: int) -> None:
        self._metastore = metastore
        self._store = store
        self._config = config
        self._clock = clock
        self._leader_epoch = leader_epoch
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_look: dict[str, str] = {}
        self._creating = asyncio.Lock()
        for key, entry in metastore.entries(KEY_PREFIX):
            name = key.removeprefix(KEY_PREFIX)
            try:
                self._bring_up(name, entry.value, entry.revision)
            except InvalidConfig as error:
                raise ValueError(f"topic {name} has a setting that cannot be: {error}") from error

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def folders(self) -> set[str]:
        """The names of all folders that partitions have or may come to have."""
        return {partition_folder(topic.name, index) for topic in self for index in range(len(topic.partitions))}

    def wake_readers(self) -> None:
        """Let everybody who waits for data look again, and be answered with what is there: the node is stopping."""
        for topic in self:
            for partition in topic.partitions:
                partition.advance(partition.high_watermark)

    def check(self, new: NewTopic) -> None:
        """Raise KafkaError if a client cannot have this topic created."""
        check_name(new.name)
        if new.name in INTERNAL_TOPICS and new.name not in self._by_name:
            # Their partition counts decide where state is kept: the server makes them itself, when it needs them.
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{new.name}' is internal.")
        self._check_free(new.name, self._by_look)
        if not 1 <= new.partition_count <= PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Number of partitions must be from 1 to {PARTITIONS_MAX}, not {new.partition_count}.",
            )
        self._checked_settings(new.configs)

    async def create(self, new: Iterable[NewTopic]) -> list[Topic]:
        """Create checked topics, all in one commit. Raises KafkaError if one of them has come into being meanwhile."""
        return await _to_the_end(self._create(list(new)))

    async def _create(self, new: Sequence[NewTopic]) -> list[Topic]:
        # One after the other: names that differ but look the same are no conflict for the catalogue.
        async with self._creating:
            looks = dict(self._by_look)
            for topic in new:
                self._check_free(topic.name, looks)
                # What is durable is brought up at every start, so it has to be good before.
                self._checked_settings(topic.configs)
                looks[_look(topic.name)] = topic.name
            values = {topic.name: _value(uuid.uuid4().bytes, topic.partition_count, topic.configs) for topic in new}
            try:
                revision = await self._commit([Change(KEY_PREFIX + name, value, 0) for name, value in values.items()])
            except Conflict as conflict:
                name = conflict.key.removeprefix(KEY_PREFIX)
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from conflict
            return [self._bring_up(name, value, revision) for name, value in values.items()]

    async def delete(self, topic: Topic) -> None:
        """Forget a topic durably, then let its files go."""
        await _to_the_end(self._delete(topic, topic.revision))

    async def _delete(self, topic: Topic, revision: int) -> None:
        # Who creates a topic of this name waits until the folders of this one are out of its way.
        async with self._creating:
            await self._change(topic, None, revision)
            del self._by_name[topic.name]
            del self._by_id[topic.topic_id]
            if self._by_look.get(_look(topic.name)) == topic.name:
                del self._by_look[_look(topic.name)]
            for number, partition in enumerate(topic.partitions, start=1):
                self._delete_log(partition)
                if number % DELETIONS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _delete_log(self, partition: Partition) -> None:
        try:
            self._store.delete_log(partition.topic_name, partition.index)
        except StorageError:
            # It is never served again, and the next start tries again: a later topic of this name has another id.
            log.exception("the files of %s-%d could not be deleted", partition.topic_name, partition.index)
        # Readers that wait find the topic gone when they look again.
        partition.advance(partition.high_watermark)

    async def widen(self, topic: Topic, partition_count: int) -> None:
        value = _value(topic.topic_id, partition_count, topic.configs)
        await _to_the_end(self._widen(topic, value, topic.revision))

    async def _widen(self, topic: Topic, value: dict[str, Any], revision: int) -> None:
        await self._change(topic, value, revision)
        self._add_partitions(topic, value["partitions"])

    async def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        self._checked_settings(configs)
        value = _value(topic.topic_id, len(topic.partitions), configs)
        await _to_the_end(self._configure(topic, value, topic.revision))

    async def _configure(self, topic: Topic, value: dict[str, Any], revision: int) -> None:
        await self._change(topic, value, revision)
        topic.configs = value["configs"]
        topic.settings = topic_config.settings_for(topic.configs, self._config)
        for partition in topic.partitions:
            partition.settings = topic.settings
            if partition.is_open:
                partition.log.settings = self._log_settings(topic.settings)

    async def get_or_create(self, name: str) -> Topic:
        """A topic as auto-creation makes it: `num.partitions`, no settings of its own, unless the server knows it."""
        if name == OFFSETS_TOPIC:
            return await self.offsets_topic()
        if name not in self._by_name:
            new = NewTopic(name, self._config.topics.partition_count, {})
            self.check(new)
            return await self._create_or_get(new)
        return self._by_name[name]

    async def offsets_topic(self) -> Topic:
        """The topic that group coordinators keep their state in, made when the first group needs it."""
        groups = self._config.groups
        configs = {"cleanup.policy": "compact", "segment.bytes": str(groups.offsets_segment_bytes)}
        new = NewTopic(OFFSETS_TOPIC, groups.offsets_partition_count, configs)
        return self._by_name.get(OFFSETS_TOPIC) or await self._create_or_get(new)

    async def _create_or_get(self, new: NewTopic) -> Topic:
        try:
            return (await self.create([new]))[0]
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and new.name in self._by_name:
                return self._by_name[new.name]
            raise

    async def _change(self, topic: Topic, value: dict[str, Any] | None, revision: int) -> None:
        key = KEY_PREFIX + topic.name
        try:
            topic.revision = await self._commit([Change(key, value, revision)])
        except Conflict as conflict:
            entry = self._metastore.get(key)
            if entry is None or entry.value["id"] != topic.topic_id.hex():
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from conflict
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "somebody else changed the topic, try again") from conflict

    async def _commit(self, changes: Sequence[Change]) -> int:
        try:
            return await self._metastore.commit(changes)
        except StorageError as error:
            log.exception("the catalogue of topics could not be written")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error

    def _check_free(self, name: str, looks: Mapping[str, str]) -> None:
        look = _look(name)
        # Internal topics have their looks to themselves, whether they exist yet or not.
        twin = _INTERNAL_LOOKS.get(look) or looks.get(look)
        if name in self._by_name or looks.get(look) == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if twin not in (None, name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {twin}")

    def _checked_settings(self, configs: Mapping[str, str]) -> TopicSettings:
        try:
            topic_config.validate(configs)
            return topic_config.settings_for(configs, self._config)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _bring_up(self, name: str, value: dict[str, Any], revision: int) -> Topic:
        configs = value["configs"]
        settings = topic_config.settings_for(configs, self._config)
        topic = Topic(name, bytes.fromhex(value["id"]), revision, configs, settings)
        self._add_partitions(topic, value["partitions"])
        self._by_name[name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_look[_look(name)] = name
        return topic

    def _add_partitions(self, topic: Topic, partition_count: int) -> None:
        for index in range(len(topic.partitions), partition_count):
            opener = self._opener(topic, index)
            partition = Partition(topic.name, index, self._leader_epoch, topic.settings, self._clock, opener)
            topic.partitions.append(partition)

    def _opener(self, topic: Topic, index: int) -> Callable[[], Log]:
        return lambda: self._store.open_log(topic.name, index, topic.topic_id, self._log_settings(topic.settings))

    def _log_settings(self, settings: TopicSettings) -> LogSettings:
        return LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            index_interval_bytes=settings.index_interval_bytes,
            timestamp_type=LOG_APPEND_TIME if settings.is_log_append_time else CREATE_TIME,
        )


def check_name(name: str) -> None:
    """Kafka's rule for topic names."""
    if not name or name in (".", "..") or len(name) > NAME_LENGTH_MAX or not _LEGAL_NAME.fullmatch(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name[:NAME_LENGTH_MAX]}'; letters, digits, '.', '_' and '-' are allowed, "
            f"{NAME_LENGTH_MAX} at most, and not '.' or '..'.",
        )


def _look(name: str) -> str:
    """Names that differ only in '.' and '_' look the same in metric names, so Kafka lets only one of them exist."""
    return name.replace(".", "_")


_INTERNAL_LOOKS = {_look(name): name for name in INTERNAL_TOPICS}


def _value(topic_id: bytes, partition_count: int, configs: Mapping[str, str]) -> dict[str, Any]:
    return {"id": topic_id.hex(), "partitions": partition_count, "configs": dict(configs)}


async def _to_the_end(change: Coroutine[Any, Any, R]) -> R:
    return await asyncio.shield(asyncio.ensure_future(change))
