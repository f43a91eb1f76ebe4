"""A subscription as the answer to a GET: a WebSocket, Server-Sent Events or lines of JSON, as the headers ask for.

A browser that reconnects to Server-Sent Events sends the last `id` it has seen as Last-Event-ID and continues after it.
It cannot ask for another start, so events that no longer exist are a `gap` and not an error.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

from aiohttp import web

from kwire.broker.subscriptions import FROM_OLDEST, Sink, Start, SubscribeOptions, Subscription, SubscriptionFacts
from kwire.broker.subscriptions.marks import RETENTION, Closed, Gap, Mark
from kwire.broker.subscriptions.portions import Encoding, Portion
from kwire.broker.subscriptions.readers import OpenReader
from kwire.broker.subscriptions.start import StartKind
from kwire.errors import OffsetOutOfRange, RoomNotFound, StreamError
from kwire.streams.log import StreamLog
from kwire.web.bodies import query_of
from kwire.web.route import EVENT_STREAM
from kwire.web.services import WebServices
from kwire.web.socket_upkeep import is_due
from kwire.web.stream_requests import accept_of_request, is_upgrade, last_event_id, upgrade, wants
from kwire.web.streaming import LAST_CHUNK, Outlet, Session, check_streamable, chunked_head, stream
from kwire.web.subscribe_requests import SubscribeQuery


class StreamForm(NamedTuple):
    """How a subscription is encoded as the body of an HTTP answer."""

    content_type: str
    subscribed: Callable[[str, SubscriptionFacts], bytes]
    events: Encoding
    mark: Callable[[str, Mark], bytes]
    heartbeat: bytes


class SubscribedSocket(Sink, Protocol):
    """A WebSocket whose subscription was made before the connection became a WebSocket."""

    def open_subscribed(self, outlet: Outlet, subscription: Subscription) -> Session: ...


class Source(NamedTuple):
    """What is subscribed to, and how it is read and shown. `missing` makes the error for a log that is gone."""

    name: str
    log: StreamLog
    open_reader: OpenReader
    sse: StreamForm
    ndjson: StreamForm
    make_socket: Callable[[], SubscribedSocket]
    missing: Callable[[str], StreamError]


class SubscriptionStream:
    """A subscription as the body of an HTTP answer: the session of its connection and the sink of the subscription."""

    __slots__ = ("_beat_at", "_form", "_heartbeat_ms", "_outlet", "_subscription")

    _subscription: Subscription

    def __init__(self, form: StreamForm, heartbeat_ms: int) -> None:
        self._form = form
        self._heartbeat_ms = heartbeat_ms
        self._outlet: Outlet | None = None
        self._beat_at = 0.0

    def open(
        self, subscription: Subscription, facts: SubscriptionFacts, gap: Gap | None, outlet: Outlet
    ) -> "SubscriptionStream":
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
        """Bytes after the request are ignored."""

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


async def answer_subscribe(
    services: WebServices,
    request: web.Request,
    shape: type[SubscribeQuery],
    find_source: Callable[[], Awaitable[Source]],
) -> web.StreamResponse:
    """Subscribe as the query says; `find_source` is called once the request is known to be valid."""
    check_streamable(request)
    query = query_of(request, shape)
    start, options = query.start(), query.options()
    if is_upgrade(request):
        accept_of_request(request)
        source = await find_source()
        socket = source.make_socket()
        subscription = await _subscribed(services, source, start, socket, options)
        try:
            return await upgrade(services, request, partial(socket.open_subscribed, subscription=subscription))
        finally:
            subscription.close()
    is_sse = wants(request, EVENT_STREAM)
    last_id = last_event_id(request) if is_sse else None
    source = await find_source()
    form = source.sse if is_sse else source.ndjson
    sink = SubscriptionStream(form, services.config.web.ping_interval_ms)
    gap = None
    if last_id is None:
        subscription = await _subscribed(services, source, start, sink, options)
        facts = subscription.facts
    else:
        subscription, facts, gap = await _resumed(services, source, last_id, start, sink, options)
    try:
        head = chunked_head(request, form.content_type)
        return await stream(services, request, head, partial(sink.open, subscription, facts, gap))
    finally:
        subscription.close()


async def _subscribed(
    services: WebServices, source: Source, start: Start, sink: Sink, options: SubscribeOptions
) -> Subscription:
    try:
        return await services.subscriptions.subscribe(source.name, source.log, start, sink, options, source.open_reader)
    except RoomNotFound:
        raise source.missing(source.name) from None


async def _resumed(
    services: WebServices, source: Source, last_id: int, start: Start, sink: Sink, options: SubscribeOptions
) -> tuple[Subscription, SubscriptionFacts, Gap | None]:
    """Subscribe after `last_id`, or as near to it as possible; then `recovered` is false."""
    gap = None
    # A reader that asked for a place beyond the head was given an id below that place.
    is_before_start = start.kind is StartKind.OFFSET and last_id < start.value
    if last_id <= source.log.bounds().newest or is_before_start:
        try:
            subscription = await _subscribed(services, source, Start.at(last_id + 1), sink, options)
            return subscription, subscription.facts, None
        except OffsetOutOfRange as error:
            gap = Gap(last_id + 1, error.oldest - 1, RETENTION)
    # Otherwise the reader has seen more than there is: the log was made anew, or has lost its end.
    subscription = await _subscribed(services, source, FROM_OLDEST, sink, options)
    return subscription, subscription.facts._replace(recovered=False), gap
