"""GET /subscribe/all subscribes to all events of the event store, in the order in which they were committed, from a
global position on. GET /subscribe/streams/{topic} subscribes to the events of one topic, from a version on. The version
of an event is its number in its topic.

    curl -N 'http://127.0.0.1:8082/subscribe/all?from=0'

The request's headers select a WebSocket, Server-Sent Events or NDJSON. The server sends stored events first, then the
control message `caught_up`, then new events, without gaps or duplicates. The implementation, the control messages and
the rules for slow readers are the same as for rooms (`kwire/streams/subscriptions/`).

A start below the oldest position or version is refused. A start at 0 is refused too if the first events were deleted,
unlike in a room, because a client that starts at 0 expects all events.
"""

from functools import partial
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.access.acl import Operation, ResourceType
from kwire.access.quotas.kinds import QuotaKind
from kwire.broker.topics.topics import EVENTS_TOPIC
from kwire.errors import SubscriptionFailed, TopicNotFound
from kwire.streams.events.reading import EventReader
from kwire.streams.log import StreamLog
from kwire.streams.subscriptions import FROM_OLDEST, Start
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.event_reader import OpenReader
from kwire.streams.subscriptions.start import StartKind
from kwire.web.events.encodings import ALL_FORMATS, PLAIN_ALL_FORMATS, STREAM_FORMATS, Formats
from kwire.web.events.event_lines import StoredEvent
from kwire.web.events.event_socket import EventSocket
from kwire.web.needs import READ_TOPIC, READ_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import EventStoreServices, PortServices
from kwire.web.streaming.stream_requests import RESUME_HEADERS
from kwire.web.streaming.subscribe_requests import SubscribeQuery
from kwire.web.streaming.subscription_streams import SelectEvents, Source, answer_subscribe
from kwire.web.topics.lookup import TOPIC

PLACE_MAX = 2**63 - 1


class EventSubscribeQuery(SubscribeQuery):
    """The query of a subscribe request: the start of the subscription and its options."""

    from_: Annotated[
        Annotated[int, msgspec.Meta(ge=-PLACE_MAX, le=PLACE_MAX)] | Literal["oldest", "new"],
        msgspec.Meta(
            description="N: from position or version N on. -N: the last N events. `oldest`: from the oldest event on. "
            "`new` or absent: new events only."
        ),
    ] = msgspec.field(default="new", name="from")

    def start(self) -> Start:
        start_from = self.from_
        if start_from != "new" and self.from_time is not None:
            raise SubscriptionFailed("from and from_time exclude each other")
        if isinstance(start_from, int):
            return Start.back(-start_from) if start_from < 0 else Start(StartKind.OFFSET, start_from)
        return FROM_OLDEST if start_from == "oldest" else Start.parse(from_time=self.from_time)


async def subscribe_all(services: EventStoreServices, request: web.Request) -> web.StreamResponse:
    access = access_of(request)
    access.hold_any(Operation.READ, ResourceType.TOPIC)
    select = partial(readable_events, access) if access.is_restricted else None
    formats = ALL_FORMATS if access.scope is None else PLAIN_ALL_FORMATS

    async def find_journal() -> Source:
        store = services.event_store
        journal = await store.journal()
        return _source(services.port, access, EVENTS_TOPIC, journal, store.global_reader, formats, select)

    return await answer_subscribe(services.port, services.subscriptions, request, EventSubscribeQuery, find_journal)


async def subscribe_stream(services: EventStoreServices, request: web.Request) -> web.StreamResponse:
    access = access_of(request)

    async def find_topic() -> Source:
        topic = services.event_store.event_topic(request.match_info["topic"])
        name = access.shown(topic.name)
        return _source(services.port, access, name, topic.stream(), EventReader, STREAM_FORMATS)

    return await answer_subscribe(services.port, services.subscriptions, request, EventSubscribeQuery, find_topic)


def readable_events(access: RequestAccess, batch: EventBatch) -> EventBatch:
    """Return a batch with only the events of the topics that the client may read."""
    events = [one for one in batch.events if access.allows_topic(Operation.READ, one.event_id.rpartition("-")[0])]
    if len(events) == len(batch.events):
        return batch
    return EventBatch(batch.name, events, batch.start_offset, batch.next_offset)


def _source(
    port: PortServices,
    access: RequestAccess,
    name: str,
    log: StreamLog,
    open_reader: OpenReader,
    formats: Formats,
    select: SelectEvents | None = None,
) -> Source:
    make_socket = partial(EventSocket, port, formats.socket, access, select)
    return Source(name, log, open_reader, formats.sse, formats.ndjson, make_socket, TopicNotFound, select)


_MARKS = (
    "The first message is the control message `subscribed` (`epoch`; the oldest, newest and next position or version; "
    "`recovered`). Further control messages: `caught_up`, `checkpoint`, `lagging`, `gap`, `closed`. The stream is a "
    "WebSocket if the request is an upgrade, Server-Sent Events with `Accept: text/event-stream`, otherwise NDJSON."
)
_ANSWERS = {200: Answer("Events and control messages.", {EVENT_STREAM: None, NDJSON: StoredEvent})}

ROUTES: tuple[Route[EventStoreServices], ...] = (
    Route(
        "GET",
        "/subscribe/all",
        subscribe_all,
        summary="Subscribe to all events of the event store, in global order",
        description="Stored events from the global position `from` on, then new events; only those of topics that the "
        "client may read. " + _MARKS,
        tag="events",
        query=EventSubscribeQuery,
        headers=RESUME_HEADERS,
        answers=_ANSWERS,
        is_streaming=True,
        needs=(READ_TOPICS,),
        charges=QuotaKind.CONSUME,
    ),
    Route(
        "GET",
        "/subscribe/streams/{topic}",
        subscribe_stream,
        summary="Subscribe to the events of one topic of the event store",
        description="Stored events from the version `from` on, then new events. " + _MARKS,
        tag="events",
        query=EventSubscribeQuery,
        headers=RESUME_HEADERS,
        parameters={"topic": TOPIC},
        answers=_ANSWERS,
        is_streaming=True,
        needs=(READ_TOPIC,),
        charges=QuotaKind.CONSUME,
    ),
)
