"""What the doors of the event store use: publish over several topics, produce a batch, read everything in order."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.events.event import EMPTY, Envelope, NewEvent
from kwire.broker.partition import WAIT_MS_MAX, Syncs, code_of
from kwire.broker.store.commit import Commit, Done, Outcome, Part, Stored, event_ids
from kwire.broker.store.committing import CheckedBatch, Committing
from kwire.broker.store.event_ids import EventId
from kwire.broker.store.global_reading import GlobalReader
from kwire.broker.store.journal import PARTS_MAX
from kwire.broker.store.known_keys import Digest, key_bytes
from kwire.broker.topics import Topic, Topics
from kwire.clock import Clock
from kwire.errors import EventTooLarge, InvalidEvent, KafkaError, NotAnEventTopic, StreamError, TopicNotFound
from kwire.metastore import MetaStore
from kwire.streams.log import StreamLog
from storage.batch import BatchHeader
from storage.batch_writing import batch_bytes_max, batch_of_tails
from storage.errors import StorageError

EVENTS_MAX = 10_000
# Events that are checked and encoded before others get their turn.
EVENTS_PER_TURN = 500
# Topics whose envelopes are remembered; then all are forgotten at once, and made anew as they come.
ENVELOPES_MAX = 1000

# Half the time of making one by its name.
_new_tuple = tuple.__new__


class EventDraft(NamedTuple):
    """An event that is to be published. `payload` is one JSON value, as `checked_json` returns it.

    `event_id` is a name of its publisher's, kept as `ce_id`; the id that others know it by is its place.
    `expected_version` is the version of the event before it in its topic, -1 if there is none.
    """

    topic: str
    type: str
    payload: bytes
    metadata: Mapping[str, str] = EMPTY
    key: bytes | None = None
    event_id: str | None = None
    expected_version: int | None = None


class Checks(Protocol):
    """What the schemas of topics say: `schema_checks.py`."""

    def check_draft(self, topic: Topic, draft: EventDraft) -> Awaitable[object] | None:
        """Raises a StreamError if the event is refused; at once, or when what it returns is awaited."""
        ...

    def check_batch(self, topic: Topic, batch: memoryview, header: BatchHeader) -> CheckedBatch:
        """What is wrong with the records of a producer's batch; later if there is much to look at."""
        ...


