"""Events of partitioned topics: POST /topics/{topic}/publish and POST /topics/{topic}/partitions/{partition}/consume.

The key of an event decides its partition, by the same hash as Kafka's Java client; events without one go to the
partitions by turns. Publish is answered when the events are as durable as the topic promises.

An array publishes many at once. All of them are checked before any is stored; what the log refuses later is told for
each event, with status 207, unless it refuses them all.

Consume is a read: it moves nothing, and the same request can be made again. `from_offset` is where it begins: null or 0
is the oldest there is, -N is the N newest, beyond the end is the end. The answer ends at `limit` events, or earlier
when they are large; `next_offset` is where to go on.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from kwire.broker.events.counting_back import offset_of_last
from kwire.broker.events.event import EMPTY, TYPE_BYTES_MAX, Event, NewEvent, checked_json, record_of
from kwire.broker.events.publishing import Outcome
from kwire.broker.events.reading import EventReader
from kwire.broker.topics import Topic
from kwire.errors import InvalidEvent, KafkaError, OffsetOutOfRange
from kwire.streams.log import NotReady, StreamLog
from kwire.web.bodies import check_is_json, checked_and_decoded, json_answer, raw_body_of
from kwire.web.body_bounds import check_events, check_objects
from kwire.web.errors import BadRequest, ErrorFacts, error_body
from kwire.web.event_json import Metadata
from kwire.web.large_answers import Parts, PartSizes, stream_answer
from kwire.web.memory import MemoryExhausted
from kwire.web.route import JSON, Answer, AnyOf, Route
from kwire.web.services import WebServices
from kwire.web.topics.lookup import PARTITION, TOPIC, find_log, find_topic
from kwire.web.topics.topics import check_enabled, optional_body_of
from kwire.web.turns import BodyTurns
from storage.batch import Record
from storage.batch_writing import batch_bytes_max

# To check, place and hand over an event takes some ten microseconds; then the loop gets its turn.
EVENTS_PER_TURN = 500
EVENTS_PER_REQUEST_MAX = 10_000
# Stands for the id that an event gets when it is published, and is at least as long.
SOME_ID = "evt_" + "0" * 60
# Of two lengths in a record, at most.
LENGTHS_BYTES = 16
CONSUME_LIMIT_DEFAULT = 100
CONSUME_LIMIT_MAX = 10_000
CONSUME_BYTES_MAX = 8 * 1024 * 1024

OFFSET_MAX = 2**63 - 1


class TopicPublish(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    event_type: Annotated[str, msgspec.Meta(min_length=1, max_length=TYPE_BYTES_MAX)]
    data: Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON.")]
    key: Annotated[str, msgspec.Meta(description="Events of one key are in one partition, in order.")] | None = None
    metadata: Metadata | None = None


MANY: Any = Annotated[list[TopicPublish], msgspec.Meta(min_length=1, max_length=EVENTS_PER_REQUEST_MAX)]
ONE_OR_MANY: Any = TopicPublish | MANY


class TopicPublished(msgspec.Struct, kw_only=True):
    partition_id: int
    offset: int
    topic: str


class EventOutcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where an event is, or why it is not stored."""

    partition_id: int
    offset: int | None = None
    error: ErrorFacts | None = None


class TopicPublishedArray(msgspec.Struct, kw_only=True):
    """`events` are in the order of the request; `count` of them are stored."""

    topic: str
    count: int
    events: list[EventOutcome]


class Consume(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    from_offset: Annotated[int, msgspec.Meta(ge=-OFFSET_MAX, le=OFFSET_MAX)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=CONSUME_LIMIT_MAX)] = CONSUME_LIMIT_DEFAULT


class TopicEvent(msgspec.Struct, kw_only=True):
    """`timestamp` is in seconds since 1970. A key that is no text is `{"base64": …}`."""

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


class _Placed(NamedTuple):
    """An event and the log it goes to; `number` is its place in the request."""

    number: int
    log: StreamLog
    event: NewEvent


async def publish(services: WebServices, request: web.Request) -> web.Response:
    check_enabled(services)
    check_is_json(request)
    raw = await raw_body_of(request)
    check_objects(raw)
    topic = find_topic(services, request)
    asked: TopicPublish | list[TopicPublish] = checked_and_decoded(raw, ONE_OR_MANY, check_events)
    source = f"/topics/{topic.name}".encode()
    if isinstance(asked, TopicPublish):
        placed = _place(services, topic, 0, asked)
        published = await services.publisher.publish_and_wait(placed.log, source, (placed.event,))
        return json_answer(TopicPublished(partition_id=placed.log.partition, offset=published.offset, topic=topic.name))
    return await _publish_many(services, topic, source, asked)


