"""GET /ws: a WebSocket for commands. GET /rooms/{room}/subscribe: one room, as a WebSocket, as Server-Sent Events or as
lines of JSON, whichever the request's headers ask for.

    curl -N 'http://127.0.0.1:8082/rooms/lobby/subscribe?from_offset=-10'

The first thing a subscriber gets says where it begins (`epoch`, `oldest_offset`, `newest_offset`, `next_offset`,
`recovered`): as the answer to a command on a WebSocket, as a mark `subscribed` elsewhere. A browser that reconnects to
Server-Sent Events sends the last `id` it has seen as Last-Event-ID, and goes on behind it; since it cannot ask for
anything else, what is not there any more is a `gap` for it and not an error.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec
from aiohttp import web

from kwire.broker.rooms.rooms import Room
from kwire.broker.subscriptions import FROM_OLDEST, Start, SubscribeOptions, Subscription, SubscriptionFacts
from kwire.broker.subscriptions.marks import RETENTION, Closed, Gap, Mark
from kwire.broker.subscriptions.portions import Encoding, Portion
from kwire.errors import OffsetOutOfRange
from kwire.web.bodies import query_of
from kwire.web.errors import Refusal
from kwire.web.event_json import ShownEvent
from kwire.web.rooms.commands import SubscribePayload, options_of, start_of
from kwire.web.rooms.encodings import (
    NDJSON_HEARTBEAT,
    SSE_HEARTBEAT,
    ndjson_events,
    ndjson_mark,
    ndjson_subscribed,
    sse_events,
    sse_mark,
    sse_subscribed,
)
from kwire.web.rooms.rooms import ROOM
from kwire.web.rooms.socket_session import SocketSession
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import WebServices
from kwire.web.socket_upkeep import is_due
from kwire.web.stream_requests import RESUME_HEADERS, accept_of_request, is_upgrade, last_event_id, upgrade, wants
from kwire.web.streaming import LAST_CHUNK, Outlet, check_streamable, chunked_head, stream


class SubscribeQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to begin, and what becomes of a reader who is too slow."""

    from_offset: Annotated[
        int | None,
        msgspec.Meta(description="Nothing: new events only. 0: all there are. N: from there on. -N: so many back."),
    ] = None
    replay: Annotated[bool | None, msgspec.Meta(description="Alone: true is all there are. False: new only.")] = None
    from_time: Annotated[str | None, msgspec.Meta(description="Milliseconds since 1970, or ISO 8601.")] = None
    on_lag: Literal["terminate", "catchup", "drop"] = "terminate"
    types: Annotated[str | None, msgspec.Meta(description="Only events of these types, with commas between.")] = None
    epoch: Annotated[str | None, msgspec.Meta(description="Who comes back: the epoch it was told before.")] = None
    queue: Annotated[int | None, msgspec.Meta(description="Events it may be behind before `on_lag` acts.")] = None
    checkpoint_events: int | None = None
    checkpoint_ms: int | None = None


class StreamForm(NamedTuple):
    """How a room looks as the body of an HTTP answer."""

    content_type: str
    subscribed: Callable[[str, SubscriptionFacts], bytes]
    events: Encoding
    mark: Callable[[str, Mark], bytes]
    heartbeat: bytes


SSE_FORM = StreamForm(EVENT_STREAM, sse_subscribed, sse_events, sse_mark, SSE_HEARTBEAT)
NDJSON_FORM = StreamForm(NDJSON, ndjson_subscribed, ndjson_events, ndjson_mark, NDJSON_HEARTBEAT)


class RoomStream:
    """One subscription as the body of an answer; a session for the connection, and a sink for the subscription."""

    __slots__ = ("_beat_at", "_form", "_heartbeat_ms", "_outlet", "_subscription")

    _subscription: Subscription

    def __init__(self, form: StreamForm, heartbeat_ms: int) -> None:
        self._form = form
        self._heartbeat_ms = heartbeat_ms
        self._outlet: Outlet | None = None
        self._beat_at = 0.0

    def open(
        self, subscription: Subscription, facts: SubscriptionFacts, gap: Gap | None, outlet: Outlet
    ) -> "RoomStream":
        self._outlet = outlet
        self._subscription = subscription
        outlet.write(self._form.subscribed(subscription.name, facts))
        if gap is not None:
            outlet.write(self._form.mark(subscription.name, gap))
        if subscription.is_closed:
            self.stop()
        else:
            subscription.begin()
        return self

    def is_writable(self) -> bool:
        return self._outlet is not None and self._outlet.is_writable

    def send_events(self, subscription: Subscription, portion: Portion) -> None:
        assert self._outlet is not None
        self._outlet.write(portion.encoded(self._form.events))

    def send_mark(self, subscription: Subscription, mark: Mark) -> None:
        if self._outlet is None:
            return
        self._outlet.write(self._form.mark(subscription.name, mark))
        if type(mark) is Closed:
            self.stop()

    def received(self, data: bytes) -> None:
        """Nothing is expected behind the request, and nobody looks at it."""

    def writable(self) -> None:
        self._subscription.resume()

    def tick(self, now: float) -> None:
        assert self._outlet is not None
        if not self._beat_at:
            self._beat_at = now
        elif is_due(now, self._beat_at, self._heartbeat_ms) and self._outlet.is_writable:
            self._beat_at = now
            self._outlet.write(self._form.heartbeat)

    def stop(self) -> None:
        assert self._outlet is not None
        self._subscription.close()
        self._outlet.write(LAST_CHUNK)
        self._outlet.finish()

    def lost(self) -> None:
        self._subscription.close()