class EventStore:
    """Called from the event loop. Without checks all is taken."""

    def __init__(
        self, topics: Topics, metastore: MetaStore, clock: Clock, syncs: Syncs, checks: Checks | None = None
    ) -> None:
        self.committing = Committing(topics, metastore, clock, syncs)
        self._checks = checks
        self._topics = topics
        self._clock = clock
        self._envelopes: dict[str, Envelope] = {}
        self._made_ids = 0

    async def open(self) -> None:
        """Repair what a crash left; before anybody reads."""
        await self.committing.open()

    async def close(self) -> None:
        await self.committing.close()

    async def journal(self) -> StreamLog:
        """The log whose offsets are global positions: for subscribers of all events, with `global_reader`."""
        return (await self._topics.events_topic()).stream()

    def global_reader(self, journal: StreamLog, position: int) -> GlobalReader:
        return GlobalReader(self._topics, journal, position)

    # --- publishing

    async def publish(
        self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None, timeout_ms: int = WAIT_MS_MAX
    ) -> list[EventId]:
        """Store all events or none; their ids in the order given, once they are durable and can be read.

        Published again under the same key they are not stored twice, and get the same ids. Raises StreamError for what
        is wrong with the events, KafkaError for what is wrong with the server: then they may be stored or not.
        """
        stored = await self.store(drafts, idempotency_key=idempotency_key, timeout_ms=timeout_ms)
        return event_ids(stored, self._topics)

    async def store(
        self, drafts: Sequence[EventDraft], *, idempotency_key: str | None = None, timeout_ms: int = WAIT_MS_MAX
    ) -> Stored:
        """The same; where they are."""
        if not drafts:
            raise InvalidEvent("there is no event")
        if len(drafts) > EVENTS_MAX:
            raise InvalidEvent(f"{len(drafts)} events are to be published at once, {EVENTS_MAX} are allowed")
        key = digest = None
        if idempotency_key is not None:
            key, digest = key_bytes(idempotency_key), Digest()
        parts, order = await self._parts(drafts, digest)
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Outcome] = loop.create_future()
        done = _setter(told)
        deadline = loop.time() + timeout_ms / 1000
        self.committing.add(Commit(parts, done, deadline, order, key, digest.value() if digest is not None else b""))
        outcome = await told
        if isinstance(outcome, Stored):
            return outcome
        raise outcome

    async def _parts(self, drafts: Sequence[EventDraft], digest: Digest | None) -> tuple[list[Part], Sequence[int]]:
        """One part per topic; and which part each event is in, if they do not come one behind the other."""
        checks = self._checks
        now_ms = self._clock.now_ms()
        # Ids that are made have this and a number.
        front = f"evt_{now_ms:x}-{self._topics.leader_epoch:x}-"
        made: dict[str, _Encoding] = {}
        order: list[int] = []
        checking: Awaitable[object] | None = None
        for number, draft in enumerate(drafts, start=1):
            encoding = made.get(draft.topic)
            if encoding is None:
                if len(made) >= PARTS_MAX:
                    raise InvalidEvent(f"events for more than {PARTS_MAX} topics are to be published at once")
                topic = self.event_topic(draft.topic)
                encoding = made[draft.topic] = _Encoding(topic, self._envelope(topic.name, now_ms), len(made))
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
                self._made_ids += 1
                event_id = f"{front}{self._made_ids:x}"
            encoding.add(draft, event_id)
            order.append(encoding.number)
            if digest is not None:
                digest.add(_identity(draft), draft.payload)
            if number % EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            # Envelopes are shared: whenever others had their turn, they may have set another time.
            if number % EVENTS_PER_TURN == 0 or checking is not None:
                for other in made.values():
                    other.envelope.at(now_ms)
        parts = [encoding.part(now_ms) for encoding in made.values()]
        is_in_order = len(parts) == 1 or all(one <= other for one, other in pairwise(order))
        return parts, () if is_in_order else order

    def event_topic(self, name: str) -> Topic:
        """Raises TopicNotFound or NotAnEventTopic."""
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
            envelope = self._envelopes[name] = Envelope(f"/topics/{name}".encode(), now_ms)
        return envelope.at(now_ms)

    # --- Kafka's door

    def produce(
        self,
        topic: Topic,
        batch: memoryview,
        header: BatchHeader,
        done: Done,
        timeout_ms: int = WAIT_MS_MAX,
        validate: Validate = validate,
    ) -> None:
        """Commit a producer's batch as it came, and call `done` later.

        Raises KafkaError or StorageError for what is seen at once, and what `validate` raises.
        """
        check = self._checks.check_batch if self._checks is not None else None
        self.committing.produce(topic, batch, header, check, done, timeout_ms, validate)


class _Encoding:
    """What is to become the part of one topic."""

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
        tail = self.envelope.tail_of(_new_tuple(NewEvent, (event_type, payload, metadata, key, None)), event_id)
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
            batch, header = self.topic.partitions[0].prepare(*batch_of_tails(self._tails, now_ms), now_ms)
        except StorageError as error:
            raise KafkaError(code_of(error), str(error)) from error
        return Part(self.topic, batch, header, now_ms, self._versions)


def _identity(draft: EventDraft) -> bytes:
    """What makes it the same event, beside its payload; an id or a time that was made for it does not."""
    metadata = sorted(draft.metadata.items()) if draft.metadata else ()
    said = draft.topic, draft.type, draft.event_id, draft.expected_version, metadata, draft.key
    # Tells any two of them apart, and is the same in every version of Python.
    return ascii(said).encode()


def _setter(future: "asyncio.Future[Outcome]") -> Done:
    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return done