async def _publish_many(
    services: WebServices, topic: Topic, source: bytes, asked: Sequence[TopicPublish]
) -> web.Response:
    now_ms = services.clock.now_ms()
    placed: list[_Placed] = []
    sizes: list[int] = []
    turns = BodyTurns()
    for index, one in enumerate(asked):
        try:
            placed.append(_place(services, topic, index, one))
            sizes.append(_size_bytes(record_of(placed[-1].event, source, SOME_ID, now_ms)))
        except InvalidEvent as error:
            raise BadRequest(f"events[{index}]: {error.message}", code=error.code) from None
        if turns.is_over(sizes[-1]):
            await asyncio.sleep(0)
    outcomes: list[EventOutcome | None] = [None] * len(placed)
    errors: list[Exception] = []
    stored_count = 0
    waits = []
    for first in range(0, len(placed), EVENTS_PER_TURN):
        for call in _calls(placed[first : first + EVENTS_PER_TURN], sizes, topic.settings.max_message_bytes):
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
            outcomes[event.number] = _outcome(event.log.partition, outcome, at)
    if not stored_count:
        raise errors[0]
    told = [one for one in outcomes if one is not None]
    answer = TopicPublishedArray(topic=topic.name, count=stored_count, events=told)
    return json_answer(answer, status=207 if errors else 200)


def _begin(
    services: WebServices, log: StreamLog, source: bytes, events: Sequence[NewEvent]
) -> "asyncio.Future[Outcome]":
    answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome) -> None:
        if not answered.done():  # whoever asked may be gone
            answered.set_result(outcome)

    services.publisher.publish(log, source, events, done)
    return answered


def _place(services: WebServices, topic: Topic, index: int, asked: TopicPublish) -> _Placed:
    key = asked.key.encode() if asked.key is not None else None
    log = topic.stream(services.partitioner.choose(topic.name, key, len(topic.partitions)))
    data = checked_json(bytes(asked.data), stored_bytes_max=topic.settings.max_message_bytes)
    event = NewEvent(asked.event_type, data, asked.metadata or EMPTY, key)
    return _Placed(index, log, event)


def _size_bytes(record: Record) -> int:
    """What it takes in a batch at most, without its place there."""
    headers = sum(len(name.encode()) + len(value or b"") + LENGTHS_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + LENGTHS_BYTES


def _calls(placed: Sequence[_Placed], sizes: Sequence[int], bytes_max: int) -> Iterator[list[_Placed]]:
    """Events of one partition together, in order, as many as the topic takes as one batch."""
    calls: dict[StreamLog, list[_Placed]] = {}
    taken: dict[StreamLog, int] = {}
    for one in placed:
        call, size_bytes = calls.get(one.log), taken.get(one.log, 0) + sizes[one.number]
        if call is not None and batch_bytes_max(size_bytes, len(call) + 1) > bytes_max:
            yield calls.pop(one.log)
            call, size_bytes = None, sizes[one.number]
        if call is None:
            call = calls[one.log] = []
        call.append(one)
        taken[one.log] = size_bytes
    yield from calls.values()


def _outcome(partition_id: int, outcome: Outcome, at: int) -> EventOutcome:
    if isinstance(outcome, Exception):
        told = error_body(outcome)
        return EventOutcome(partition_id=partition_id, error=ErrorFacts(code=told["code"], message=told["message"]))
    return EventOutcome(partition_id=partition_id, offset=outcome.offset + at)


# --- consume


async def consume(services: WebServices, request: web.Request) -> web.StreamResponse:
    check_enabled(services)
    asked = await optional_body_of(request, Consume)
    topic = find_topic(services, request)
    log = find_log(topic, request)
    start = await _start(log, asked.from_offset)
    return await stream_answer(request, _consumed(services, log, start, asked.limit), JSON)


async def _consumed(services: WebServices, log: StreamLog, start: int, limit: int) -> Parts:
    """A `Consumed` as JSON, in parts."""
    front = msgspec.json.encode({"topic": log.topic, "partition_id": log.partition, "events": []})[:-2]
    reader = EventReader(log, start)
    sizes = PartSizes(services)
    next_offset = start
    count = bytes_taken = 0
    try:
        while count < limit and bytes_taken < CONSUME_BYTES_MAX:
            try:
                bytes_max = min(await sizes.next_bytes_max(), CONSUME_BYTES_MAX - bytes_taken)
                events = reader.read(min(EVENTS_PER_TURN, limit - count), bytes_max)
                if not isinstance(events, NotReady):
                    sizes.check(events)
            except (KafkaError, OffsetOutOfRange, MemoryExhausted):
                # Retention may overtake a reader, and a place may be damaged: what came before it is answered first.
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
            part = front + msgspec.json.encode([shown_event(log.topic, log.partition, one) for one in events])[1:-1]
            # A client that does not take the part holds it, and not the events as well.
            del events
            reader.put_down()
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


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/topics/{topic}/publish",
        publish,
        summary="Publish one event, or an array of them",
        description="The key decides the partition; without one they take turns. An array is answered with an array.",
        tag="topics",
        parameters={"topic": TOPIC},
        request=ONE_OR_MANY,
        answers={
            200: Answer("Stored.", {JSON: AnyOf((TopicPublished, TopicPublishedArray))}),
            207: Answer("Some of an array are not stored.", {JSON: TopicPublishedArray}),
        },
    ),
    Route(
        "POST",
        "/topics/{topic}/partitions/{partition}/consume",
        consume,
        summary="Read events of a partition",
        description="It moves nothing and can be repeated. `from_offset`: null or 0 is the oldest, -N the N newest. "
        "`next_offset` is where to go on.",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        request=Consume,
        answers={200: Consumed},
    ),
)
