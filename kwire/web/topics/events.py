"""Events of partitioned topics: POST /topics/{topic}/publish and POST /topics/{topic}/partitions/{partition}/consume.

The hash of an event's key determines the partition, as in Kafka's Java client. Events without a key are distributed
round-robin. A publish request is answered when its events are as durable as the topic requires.

The body of a publish request is one event or an array of events. All events of an array are checked before any of them
is stored. If the log refuses some of the checked events, the status is 207. If the log refuses all of them, the answer
is an error. Otherwise the status is 200. With status 200 and 207 the answer to an array has one result for each event.

A consume request only reads. It commits nothing and can be repeated. `from_offset` selects the first event: null or 0
is the oldest event, -N is the first of the N newest events. For an offset beyond the end the answer has no events. The
answer ends after `limit` events, or after CONSUME_BYTES_MAX bytes. Its `next_offset` is the `from_offset` of the next
request.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.access.scope import plain_part
from kwire.errors import InvalidEvent, KafkaError, OffsetOutOfRange
from kwire.streams.events.event import EMPTY, TYPE_BYTES_MAX, Event, NewEvent, checked_json, record_of
from kwire.streams.events.last_events import offset_of_last
from kwire.streams.events.publishing import Outcome
from kwire.streams.events.reading import EventReader
from kwire.streams.events.traceparent import traced
from kwire.streams.log import NotReady, StreamLog
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.errors import BadRequest, ErrorFacts
from kwire.web.answers.event_json import Metadata
from kwire.web.answers.large_answers import Parts, PartSizes, stream_answer
from kwire.web.needs import READ_TOPIC, WRITE_TOPIC
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import check_is_json, checked_and_decoded_events, json_answer, raw_body_of
from kwire.web.requests.body_limits import check_events
from kwire.web.requests.key_limits import CountedEvents
from kwire.web.requests.memory import MemoryExhausted
from kwire.web.requests.request_ids import traceparent_of
from kwire.web.route import JSON, Answer, AnyOf, Route
from kwire.web.services import PortServices, TopicServices
from kwire.web.topics.chunk_budget import ChunkBudget
from kwire.web.topics.lookup import PARTITION, TOPIC, find_log, find_topic
from kwire.web.topics.topics import check_enabled, optional_body_of
from storage.batch.builder import batch_bytes_max
from storage.batch.record_batch import Record

# The handler yields to the event loop after this many events. Preparing and publishing one event takes about ten
# microseconds.
EVENTS_PER_CHUNK = 500
EVENTS_PER_REQUEST_MAX = 10_000
# Used to estimate the size of an event that has no id yet. It is at least as long as any generated id.
PLACEHOLDER_ID = "evt_" + "0" * 60
# The maximum size of two encoded lengths: of a key and a value, or of a header's name and value.
LENGTHS_BYTES = 16
CONSUME_LIMIT_DEFAULT = 100
CONSUME_LIMIT_MAX = 10_000
CONSUME_BYTES_MAX = 8 * 1024 * 1024

OFFSET_MAX = 2**63 - 1


class TopicPublish(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    event_type: Annotated[str, msgspec.Meta(min_length=1, max_length=TYPE_BYTES_MAX)]
    data: Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON value.")]
    key: (
        Annotated[str, msgspec.Meta(description="Events with the same key are in the same partition, in order.")] | None
    ) = None
    metadata: Metadata | None = None


MANY: Any = Annotated[list[TopicPublish], msgspec.Meta(min_length=1, max_length=EVENTS_PER_REQUEST_MAX)]
ONE_OR_MANY: Any = TopicPublish | MANY


class TopicPublished(msgspec.Struct, kw_only=True):
    partition_id: int
    offset: int
    topic: str


class EventOutcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of one event of an array: its partition, and either its offset or its error."""

    partition_id: int
    offset: int | None = None
    error: ErrorFacts | None = None


class TopicPublishedArray(msgspec.Struct, kw_only=True):
    """The result of an array. `events` has one result per event, in the request's order. `count` events are stored."""

    topic: str
    count: int
    events: list[EventOutcome]


class Consume(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    from_offset: Annotated[int, msgspec.Meta(ge=-OFFSET_MAX, le=OFFSET_MAX)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=CONSUME_LIMIT_MAX)] = CONSUME_LIMIT_DEFAULT


class TopicEvent(msgspec.Struct, kw_only=True):
    """An event of a topic. `timestamp` is in seconds since 1970. `key` is a string, or `{"base64": …}` if the key is
    not valid UTF-8."""

    id: str
    partition_id: int
    offset: int
    topic: str
    event_type: str
    key: str | dict[str, str] | None
    data: msgspec.Raw
    timestamp: int
    size_bytes: int
    metadata: dict[str, str]


