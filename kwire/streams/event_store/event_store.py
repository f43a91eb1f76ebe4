"""The event store's entry point: publish to several topics atomically, produce a batch, read all events in order."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from kwire.access.scope import plain_part
from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition import WAIT_MS_MAX, Syncs, code_of
from kwire.broker.topics.topics import Topic, Topics
from kwire.clock import Clock
from kwire.errors import EventTooLarge, InvalidEvent, KafkaError, NotAnEventTopic, StreamError, TopicNotFound
from kwire.metastore import MetaStore
from kwire.streams.event_store.commit_pipeline import CheckedBatch, CommitPipeline
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.event_store.global_reader import GlobalReader
from kwire.streams.event_store.idempotency_keys import Digest, key_bytes
from kwire.streams.event_store.journal import PARTS_MAX
from kwire.streams.event_store.pending_commit import Commit, Done, Outcome, Part, StoredCommit, event_ids
from kwire.streams.events.event import EMPTY, Envelope, NewEvent
from kwire.streams.events.traceparent import TRACEPARENT
from kwire.streams.log import StreamLog
from storage.batch.builder import batch_bytes_max, build_batch_from_bodies
from storage.batch.record_batch import BatchHeader
from storage.errors import StorageError

EVENTS_MAX = 10_000
# Events of one request that are checked and encoded between two yields to the event loop.
EVENTS_PER_TURN = 500
# Topics whose envelopes are cached. When the cache is full, it is cleared.
ENVELOPES_MAX = 1000

# Creating a NamedTuple with `tuple.__new__` takes half the time of calling its class.
_new_tuple = tuple.__new__


class EventDraft(NamedTuple):
    """An event to be published. `payload` is one JSON value, as `checked_json` returns it.

    `event_id` is chosen by the publisher and stored in the record header `ce_id`. Readers see another id, which is
    derived from the topic and the offset. `expected_version` is the offset that the preceding event of the topic must
    have; -1 if this event must be the first of its topic.
    """

    topic: str
    type: str
    payload: bytes
    metadata: Mapping[str, str] = EMPTY
    key: bytes | None = None
    event_id: str | None = None
    expected_version: int | None = None


class Checks(Protocol):
    """Checks events against the schemas of their topic (implemented in `schemas/payload_checks.py`)."""

    def check_draft(self, topic: Topic, draft: EventDraft) -> Awaitable[object] | None:
        """Raise a StreamError if the event is refused.

        If an awaitable is returned, the caller must await it to complete the check. Awaiting it may raise the error.
        """
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
        self._envelopes: dict[str, Envelope] = {}
        self._generated_ids = 0

    async def open(self) -> None:
        """Recover events after a crash. This must return before event topics are read."""
        await self.pipeline.open()

    async def close(self) -> None:
        await self.pipeline.close()

    async def journal(self) -> StreamLog:
        """Return the log of the event journal, whose offsets are global positions. `global_reader` reads its events."""
        return (await self._topics.events_topic()).stream()

    def global_reader(self, journal: StreamLog, position: int) -> GlobalReader:
        return GlobalReader(self._topics, journal, position)

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
        return event_ids(stored, self._topics)

    async def store(
        self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None, timeout_ms: int = WAIT_MS_MAX
    ) -> StoredCommit:
        """Like `publish`, but return the topics and offsets of the events."""
        if not drafts:
            raise InvalidEvent("the request contains no events")
        if len(drafts) > EVENTS_MAX:
            raise InvalidEvent(f"the request has {len(drafts)} events, at most {EVENTS_MAX} are allowed")
        key = digest = None
        if idempotency_key is not None:
            key, digest = key_bytes(idempotency_key), Digest()
        parts, order = await self._parts(drafts, digest)
        loop = asyncio.get_running_loop()
        done_future: asyncio.Future[Outcome] = loop.create_future()
        done = _setter(done_future)
        deadline = loop.time() + timeout_ms / 1000
        self.pipeline.add(Commit(parts, done, deadline, order, key, digest.value() if digest is not None else b""))
        outcome = await done_future
        if isinstance(outcome, StoredCommit):
            return outcome
        raise outcome

    async def _parts(self, drafts: Sequence[EventDraft], digest: Digest | None) -> tuple[list[Part], Sequence[int]]:
        """Return one part per topic, and the part number of each event.

        The part numbers are empty if the events are already in the order of the parts.
        """
        checks = self._checks
        now_ms = self._clock.now_ms()
        # The prefix of generated ids, before a number.
        id_prefix = f"evt_{now_ms:x}-{self._topics.leader_epoch:x}-"
        encodings: dict[str, _Encoding] = {}
        order: list[int] = []
        checking: Awaitable[object] | None = None
        for number, draft in enumerate(drafts, start=1):
            encoding = encodings.get(draft.topic)
            if encoding is None:
                if len(encodings) >= PARTS_MAX:
                    raise InvalidEvent(f"the request has events for more than {PARTS_MAX} topics")
                topic = self.event_topic(draft.topic)
                encoding = encodings[draft.topic] = _Encoding(topic, self._envelope(topic.name, now_ms), len(encodings))
            if checks is not None:
                try:
                    checking = checks.check_draft(encoding.topic, draft)
                    if checking is not None:
                        await checking
                        encoding.envelope.at(now_ms)
                except StreamError as error:
                    error.details["index"] = number - 1
                    raise
            event_id = draft.event_id
            if not event_id:
                self._generated_ids += 1
                event_id = f"{id_prefix}{self._generated_ids:x}"
            encoding.add(draft, event_id)
            order.append(encoding.number)
            if digest is not None:
                digest.add(_identity(draft), draft.payload)
            if number % EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            # Set the time of the envelopes again. Other tasks use the same envelopes, and one of them may have set
            # another time while this task waited.
            if number % EVENTS_PER_TURN == 0 or checking is not None:
                for other in encodings.values():
                    other.envelope.at(now_ms)
        parts = [encoding.part(now_ms) for encoding in encodings.values()]
        is_in_order = len(parts) == 1 or all(one <= other for one, other in pairwise(order))
        return parts, () if is_in_order else order

    def event_topic(self, name: str) -> Topic:
        """Return an event topic by name; raises TopicNotFound or NotAnEventTopic."""
        topic = self._topics.get(name)
        if topic is None or topic.is_internal:
            raise TopicNotFound(name)
        if not topic.settings.is_event_topic:
            raise NotAnEventTopic(name)
        return topic

    def _envelope(self, name: str, now_ms: int) -> Envelope:
        envelope = self._envelopes.get(name)
        if envelope is None:
            if len(self._envelopes) >= ENVELOPES_MAX:
                self._envelopes.clear()
            envelope = self._envelopes[name] = Envelope(f"/topics/{plain_part(name)}".encode(), now_ms)
        return envelope.at(now_ms)

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


class _Encoding:
    """Encodes the events of one topic into its part of the commit."""

    def __init__(self, topic: Topic, envelope: Envelope, number: int) -> None:
        self.topic = topic
        self.envelope = envelope
        self.number = number
        self._tails: list[bytes] = []
        self._tails_bytes = 0
        self._versions: list[tuple[int, int]] = []
        self._bytes_max = topic.settings.max_message_bytes

    def add(self, draft: EventDraft, event_id: str) -> None:
        _, event_type, payload, metadata, key, _, expected_version = draft
        tail = self.envelope.encode_body(_new_tuple(NewEvent, (event_type, payload, metadata, key, None)), event_id)
        self._tails_bytes += len(tail)
        if self._tails_bytes > self._bytes_max:
            raise EventTooLarge(self._tails_bytes, self._bytes_max)
        if expected_version is not None:
            self._versions.append((len(self._tails), expected_version))
        self._tails.append(tail)

    def part(self, now_ms: int) -> Part:
        size_bytes = batch_bytes_max(self._tails_bytes, len(self._tails))
        if size_bytes > self._bytes_max:
            raise EventTooLarge(size_bytes, self._bytes_max)
        try:
            batch, header = self.topic.partitions[0].prepare(*build_batch_from_bodies(self._tails, now_ms), now_ms)
        except StorageError as error:
            raise KafkaError(code_of(error), str(error)) from error
        return Part(self.topic, batch, header, now_ms, self._versions)


def _identity(draft: EventDraft) -> bytes:
    """Return the bytes of an event, other than its payload, that are hashed into the digest of an idempotency key.

    Generated ids and times and the trace context are not included, because they differ when the same event is published
    again.
    """
    metadata: Sequence[tuple[str, str]] = ()
    if draft.metadata:
        metadata = sorted(item for item in draft.metadata.items() if item[0] != TRACEPARENT) or ()
    fields = draft.topic, draft.type, draft.event_id, draft.expected_version, metadata, draft.key
    # `ascii` returns different texts for different tuples, and the same text in every version of Python.
    return ascii(fields).encode()


def _setter(future: "asyncio.Future[Outcome]") -> Done:
    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return done