async def open_socket(services: WebServices, request: web.Request) -> web.StreamResponse:
    if not is_upgrade(request):
        raise Refusal(
            "this path speaks WebSocket: send Connection: Upgrade and Upgrade: websocket", code="NotWebSocket"
        )
    return await upgrade(services, request, SocketSession(services).open)


async def subscribe(services: WebServices, request: web.Request) -> web.StreamResponse:
    check_streamable(request)
    payload = _payload(request)
    start, options = start_of(payload), options_of(payload)
    if is_upgrade(request):
        accept_of_request(request)
        room = await services.rooms.get_or_create(payload.room)
        session = SocketSession(services, is_single=True)
        subscription = await _subscribed(services, room, start, session, options)
        try:
            return await upgrade(services, request, partial(session.open_subscribed, subscription=subscription))
        finally:
            subscription.close()
    form = SSE_FORM if wants(request, EVENT_STREAM) else NDJSON_FORM
    room = await services.rooms.get_or_create(payload.room)
    sink = RoomStream(form, services.config.web.ping_interval_ms)
    gap = None
    last_id = last_event_id(request) if form is SSE_FORM else None
    if last_id is None:
        subscription = await _subscribed(services, room, start, sink, options)
        facts = subscription.facts
    else:
        subscription, facts, gap = await _resumed(services, room, last_id, payload.from_offset, sink, options)
    try:
        head = chunked_head(request, form.content_type)
        return await stream(services, request, head, partial(sink.open, subscription, facts, gap))
    finally:
        subscription.close()


async def _subscribed(
    services: WebServices, room: Room, start: Start, sink: SocketSession | RoomStream, options: SubscribeOptions
) -> Subscription:
    return await services.subscriptions.subscribe(room.name, room.log, start, sink, options)


async def _resumed(
    services: WebServices,
    room: Room,
    last_id: int,
    from_offset: int | None,
    sink: RoomStream,
    options: SubscribeOptions,
) -> tuple[Subscription, SubscriptionFacts, Gap | None]:
    """Behind `last_id`, or as near to it as can be; `recovered` is false then."""
    gap = None
    # Who asked for what is still to come was told a place before it.
    is_before_start = from_offset is not None and last_id < from_offset
    if last_id <= room.log.bounds().newest or is_before_start:
        try:
            subscription = await _subscribed(services, room, Start.at(last_id + 1), sink, options)
            return subscription, subscription.facts, None
        except OffsetOutOfRange as error:
            gap = Gap(last_id + 1, error.oldest - 1, RETENTION)
    # Otherwise it has seen more than there is: the room is another one by now, or has lost its end.
    subscription = await _subscribed(services, room, FROM_OLDEST, sink, options)
    return subscription, subscription.facts._replace(recovered=False), gap


def _payload(request: web.Request) -> SubscribePayload:
    query = query_of(request, SubscribeQuery)
    return SubscribePayload(
        room=request.match_info["room"],
        from_offset=query.from_offset,
        replay=query.replay,
        from_time=query.from_time,
        on_lag=query.on_lag,
        types=None if query.types is None else query.types.split(","),
        epoch=query.epoch,
        queue=query.queue,
        checkpoint_events=query.checkpoint_events,
        checkpoint_ms=query.checkpoint_ms,
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/ws",
        open_socket,
        summary="A WebSocket for commands",
        description=(
            'Send `{"command", "payload", "request_id"}`; the commands are those of `POST /api/v1/command` and '
            "`stream.subscribe`. An answer has `request_id` and `result` or `error`, an event has `room` and `offset`, "
            "a mark has `control`."
        ),
        tag="rooms",
        answers={101: None},
        is_streaming=True,
    ),
    Route(
        "GET",
        "/rooms/{room}/subscribe",
        subscribe,
        summary="What is published, as it happens",
        description=(
            "As a WebSocket if it is asked for, as Server-Sent Events with `Accept: text/event-stream`, otherwise as "
            "lines of JSON."
        ),
        tag="rooms",
        query=SubscribeQuery,
        headers=RESUME_HEADERS,
        parameters={"room": ROOM},
        answers={200: Answer("Events and marks.", {EVENT_STREAM: None, NDJSON: ShownEvent})},
        is_streaming=True,
    ),
)
