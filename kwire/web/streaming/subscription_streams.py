"""Answers a GET request with a subscription: a WebSocket, Server-Sent Events or NDJSON, depending on the headers.

A browser that reconnects to Server-Sent Events sends the last `id` that it received as Last-Event-ID. The new
subscription starts after this offset. If retention has deleted the next events, the server sends a `gap` and not an
error, because the browser cannot choose another start.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

from aiohttp import web

from kwire.access.principal import Principal
from kwire.errors import OffsetOutOfRange, RoomNotFound, StreamError
from kwire.streams.log import StreamLog
from kwire.streams.subscriptions import (
    FROM_OLDEST,
    Sink,
    Start,
    SubscribeOptions,
    Subscription,
    SubscriptionFacts,
    Subscriptions,
)
from kwire.streams.subscriptions.control_messages import RETENTION, Closed, ControlMessage, Gap
from kwire.streams.subscriptions.event_batches import Encoding, EventBatch
from kwire.streams.subscriptions.event_reader import OpenReader
from kwire.streams.subscriptions.start import StartKind
from kwire.web.requests.access import FORBIDDEN, RequestAccess, access_of
from kwire.web.requests.bodies import query_of
from kwire.web.requests.key_limits import SubscriptionSlot
from kwire.web.route import EVENT_STREAM
from kwire.web.services import PortServices
from kwire.web.streaming.stream_requests import accept_of_request, accepts, is_upgrade, last_event_id, upgrade
from kwire.web.streaming.streaming import LAST_CHUNK, Outlet, Session, check_streamable, chunked_head, stream
from kwire.web.streaming.subscribe_requests import SubscribeQuery
from kwire.web.streaming.websocket_keepalive import is_due


class StreamFormat(NamedTuple):
    """The encoding of a subscription as the body of an HTTP answer."""

    content_type: str
    subscribed: Callable[[str, SubscriptionFacts], bytes]
    events: Encoding
    control: Callable[[str, ControlMessage], bytes]
    heartbeat: bytes


class SubscribedSocket(Sink, Protocol):
    """A WebSocket whose subscription was created before the handshake."""

    def open_subscribed(self, outlet: Outlet, subscription: Subscription) -> Session: ...


# Returns a batch with only the events that the client may read.
SelectEvents = Callable[[EventBatch], EventBatch]


class Source(NamedTuple):
    """The log of a subscription, its reader and its encodings. `missing` creates the error for a log that was
    deleted. `select` is None if the client may read all events."""

    name: str
    log: StreamLog
    open_reader: OpenReader
    sse: StreamFormat
    ndjson: StreamFormat
    make_socket: Callable[[], SubscribedSocket]
    missing: Callable[[str], StreamError]
    select: SelectEvents | None = None


class SubscriptionStream:
    """A subscription as the body of an HTTP answer: the session of its connection and the sink of the subscription."""

    __slots__ = ("_access", "_beat_at", "_format", "_heartbeat_ms", "_outlet", "_select", "_subscription")

    _subscription: Subscription

    def __init__(
        self,
        stream_format: StreamFormat,
        heartbeat_ms: int,
        access: RequestAccess,
        select: SelectEvents | None = None,
    ) -> None:
        self._format = stream_format
        self._access = access
        self._select = select
        self._heartbeat_ms = heartbeat_ms
        self._outlet: Outlet | None = None
        self._beat_at = 0.0

    def open(
        self, subscription: Subscription, facts: SubscriptionFacts, gap: Gap | None, outlet: Outlet
    ) -> "SubscriptionStream":
        self._outlet = outlet
        self._subscription = subscription
        outlet.write(self._format.subscribed(subscription.name, facts))
        if gap is not None:
            outlet.write(self._format.control(subscription.name, gap))
        if subscription.is_closed:
            self.stop()
        else:
            subscription.begin()
        return self

    @property
    def protocol(self) -> str:
        return "sse" if self._format.content_type == EVENT_STREAM else "ndjson"

    @property
    def principal(self) -> Principal:
        return self._access.principal

    def is_writable(self) -> bool:
        return self._outlet is not None and self._outlet.is_writable

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        assert self._outlet is not None
        if self._select is not None:
            batch = self._select(batch)
            if not batch.events:
                return
        self._outlet.write(batch.encoded(self._format.events))

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        if self._outlet is None:
            return
        self._outlet.write(self._format.control(subscription.name, message))
        if type(message) is Closed:
            self.stop()

    def received(self, data: bytes) -> None:
        """Ignore bytes that the client sends after the request."""

    def writable(self) -> None:
        self._subscription.resume()

    def tick(self, now: float) -> None:
        assert self._outlet is not None
        if not self._beat_at:
            self._beat_at = now
        elif is_due(now, self._beat_at, self._heartbeat_ms) and self._outlet.is_writable:
            self._beat_at = now
            self._outlet.write(self._format.heartbeat)

    def check_access(self) -> None:
        loss = self._access.loss()
        if loss is not None:
            self._subscription.end(FORBIDDEN, loss.message)

    def stop(self) -> None:
        assert self._outlet is not None
        self._subscription.close()
        self._outlet.write(LAST_CHUNK)
        self._outlet.finish()

    def lost(self) -> None:
        self._subscription.close()


async def answer_subscribe(
    port: PortServices,
    subscriptions: Subscriptions,
    request: web.Request,
    shape: type[SubscribeQuery],
    find_source: Callable[[], Awaitable[Source]],
) -> web.StreamResponse:
    """Subscribe with the options of the query and send the stream. Returns when the connection is closed.

    `find_source` may create a room, so it is called only after the request has been validated.
    """
    check_streamable(request)
    query = query_of(request, shape)
    start, options = query.start(), query.options()
    if is_upgrade(request):
        accept_of_request(request)
        source = await find_source()
        socket = source.make_socket()
        subscription = await _subscribed(subscriptions, source, start, socket, options)
        try:
            async with SubscriptionSlot(access_of(request)):
                return await upgrade(port, request, partial(socket.open_subscribed, subscription=subscription))
        finally:
            subscription.close()
    is_sse = accepts(request, EVENT_STREAM)
    last_id = last_event_id(request) if is_sse else None
    source = await find_source()
    stream_format = source.sse if is_sse else source.ndjson
    sink = SubscriptionStream(stream_format, port.config.web.ping_interval_ms, access_of(request), source.select)
    gap = None
    if last_id is None:
        subscription = await _subscribed(subscriptions, source, start, sink, options)
        facts = subscription.facts
    else:
        subscription, facts, gap = await _resumed(subscriptions, source, last_id, start, sink, options)
    try:
        head = chunked_head(request, stream_format.content_type)
        async with SubscriptionSlot(access_of(request)):
            return await stream(port, request, head, partial(sink.open, subscription, facts, gap))
    finally:
        subscription.close()


async def _subscribed(
    subscriptions: Subscriptions, source: Source, start: Start, sink: Sink, options: SubscribeOptions
) -> Subscription:
    try:
        return await subscriptions.subscribe(source.name, source.log, start, sink, options, source.open_reader)
    except RoomNotFound:
        raise source.missing(source.name) from None


async def _resumed(
    subscriptions: Subscriptions, source: Source, last_id: int, start: Start, sink: Sink, options: SubscribeOptions
) -> tuple[Subscription, SubscriptionFacts, Gap | None]:
    """Subscribe at the offset after `last_id`. If that is not possible, subscribe at the oldest event and set
    `recovered` to false."""
    gap = None
    # A client may start beyond the end of the log. Then the `id` of its first control message may also be beyond the
    # end. The client may resume after such an `id` if it is below the requested start.
    is_before_start = start.kind is StartKind.OFFSET and last_id < start.value
    await source.log.ready()
    if last_id <= source.log.bounds().newest or is_before_start:
        try:
            subscription = await _subscribed(subscriptions, source, Start.at(last_id + 1), sink, options)
            return subscription, subscription.facts, None
        except OffsetOutOfRange as error:
            gap = Gap(last_id + 1, error.oldest - 1, RETENTION)
    # Retention has deleted the offset. Or the reader has received offsets that the log does not have: the log was
    # deleted and created again, or it has lost its last records.
    subscription = await _subscribed(subscriptions, source, FROM_OLDEST, sink, options)
    return subscription, subscription.facts._replace(recovered=False), gap
