"""GET /subscribe/all: every event of the event store in the order of its journal, from a global position on.
GET /subscribe/streams/{topic}: the events of one topic, from a version on.

    curl -N 'http://127.0.0.1:8082/subscribe/all?from=0'

Each as a WebSocket, as Server-Sent Events or as lines of JSON, whichever the request's headers ask for. First comes
what is stored, then a mark `caught_up`, then what is new, with nothing between them lost or repeated. The machine under
it is that of rooms (`kwire/broker/subscriptions/`), and so are its marks and its rules for readers who are too slow.

Unlike a room's, a place below the oldest there is is always refused: who asks for position 0 wants all of it.
"""

from functools import partial
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.broker.events.reading import EventReader
from kwire.broker.subscriptions import FROM_OLDEST, Start
from kwire.broker.subscriptions.readers import OpenReader
from kwire.broker.subscriptions.start import StartKind
from kwire.broker.topics import EVENTS_TOPIC
from kwire.errors import SubscriptionFailed, TopicNotFound
from kwire.streams.log import StreamLog
from kwire.web.events.encodings import ALL_FORMS, STREAM_FORMS, Forms
from kwire.web.events.event_lines import StoredEvent
from kwire.web.events.listening_socket import ListeningSocket
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import WebServices
from kwire.web.stream_requests import RESUME_HEADERS
from kwire.web.subscribe_requests import SubscribeQuery
from kwire.web.subscription_streams import Source, answer_subscribe
from kwire.web.topics.lookup import TOPIC

PLACE_MAX = 2**63 - 1


class EventSubscribeQuery(SubscribeQuery):
    """Where to begin, and what becomes of a reader who is too slow."""

    from_: Annotated[
        Annotated[int, msgspec.Meta(ge=-PLACE_MAX, le=PLACE_MAX)] | Literal["oldest", "new"],
        msgspec.Meta(
            description="N: from that position or version on. -N: so many back. `oldest`: from the oldest there is. "
            "`new`, or nothing: new events only."
        ),
    ] = msgspec.field(default="new", name="from")

    def start(self) -> Start:
        place = self.from_
        if place != "new" and self.from_time is not None:
            raise SubscriptionFailed("from and from_time exclude each other")
        if isinstance(place, int):
            return Start.back(-place) if place < 0 else Start(StartKind.OFFSET, place)
        return FROM_OLDEST if place == "oldest" else Start.parse(from_time=self.from_time)


async def subscribe_all(services: WebServices, request: web.Request) -> web.StreamResponse:
    async def find_journal() -> Source:
        store = services.event_store
        return _source(services, EVENTS_TOPIC, await store.journal(), store.global_reader, ALL_FORMS)

    return await answer_subscribe(services, request, EventSubscribeQuery, find_journal)


async def subscribe_stream(services: WebServices, request: web.Request) -> web.StreamResponse:
    async def find_topic() -> Source:
        topic = services.event_store.event_topic(request.match_info["topic"])
        return _source(services, topic.name, topic.stream(), EventReader, STREAM_FORMS)

    return await answer_subscribe(services, request, EventSubscribeQuery, find_topic)


def _source(services: WebServices, name: str, log: StreamLog, open_reader: OpenReader, forms: Forms) -> Source:
    make_socket = partial(ListeningSocket, services, forms.socket)
    return Source(name, log, open_reader, forms.sse, forms.ndjson, make_socket, TopicNotFound)


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