class Consumed(msgspec.Struct, kw_only=True):
    topic: str
    partition_id: int
    events: list[TopicEvent]
    next_offset: int
    count: int


# --- publish


class _PendingEvent(NamedTuple):
    """An event to publish, and the log of its partition. `number` is the index of the event in the request."""

    number: int
    log: StreamLog
    event: NewEvent


async def publish(services: TopicServices, request: web.Request) -> web.Response:
    check_enabled(services.port)
    check_is_json(request)
    raw = await raw_body_of(request)
    topic = await find_topic(services.topics, request)
    asked: TopicPublish | list[TopicPublish] = await checked_and_decoded_events(
        services.port.body_checks, raw, ONE_OR_MANY, check_events
    )
    access = access_of(request)
    source = f"/topics/{plain_part(topic.name)}".encode()
    traceparent = traceparent_of(request)
    if isinstance(asked, TopicPublish):
        pending = _prepare(services, topic, 0, asked, traceparent)
        async with CountedEvents(access, 1):
            published = await services.publisher.publish_and_wait(pending.log, source, (pending.event,))
        return json_answer(
            TopicPublished(partition_id=pending.log.partition, offset=published.offset, topic=access.shown(topic.name))
        )
    return await _publish_many(services, access, topic, source, asked, traceparent)


async def _publish_many(
    services: TopicServices,
    access: RequestAccess,
    topic: StreamTopic,
    source: bytes,
    asked: Sequence[TopicPublish],
    traceparent: str | None,
) -> web.Response:
    now_ms = services.port.clock.now_ms()
    pending: list[_PendingEvent] = []
    sizes: list[int] = []
    budget = ChunkBudget()
    for index, one in enumerate(asked):
        try:
            pending.append(_prepare(services, topic, index, one, traceparent))
            sizes.append(_size_bytes(record_of(pending[-1].event, source, PLACEHOLDER_ID, now_ms)))
        except InvalidEvent as error:
            raise BadRequest(f"events[{index}]: {error.message}", code=error.code) from None
        if budget.is_spent(sizes[-1]):
            await asyncio.sleep(0)
    outcomes: list[EventOutcome | None] = [None] * len(pending)
    errors: list[Exception] = []
    stored_count = 0
    waits = []
    async with CountedEvents(access, len(pending)) as counted:
        for first in range(0, len(pending), EVENTS_PER_CHUNK):
            for call in _calls(pending[first : first + EVENTS_PER_CHUNK], sizes, topic.max_message_bytes):
                events = [one.event for one in call]
                waits.append((call, _begin(services, call[0].log, source, events)))
            await asyncio.sleep(0)
        for call, answered in waits:
            outcome = await answered
            if isinstance(outcome, Exception):
                errors.append(outcome)
            else:
                stored_count += len(call)
            for at, event in enumerate(call):
                outcomes[event.number] = _outcome(access, event.log.partition, outcome, at)
        if not stored_count:
            raise errors[0]
        counted.give_back(len(pending) - stored_count)
    results = [one for one in outcomes if one is not None]
    answer = TopicPublishedArray(topic=access.shown(topic.name), count=stored_count, events=results)
    return json_answer(answer, status=207 if errors else 200)


def _begin(
    services: TopicServices, log: StreamLog, source: bytes, events: Sequence[NewEvent]
) -> "asyncio.Future[Outcome]":
    answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome) -> None:
        if not answered.done():  # the request may have been cancelled
            answered.set_result(outcome)

    services.publisher.publish(log, source, events, done)
    return answered


def _prepare(
    services: TopicServices, topic: StreamTopic, index: int, asked: TopicPublish, traceparent: str | None
) -> _PendingEvent:
    key = asked.key.encode() if asked.key is not None else None
    log = topic.stream(services.partitioner.choose(topic.name, key, topic.partition_count))
    data = checked_json(bytes(asked.data), stored_bytes_max=topic.max_message_bytes)
    event = traced(NewEvent(asked.event_type, data, asked.metadata or EMPTY, key), traceparent)
    return _PendingEvent(index, log, event)


