"""Drafts of events, and DraftEncoder: checks the events of one request, and encodes them as records by topic."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

from kwire.access.scope import plain_part
from kwire.errors import EventTooLarge, InvalidEvent, StreamError
from kwire.streams.event_store.idempotency_keys import Digest
from kwire.streams.event_store.journal import PARTS_MAX
from kwire.streams.events.event import EMPTY, Envelope, NewEvent
from kwire.streams.events.traceparent import TRACEPARENT
from kwire.streams.topic_directory import StreamTopic
from storage.batch.builder import batch_bytes_max

EVENTS_MAX = 10_000
# Events of one request that are checked and encoded between two yields to the event loop.
EVENTS_PER_TURN = 500
# Topics whose envelopes are cached. When the cache is full, it is cleared.
ENVELOPES_MAX = 1000

# Creating a NamedTuple with `tuple.__new__` takes half the time of calling its class.
_new_tuple = tuple.__new__

T = TypeVar("T", bound=StreamTopic)


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


class DraftCheck(Protocol):
    def __call__(self, topic: StreamTopic, draft: EventDraft) -> Awaitable[object] | None:
        """Raise a StreamError if the event is refused.

        If an awaitable is returned, the caller must await it to complete the check. Awaiting it may raise the error.
        """
        ...


class TopicDrafts(Generic[T]):
    """The encoded events of one topic. `number` is the index of the topic in the request.

    `versions` contains a pair for each event with an expected version: the event's index in `bodies`, and the version.
    """

    def __init__(self, topic: T, envelope: Envelope, number: int) -> None:
        self.topic = topic
        self.envelope = envelope
        self.number = number
        self.bodies: list[bytes] = []
        self.versions: list[tuple[int, int]] = []
        self._bodies_bytes = 0
        self._bytes_max = topic.max_message_bytes

    def add(self, draft: EventDraft, event_id: str) -> None:
        _, event_type, payload, metadata, key, _, expected_version = draft
        body = self.envelope.encode_body(_new_tuple(NewEvent, (event_type, payload, metadata, key, None)), event_id)
        self._bodies_bytes += len(body)
        if self._bodies_bytes > self._bytes_max:
            raise EventTooLarge(self._bodies_bytes, self._bytes_max)
        if expected_version is not None:
            self.versions.append((len(self.bodies), expected_version))
        self.bodies.append(body)

    def check_size(self) -> None:
        """Raise EventTooLarge if the batch may be too large for its topic."""
        size_bytes = batch_bytes_max(self._bodies_bytes, len(self.bodies))
        if size_bytes > self._bytes_max:
            raise EventTooLarge(size_bytes, self._bytes_max)


class EncodedDrafts(NamedTuple, Generic[T]):
    """The events of one request by topic, and the topic's number of each event.

    `order` is empty if the events are already in the order of the topics.
    """

    topics: Sequence[TopicDrafts[T]]
    order: Sequence[int]


class DraftEncoder(Generic[T]):
    """`topic_of` finds an event topic or raises a StreamError. `last_header` is added to every record."""

    def __init__(self, topic_of: Callable[[str], T], check: DraftCheck | None = None, last_header: bytes = b"") -> None:
        self._topic_of = topic_of
        self._check = check
        self._last_header = last_header
        self._envelopes: dict[str, Envelope] = {}
        self._generated_ids = 0

    async def encode(
        self, drafts: Sequence[EventDraft], now_ms: int, process_number: int, digest: Digest | None
    ) -> EncodedDrafts[T]:
        """Check and encode events. Raises StreamError, with the index of the event, if one is refused.

        `process_number` distinguishes the generated ids from those of earlier processes.
        """
        if not drafts:
            raise InvalidEvent("the request contains no events")
        if len(drafts) > EVENTS_MAX:
            raise InvalidEvent(f"the request has {len(drafts)} events, at most {EVENTS_MAX} are allowed")
        # The prefix of generated ids, before a number.
        id_prefix = f"evt_{now_ms:x}-{process_number:x}-"
        by_topic: dict[str, TopicDrafts[T]] = {}
        order: list[int] = []
        checking: Awaitable[object] | None = None
        for number, draft in enumerate(drafts, start=1):
            encoded = by_topic.get(draft.topic)
            if encoded is None:
                if len(by_topic) >= PARTS_MAX:
                    raise InvalidEvent(f"the request has events for more than {PARTS_MAX} topics")
                topic = self._topic_of(draft.topic)
                encoded = by_topic[draft.topic] = TopicDrafts(topic, self._envelope(topic.name, now_ms), len(by_topic))
            if self._check is not None:
                try:
                    checking = self._check(encoded.topic, draft)
                    if checking is not None:
                        await checking
                        encoded.envelope.at(now_ms)
                except StreamError as error:
                    error.details["index"] = number - 1
                    raise
            event_id = draft.event_id
            if not event_id:
                self._generated_ids += 1
                event_id = f"{id_prefix}{self._generated_ids:x}"
            encoded.add(draft, event_id)
            order.append(encoded.number)
            if digest is not None:
                digest.add(_identity(draft), draft.payload)
            if number % EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            # Set the time of the envelopes again. Other tasks use the same envelopes, and one of them may have set
            # another time while this task waited.
            if number % EVENTS_PER_TURN == 0 or checking is not None:
                for other in by_topic.values():
                    other.envelope.at(now_ms)
        topics = list(by_topic.values())
        is_in_order = len(topics) == 1 or all(one <= other for one, other in pairwise(order))
        return EncodedDrafts(topics, () if is_in_order else order)

    def _envelope(self, name: str, now_ms: int) -> Envelope:
        envelope = self._envelopes.get(name)
        if envelope is None:
            if len(self._envelopes) >= ENVELOPES_MAX:
                self._envelopes.clear()
            source = f"/topics/{plain_part(name)}".encode()
            envelope = self._envelopes[name] = Envelope(source, now_ms, self._last_header)
        return envelope.at(now_ms)


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
