"""GET /subscribe/all: every event of the event store in the order of its journal, from a global position on.
GET /subscribe/streams/{topic}: the events of one topic, from a version on.

    curl -N 'http://127.0.0.1:8082/subscribe/all?from=0'

Each as a WebSocket, as Server-Sent Events or as lines of JSON, whichever the request's headers ask for. First comes
what is stored, then a mark `caught_up`, then what is new, with nothing between them lost or repeated. The machine under
it is that of rooms (`kwire/broker/subscriptions/`), and so are its marks and its rules for readers who are too slow.

Unlike a room's, a place below the oldest there is is always refused: who asks for position 0 wants all of it.
"""

from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.broker.events.reading import EventReader
from kwire.broker.subscriptions import FROM_OLDEST, OnLag, Start, SubscribeOptions, Subscription, SubscriptionFacts
from kwire.broker.subscriptions.marks import RETENTION, Gap
from kwire.broker.subscriptions.readers import OpenReader
from kwire.broker.subscriptions.start import StartKind
from kwire.broker.topics import EVENTS_TOPIC
from kwire.errors import OffsetOutOfRange, RoomNotFound, SubscriptionFailed, TopicNotFound
from kwire.streams.log import StreamLog
from kwire.web.bodies import query_of
from kwire.web.events.encodings import ALL_FORMS, STREAM_FORMS, Forms
from kwire.web.events.event_lines import StoredEvent
from kwire.web.events.listening_socket import ListeningSocket
from kwire.web.rooms.subscribe import RoomStream
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import WebServices
from kwire.web.stream_requests import RESUME_HEADERS, accept_of_request, is_upgrade, last_event_id, upgrade, wants
from kwire.web.streaming import check_streamable, chunked_head, stream
from kwire.web.topics.lookup import TOPIC

PLACE_MAX = 2**63 - 1


class EventSubscribeQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to begin, and what becomes of a reader who is too slow."""

    from_: Annotated[
        Annotated[int, msgspec.Meta(ge=-PLACE_MAX, le=PLACE_MAX)] | Literal["oldest", "new"],
        msgspec.Meta(
            description="N: from that position or version on. -N: so many back. `oldest`: from the oldest there is. "
            "`new`, or nothing: new events only."
        ),
    ] = msgspec.field(default="new", name="from")
    from_time: Annotated[str | None, msgspec.Meta(description="Milliseconds since 1970, or ISO 8601.")] = None
    on_lag: Literal["terminate", "catchup", "drop"] = "terminate"
    types: Annotated[str | None, msgspec.Meta(description="Only events of these types, with commas between.")] = None
    epoch: Annotated[str | None, msgspec.Meta(description="Who comes back: the epoch it was told before.")] = None
    queue: Annotated[int | None, msgspec.Meta(description="Events it may be behind before `on_lag` acts.")] = None
    checkpoint_events: int | None = None
    checkpoint_ms: int | None = None


class _Stream(NamedTuple):
    """What is subscribed to, and how it is read and shown."""

    name: str
    log: StreamLog
    open_reader: OpenReader
    forms: Forms


class _Wanted(NamedTuple):
    start: Start
    options: SubscribeOptions


async def subscribe_all(services: WebServices, request: web.Request) -> web.StreamResponse:
    check_streamable(request)
    wanted = _wanted(request)
    store = services.event_store
    journal = await store.journal()
    return await _subscribe(services, request, _Stream(EVENTS_TOPIC, journal, store.global_reader, ALL_FORMS), wanted)


async def subscribe_stream(services: WebServices, request: web.Request) -> web.StreamResponse:
    check_streamable(request)
    wanted = _wanted(request)
    topic = services.event_store.event_topic(request.match_info["topic"])
    return await _subscribe(services, request, _Stream(topic.name, topic.stream(), EventReader, STREAM_FORMS), wanted)


async def _subscribe(
    services: WebServices, request: web.Request, source: _Stream, wanted: _Wanted
) -> web.StreamResponse:
    if is_upgrade(request):
        accept_of_request(request)
        socket = ListeningSocket(services, source.forms.socket)
        subscription = await _subscribed(services, source, wanted.start, socket, wanted.options)
        try:
            return await upgrade(services, request, partial(socket.open, subscription))
        finally:
            subscription.close()
    form = source.forms.sse if wants(request, EVENT_STREAM) else source.forms.ndjson
    sink = RoomStream(form, services.config.web.ping_interval_ms)
    last_id = last_event_id(request) if form is source.forms.sse else None
    gap = None
    if last_id is None:
        subscription = await _subscribed(services, source, wanted.start, sink, wanted.options)
        facts = subscription.facts
    else:
        subscription, facts, gap = await _resumed(services, source, last_id, wanted, sink)
    try:
        head = chunked_head(request, form.content_type)
        return await stream(services, request, head, partial(sink.open, subscription, facts, gap))
    finally:
        subscription.close()


async def _subscribed(
    services: WebServices, source: _Stream, start: Start, sink: ListeningSocket | RoomStream, options: SubscribeOptions
) -> Subscription:
    name, log, open_reader, _ = source
    try:
        return await services.subscriptions.subscribe(name, log, start, sink, options, open_reader)
    except RoomNotFound:
        raise TopicNotFound(name) from None


async def _resumed(
    services: WebServices, source: _Stream, last_id: int, wanted: _Wanted, sink: RoomStream
) -> tuple[Subscription, SubscriptionFacts, Gap | None]:
    """Behind `last_id`, or as near to it as can be: a browser cannot ask for anything else."""
    gap = None
    # Who asked for what is still to come was told a place before it.
    is_before_start = wanted.start.kind is StartKind.OFFSET and last_id < wanted.start.value
    if last_id <= source.log.bounds().newest or is_before_start:
        try:
            subscription = await _subscribed(services, source, Start.at(last_id + 1), sink, wanted.options)
            return subscription, subscription.facts, None
        except OffsetOutOfRange as error:
            gap = Gap(last_id + 1, error.oldest - 1, RETENTION)
    # Otherwise it has seen more than there is: the topic is another one by now.
    subscription = await _subscribed(services, source, FROM_OLDEST, sink, wanted.options)
    return subscription, subscription.facts._replace(recovered=False), gap


def _wanted(request: web.Request) -> _Wanted:
    query = query_of(request, EventSubscribeQuery)
    options = SubscribeOptions(
        on_lag=OnLag(query.on_lag),
        queue_events_max=query.queue,
        checkpoint_events=query.checkpoint_events,
        checkpoint_ms=query.checkpoint_ms,
        types=None if query.types is None else frozenset(query.types.split(",")),
        epoch=query.epoch,
    )
    place = query.from_
    if place != "new" and query.from_time is not None:
        raise SubscriptionFailed("from and from_time exclude each other")
    if isinstance(place, int):
        return _Wanted(Start.back(-place) if place < 0 else Start(StartKind.OFFSET, place), options)
    return _Wanted(FROM_OLDEST if place == "oldest" else Start.parse(from_time=query.from_time), options)


_MARKS = (
    "The first message is a mark `subscribed` (`epoch`, oldest, newest and next place, `recovered`). Marks have "
    "`control`: `caught_up`, `checkpoint`, `lagging`, `gap`, `closed`. As a WebSocket if it is asked for, as "
    "Server-Sent Events with `Accept: text/event-stream`, otherwise as lines of JSON."
)
_ANSWERS = {200: Answer("Events and marks.", {EVENT_STREAM: None, NDJSON: StoredEvent})}

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/subscribe/all",
        subscribe_all,
        summary="Every event of the event store, in global order",
        description="Stored events from the global position `from` on, then new ones as they come. " + _MARKS,
        tag="events",
        query=EventSubscribeQuery,
        headers=RESUME_HEADERS,
        answers=_ANSWERS,
        is_streaming=True,
    ),
    Route(
        "GET",
        "/subscribe/streams/{topic}",
        subscribe_stream,
        summary="The events of one topic of the event store",
        description="Stored events from the version `from` on, then new ones as they come. " + _MARKS,
        tag="events",
        query=EventSubscribeQuery,
        headers=RESUME_HEADERS,
        parameters={"topic": TOPIC},
        answers=_ANSWERS,
        is_streaming=True,
    ),
)