def _size_bytes(record: Record) -> int:
    """Return the maximum size of a record in a batch, without the batch's header."""
    headers = sum(len(name.encode()) + len(value or b"") + LENGTHS_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + LENGTHS_BYTES


def _calls(pending: Sequence[_PendingEvent], sizes: Sequence[int], bytes_max: int) -> Iterator[list[_PendingEvent]]:
    """Group the events by partition, in order, so that each group fits into one record batch of the topic.

    A single event that may be too large for a batch is a group of its own.
    """
    calls: dict[StreamLog, list[_PendingEvent]] = {}
    taken: dict[StreamLog, int] = {}
    for one in pending:
        call, size_bytes = calls.get(one.log), taken.get(one.log, 0) + sizes[one.number]
        if call is not None and batch_bytes_max(size_bytes, len(call) + 1) > bytes_max:
            yield calls.pop(one.log)
            call, size_bytes = None, sizes[one.number]
        if call is None:
            call = calls[one.log] = []
        call.append(one)
        taken[one.log] = size_bytes
    yield from calls.values()


def _outcome(access: RequestAccess, partition_id: int, outcome: Outcome, at: int) -> EventOutcome:
    if isinstance(outcome, Exception):
        error = access.shown_error(outcome)
        return EventOutcome(partition_id=partition_id, error=ErrorFacts(code=error["code"], message=error["message"]))
    return EventOutcome(partition_id=partition_id, offset=outcome.offset + at)


# --- consume


async def consume(services: TopicServices, request: web.Request) -> web.StreamResponse:
    check_enabled(services.port)
    asked = await optional_body_of(request, Consume)
    topic = await find_topic(services.topics, request)
    log = find_log(topic, request)
    start = await _start(log, asked.from_offset)
    shown_topic = access_of(request).shown(topic.name)
    return await stream_answer(request, _consumed(services.port, log, shown_topic, start, asked.limit), JSON)


async def _consumed(port: PortServices, log: StreamLog, shown_topic: str, start: int, limit: int) -> Parts:
    """Generate the JSON of a `Consumed`, in parts."""
    front = msgspec.json.encode({"topic": shown_topic, "partition_id": log.partition, "events": []})[:-2]
    reader = EventReader(log, start)
    sizes = PartSizes(port)
    next_offset = start
    count = bytes_taken = 0
    try:
        while count < limit and bytes_taken < CONSUME_BYTES_MAX:
            try:
                bytes_max = min(await sizes.next_bytes_max(), CONSUME_BYTES_MAX - bytes_taken)
                events = reader.read(min(EVENTS_PER_CHUNK, limit - count), bytes_max)
                if not isinstance(events, NotReady):
                    sizes.check(events)
            except (KafkaError, OffsetOutOfRange, MemoryExhausted):
                # The next offset cannot be read. It is damaged, or retention has deleted it, or the memory is
                # exhausted. If the answer already has events, it ends before this offset.
                if count:
                    break
                raise
            if isinstance(events, NotReady):
                await events.wait()
                continue
            next_offset = reader.next_offset
            if not events:
                break
            count += len(events)
            bytes_taken += sum(one.size_bytes for one in events)
            part = front + msgspec.json.encode([shown_event(shown_topic, log.partition, one) for one in events])[1:-1]
            # Release the events before the yield: sending the part to a slow client may take long.
            del events
            reader.release_buffers()
            yield part
            front = b","
    finally:
        sizes.release()
    yield b'%b],"next_offset":%d,"count":%d}' % (front if front != b"," else b"", next_offset, count)


async def _start(log: StreamLog, from_offset: int | None) -> int:
    await log.ready()
    bounds = log.bounds()
    if not from_offset:
        return bounds.start
    if from_offset < 0:
        return await offset_of_last(log, -from_offset)
    if from_offset < bounds.start:
        raise OffsetOutOfRange(from_offset, bounds.start, bounds.newest)
    return from_offset


def shown_event(topic: str, partition_id: int, event: Event) -> TopicEvent:
    return TopicEvent(
        id=event.event_id,
        partition_id=partition_id,
        offset=event.offset,
        topic=topic,
        event_type=event.type,
        key=None if event.key is None else shown_key(event.key),
        data=msgspec.Raw(event.data),
        timestamp=event.timestamp_ms // 1000,
        size_bytes=event.size_bytes,
        metadata=dict(event.metadata),
    )


def shown_key(key: bytes) -> str | dict[str, str]:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(key).decode()}


ROUTES: tuple[Route[TopicServices], ...] = (
    Route(
        "POST",
        "/topics/{topic}/publish",
        publish,
        summary="Publish one event, or an array of them",
        description="The key determines the partition; events without a key are distributed round-robin. The "
        "response to an array has one result per event.",
        tag="topics",
        parameters={"topic": TOPIC},
        request=ONE_OR_MANY,
        answers={
            200: Answer("Stored.", {JSON: AnyOf((TopicPublished, TopicPublishedArray))}),
            207: Answer("Some events of an array were not stored.", {JSON: TopicPublishedArray}),
        },
        needs=(WRITE_TOPIC,),
        charges=QuotaKind.PRODUCE,
    ),
    Route(
        "POST",
        "/topics/{topic}/partitions/{partition}/consume",
        consume,
        summary="Read events of a partition",
        description="Commits nothing and can be repeated. `from_offset`: null or 0 is the oldest event, -N the N "
        "newest. `next_offset` is the start of the next request.",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        request=Consume,
        answers={200: Consumed},
        needs=(READ_TOPIC,),
        charges=QuotaKind.CONSUME,
    ),
)
