"""The event store of a bridge: its logs are topics of the cluster, its schemas are in the data directory."""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.access.audit.entries import Audit
from kwire.clock import Clock
from kwire.errors import ErrorCode, EventStoreUnavailable, KafkaError
from kwire.metastore import MetaStore
from kwire.streams.commands import TopicCommands
from kwire.streams.event_store.schemas.payload_checks import SchemaChecks
from kwire.streams.event_store.schemas.worker import SchemaWorker
from kwire.streams.remote.directory import TopicMarks
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_events.store import RemoteEventStore
from kwire.streams.remote_events.topics import RemoteEventTopics
from kwire.streams.subscriptions import Subscriptions
from kwire.streams.topic_directory import StreamTopic, TopicFinder
from kwire.web.services import EventStoreServices, PortServices


class BridgeEventStore(NamedTuple):
    """The caller starts and closes it."""

    store: RemoteEventStore
    worker: SchemaWorker

    async def close(self) -> None:
        await self.store.close()
        await self.worker.close()


class NumberedTopics:
    """The topics of the cluster. The offsets of event topics are the versions of their events."""

    def __init__(self, topics: TopicFinder, store: RemoteEventStore) -> None:
        self._topics = topics
        self._store = store

    async def find(self, name: str) -> StreamTopic | None:
        found = await self._topics.find(name)
        if found is None or not found.is_event_topic:
            return found
        try:
            return self._store.event_topic(name)
        except EventStoreUnavailable as error:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from None


def event_store_of(
    logs: RemoteLogs,
    metastore: MetaStore,
    clock: Clock,
    commands: TopicCommands,
    marks: TopicMarks,
    audit: Audit,
    journal_topic: str,
) -> BridgeEventStore:
    """Raises ValueError if the name of the journal is not valid."""
    worker = SchemaWorker()
    store = RemoteEventStore(logs, metastore, clock, journal_topic)

    async def create_topic(name: str, configs: Mapping[str, str]) -> None:
        await commands.create(name, 1, configs)

    topics = RemoteEventTopics(metastore, worker.run, logs, create_topic, store.check, audit)
    store.use(topics, SchemaChecks(topics.schemas_and_revision, worker.run))
    marks.is_event_topic = topics.has
    logs.append_refusal_of = topics.append_refusal_of
    marks.is_protected = lambda name: name == journal_topic
    return BridgeEventStore(store, worker)


def event_store_services(
    port: PortServices, event_store: BridgeEventStore, subscriptions: Subscriptions
) -> EventStoreServices:
    store = event_store.store
    return EventStoreServices(
        port=port,
        event_store=store,
        event_topics=store.topics,
        commands=store,
        topic_commands=store,
        subscriptions=subscriptions,
    )
