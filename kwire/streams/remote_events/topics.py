"""RemoteEventTopics: the event topics of a cluster that this bridge has created, with their schemas.

A topic is marked by an entry in the metadata store, in the same commit as its schemas. The entry is under the topic's
id, so a topic that somebody creates again under the same name is an ordinary topic.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.broker.topics.catalogue import EVENTS_CONFIG, ROOM_CONFIG, SCHEMAS_PREFIX
from kwire.errors import ErrorCode, KafkaError, NotAnEventTopic, TopicNotFound
from kwire.metastore import Change, MetaStore
from kwire.metastore.interface import ABSENT
from kwire.streams.event_store.schema_store import SchemaStore
from kwire.streams.event_store.schemas.worker import Run
from kwire.streams.remote.agreement import is_deleted
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_events.commit_group import PARTITION
from kwire.streams.remote_events.journal_state import JournalState
from kwire.streams.remote_events.numbered_log import NumberedLog
from kwire.streams.remote_events.topic_rules import FIXED_CONFIGS, check_configs

log = logging.getLogger("kwire.bridge")

KEY_PREFIX: Final = "bridge/event-topics/"
# Event topics of one bridge. All of them are looked up at the start.
EVENT_TOPICS_MAX: Final = 1000
# Topics that are looked up at the same time.
OPENINGS_MAX: Final = 16
# Events are kept forever unless the request says otherwise, and batches are stored as they are sent.
NEW_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    **FIXED_CONFIGS,
    "retention.ms": "-1",
    "retention.bytes": "-1",
}

# Creates a topic of one partition with these settings, and returns when it can be used.
CreateTopic = Callable[[str, Mapping[str, str]], Awaitable[None]]


class EventTopic:
    """An event topic whose log is open: a `StreamTopic`. Versions are the offsets of its log."""

    partition_count = 1
    is_room = False
    is_event_topic = True
    is_protected = False

    def __init__(self, inner: RemoteLog, numbers: NumberedLog, replication_factor: int) -> None:
        self.name = inner.topic
        self.topic_id = inner.topic_id
        self.replication_factor = replication_factor
        self.numbers = numbers
        self._inner = inner

    @property
    def is_gone(self) -> bool:
        return self._inner.is_gone

    @property
    def is_deleted_here(self) -> bool:
        """Whether this process has deleted the topic, so that nobody has to be asked."""
        return self._inner.is_gone and self._inner.is_being_deleted

    @property
    def max_message_bytes(self) -> int:
        return self._inner.max_batch_bytes

    def stream(self, index: int = 0) -> NumberedLog:
        return self.numbers


class RemoteEventTopics(SchemaStore):
    """`check` raises EventStoreUnavailable while the event store cannot be used. Use it in the event loop's thread."""

    def __init__(
        self,
        metastore: MetaStore,
        run: Run,
        logs: RemoteLogs,
        create_topic: CreateTopic,
        check: Callable[[], None],
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(metastore, run, self.name_of, audit)
        self._logs = logs
        self._create_topic = create_topic
        self._check = check
        self._names = {
            bytes.fromhex(key.removeprefix(KEY_PREFIX)): str(entry.value["name"])
            for key, entry in metastore.entries(KEY_PREFIX)
        }
        self._ids_by_name = {name: topic_id for topic_id, name in self._names.items()}
        self._opened: dict[bytes, EventTopic] = {}
        # Where the ends of topics are, from `open_all` on.
        self._state: JournalState | None = None
        # Finds out which topics were deleted.
        self._looking: asyncio.Task[None] | None = None
        # Topics that are forgotten, but still have entries.
        self._removable: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._names)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    # --- lookup

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of an event topic; None if it was deleted. One that only seems to be gone has its name."""
        opened = self._opened.get(topic_id)
        if opened is not None and opened.is_gone:
            if opened.is_deleted_here:
                return None
            self._look()
        return self._names.get(topic_id)

    def is_gone(self, topic_id: bytes) -> bool:
        """Whether a topic cannot be used. It may come back: one broker that lags behind is enough to lose its log."""
        opened = self._opened.get(topic_id)
        if opened is not None and opened.is_gone:
            self._look()
            return True
        return topic_id not in self._names

    def has(self, name: str, topic_id: bytes) -> bool:
        return self._names.get(topic_id) == name

    def has_name(self, name: str) -> bool:
        topic_id = self._ids_by_name.get(name)
        return topic_id is not None and not self.is_gone(topic_id)

    def append_refusal_of(self, name: str, topic_id: bytes) -> KafkaError | None:
        """Why rooms and topics over HTTP cannot write to a topic, also while the event store cannot be used."""
        if not self.has(name, topic_id):
            return None
        return KafkaError(ErrorCode.POLICY_VIOLATION, f"topic {name!r} accepts records only through the event store")

    def find(self, name: str) -> EventTopic:
        """Raises TopicNotFound, or EventStoreUnavailable."""
        topic_id = self._ids_by_name.get(name)
        if topic_id is None or self.is_gone(topic_id):
            if name in self._logs.cluster.metadata.topics:
                raise NotAnEventTopic(name)
            raise TopicNotFound(name)
        self._check()
        return self._opened[topic_id]

    def ids(self) -> Collection[bytes]:
        """The topics that have entries. Their ends are kept."""
        return self._names.keys() | self._removable

    def opened(self, topic_id: bytes) -> EventTopic | None:
        return self._opened.get(topic_id)

    def opened_topics(self) -> list[EventTopic]:
        return list(self._opened.values())

    # --- opening

    async def open_all(self, state: JournalState) -> None:
        """Open the logs of all topics. `state` has their ends. Raises KafkaError, and then no log is being opened."""
        self._state = state
        turn = asyncio.Semaphore(OPENINGS_MAX)

        async def open_one(topic_id: bytes, name: str) -> None:
            async with turn:
                await self._open(topic_id, name, state)

        openings = [asyncio.ensure_future(open_one(*item)) for item in self._names.items()]
        try:
            await asyncio.gather(*openings)
        finally:
            # After a failure the others must not go on: they would replace topics of the next attempt.
            for one in openings:
                one.cancel()
            await asyncio.gather(*openings, return_exceptions=True)

    async def _open(self, topic_id: bytes, name: str, state: JournalState) -> None:
        inner = await self._find_log(topic_id, name)
        if inner is None:
            log.warning("the topic %s of the event store was deleted on the cluster", name)
            self._forget_topic(topic_id)
            return
        if not state.end_of(topic_id):
            await self._check_end(inner, state)
        self._add(inner, state.end_of(topic_id))

    async def _find_log(self, topic_id: bytes, name: str) -> RemoteLog | None:
        """Return the log of a topic; None if the topic was deleted. Raises KafkaError."""
        try:
            inner = await self._logs.open(name, PARTITION)
            if inner.topic_id == topic_id:
                return inner
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        if await is_deleted(self._logs.cluster, name, topic_id):
            return None
        # A log of a former topic is closed by the response.
        await self._logs.cluster.refresh([name])
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the brokers do not agree on the topic {name!r}")

    async def _check_end(self, inner: RemoteLog, state: JournalState) -> None:
        """The journal has no end of this topic. It is that of its newest event, if there is one after all."""
        await inner.ask_bounds()
        end = await NumberedLog(inner, 0, inner.ask_bounds).find_end()
        if end:
            log.error("the journal does not have the end of the topic %s, which is %d", inner.topic, end)
            state.raise_end(inner.topic_id, end)

    def _add(self, inner: RemoteLog, end: int) -> None:
        inner.append_refusal = self.append_refusal_of(inner.topic, inner.topic_id)
        numbers = NumberedLog(inner, end, inner.ask_bounds)
        known = self._logs.cluster.metadata.topics.get(inner.topic)
        factor = 1 if known is None else known.replication_factor
        self._opened[inner.topic_id] = EventTopic(inner, numbers, factor)
        # A former topic of this name may still have its entries.
        self._ids_by_name[inner.topic] = inner.topic_id

    def _forget_topic(self, topic_id: bytes) -> None:
        """The entries stay until `remove_gone`: they say nothing about a topic with another id."""
        self._removable.add(topic_id)
        name = self._names.pop(topic_id, None)
        self._opened.pop(topic_id, None)
        if name is not None and self._ids_by_name.get(name) == topic_id:
            del self._ids_by_name[name]

    # --- topics that seem to be gone

    def _look(self) -> "asyncio.Task[None]":
        """Return the task that looks for the topics whose logs are gone. Callers at the same time share it."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_for_gone())
            self._looking.add_done_callback(self._looked)
        return self._looking

    def _looked(self, task: "asyncio.Task[None]") -> None:
        self._looking = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("event topics that seem to be deleted cannot be looked for", exc_info=error)

    async def _look_for_gone(self) -> None:
        """Forget the topics that were deleted, and open the others again."""
        state = self._state
        assert state is not None
        for topic_id, opened in list(self._opened.items()):
            if opened.is_deleted_here:
                self._forget_topic(topic_id)
            elif opened.is_gone:
                try:
                    await self._open(topic_id, opened.name, state)
                except KafkaError as error:
                    log.warning("it is not known whether the event topic %s was deleted: %s", opened.name, error)

    # --- changes

    async def create(self, name: str, raw: object, configs: Mapping[str, str] | None = None) -> None:
        """Create an event topic. Raises InvalidSchema, or KafkaError."""
        requested = dict(configs or {})
        for reserved in (EVENTS_CONFIG, ROOM_CONFIG):
            if reserved in requested:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{reserved} cannot be set here.")
        check_configs(requested)
        if len(self._names) >= EVENT_TOPICS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"a bridge has at most {EVENT_TOPICS_MAX} event topics")
        # Found out before the topic exists.
        await self.new_entry(bytes(16), raw)
        await self._create_topic(name, {**NEW_TOPIC_CONFIGS, **requested})
        inner = await self._logs.open(name, PARTITION)
        topic_id = inner.topic_id
        entry = await self.new_entry(topic_id, raw)
        await self._metastore.commit([entry, Change(KEY_PREFIX + topic_id.hex(), {"name": name}, ABSENT)])
        self._names[topic_id] = name
        self.created(topic_id)
        self._add(inner, 0)

    async def remove_gone(self) -> None:
        """Remove the entries of topics that were deleted on the cluster. Raises StorageError."""
        if any(opened.is_gone for opened in self._opened.values()):
            await asyncio.shield(self._look())
        for topic_id in list(self._removable):
            changes = []
            for key in (KEY_PREFIX + topic_id.hex(), SCHEMAS_PREFIX + topic_id.hex()):
                entry = self._metastore.get(key)
                if entry is not None:
                    changes.append(Change(key, None, entry.revision))
            if changes:
                await self._metastore.commit(changes)
            self._removable.discard(topic_id)
