"""The event store's entry point: publish to several topics atomically, produce a batch, read all events in order."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition import WAIT_MS_MAX, Syncs, code_of
from kwire.broker.topics.topics import Topic, Topics
from kwire.clock import Clock
from kwire.errors import KafkaError, NotAnEventTopic, TopicNotFound
from kwire.metastore import MetaStore
from kwire.streams.event_store.commit_pipeline import CheckedBatch, CommitPipeline
from kwire.streams.event_store.drafts import DraftEncoder, EventDraft, TopicDrafts
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.event_store.global_reader import GlobalReader
from kwire.streams.event_store.idempotency_keys import Digest, key_bytes
from kwire.streams.event_store.pending_commit import Commit, Done, Outcome, Part, StoredCommit, event_ids
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import StreamTopic
from storage.batch.builder import build_batch_from_bodies
from storage.batch.record_batch import BatchHeader
from storage.errors import StorageError


class Checks(Protocol):
    """Checks events against the schemas of their topic (implemented in `schemas/payload_checks.py`)."""

    def check_draft(self, topic: StreamTopic, draft: EventDraft) -> Awaitable[object] | None:
        """Check an event, as `DraftCheck`."""
        ...

    def check_batch(self, topic: Topic, batch: memoryview, header: BatchHeader) -> CheckedBatch:
        """Return the problems of the records of a producer's batch, or a future if the check takes longer."""
        ...


class EventStore:
    """The event store of a server. Use it only in the event loop's thread. Without `checks`, no schemas are checked."""

    def __init__(
        self, topics: Topics, metastore: MetaStore, clock: Clock, syncs: Syncs, checks: Checks | None = None
    ) -> None:
        self.pipeline = CommitPipeline(topics, metastore, clock, syncs)
        self._checks = checks
        self._topics = topics
        self._clock = clock
        # Tests replace the checks, so they are looked up for each event.
        self._encoder = DraftEncoder(self.event_topic, None if checks is None else self._check_draft)

    async def open(self) -> None:
        """Recover events after a crash. This must return before event topics are read."""
        await self.pipeline.open()

    async def close(self) -> None:
        await self.pipeline.close()

    async def journal(self) -> StreamLog:
        """Return the log of the event journal, whose offsets are global positions. `global_reader` reads its events."""
        return (await self._topics.events_topic()).stream()

    def global_reader(self, journal: StreamLog, position: int) -> GlobalReader:
        return GlobalReader(self._topics.catalogue.name_of, journal, position)

    # --- publishing

    async def publish(
        self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None, timeout_ms: int = WAIT_MS_MAX
    ) -> list[EventId]:
        """Store all events or none. When this returns, the events are durable and can be read.

        Returns the ids in the order of `drafts`. If the same events are published again under the same idempotency key,
        they are not stored again, and the same ids are returned. Raises StreamError if an event is invalid. Raises
        KafkaError if the server fails; the events may or may not be stored then.
        """
        stored = await self.store(drafts, idempotency_key=idempotency_key, timeout_ms=timeout_ms)
        return event_ids(stored, self._topics.catalogue.name_of)

    async def store(
        self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None, timeout_ms: int = WAIT_MS_MAX
    ) -> StoredCommit:
        """Like `publish`, but return the topics and offsets of the events."""
        key = digest = None
        if idempotency_key is not None:
            key, digest = key_bytes(idempotency_key), Digest()
        now_ms = self._clock.now_ms()
        encoded = await self._encoder.encode(drafts, now_ms, self._topics.leader_epoch, digest)
        parts = [_part_of(one, now_ms) for one in encoded.topics]
        loop = asyncio.get_running_loop()
        done_future: asyncio.Future[Outcome] = loop.create_future()
        done = _setter(done_future)
        deadline = loop.time() + timeout_ms / 1000
        self.pipeline.add(
            Commit(parts, done, deadline, encoded.order, key, digest.value() if digest is not None else b"")
        )
        outcome = await done_future
        if isinstance(outcome, StoredCommit):
            return outcome
        raise outcome

    def _check_draft(self, topic: StreamTopic, draft: EventDraft) -> Awaitable[object] | None:
        return None if self._checks is None else self._checks.check_draft(topic, draft)

    def event_topic(self, name: str) -> Topic:
        """Return an event topic by name; raises TopicNotFound or NotAnEventTopic."""
        topic = self._topics.get(name)
        if topic is None or topic.is_internal:
            raise TopicNotFound(name)
        if not topic.settings.is_event_topic:
            raise NotAnEventTopic(name)
        return topic

    # --- batches of Kafka producers

    def produce(
        self,
        topic: Topic,
        batch: memoryview,
        header: BatchHeader,
        done: Done,
        timeout_ms: int = WAIT_MS_MAX,
        validate: Validate = validate,
    ) -> None:
        """Queue a Kafka producer's batch as one commit. `done` is called with the outcome later.

        Raises KafkaError or StorageError for problems that are found immediately, and every exception that `validate`
        raises.
        """
        check = self._checks.check_batch if self._checks is not None else None
        self.pipeline.produce(topic, batch, header, check, done, timeout_ms, validate)


def _part_of(encoded: TopicDrafts[Topic], now_ms: int) -> Part:
    """Return the part of a commit with the events of one topic."""
    encoded.check_size()
    try:
        built = build_batch_from_bodies(encoded.bodies, now_ms)
        batch, header = encoded.topic.partitions[0].prepare(*built, now_ms)
    except StorageError as error:
        raise KafkaError(code_of(error), str(error)) from error
    return Part(encoded.topic, batch, header, now_ms, encoded.versions)


def _setter(future: "asyncio.Future[Outcome]") -> Done:
    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return done
