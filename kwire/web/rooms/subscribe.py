"""GET /ws: a WebSocket for commands. GET /rooms/{room}/subscribe: one room, as a WebSocket, as Server-Sent Events or as
lines of JSON, whichever the request's headers ask for.

    curl -N 'http://127.0.0.1:8082/rooms/lobby/subscribe?from_offset=-10'

The first message says where the subscription begins (`epoch`, `oldest_offset`, `newest_offset`, `next_offset`,
`recovered`): as the answer to a command on a WebSocket, as a mark `subscribed` elsewhere.
"""

from functools import partial

from aiohttp import web

from kwire.broker.events.reading import EventReader
from kwire.broker.subscriptions import Start
from kwire.errors import RoomNotFound
from kwire.web.errors import Refusal
from kwire.web.event_json import ShownEvent
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
from kwire.web.stream_requests import RESUME_HEADERS, is_upgrade, upgrade
from kwire.web.subscribe_requests import FromOffset, Replay, SubscribeQuery
from kwire.web.subscription_streams import Source, StreamForm, answer_subscribe


class RoomSubscribeQuery(SubscribeQuery):
    """Where to begin, and what becomes of a reader who is too slow."""

    from_offset: FromOffset = None
    replay: Replay = None

    def start(self) -> Start:
        return Start.parse(self.from_offset, self.replay, self.from_time)


SSE_FORM = StreamForm(EVENT_STREAM, sse_subscribed, sse_events, sse_mark, SSE_HEARTBEAT)
NDJSON_FORM = StreamForm(NDJSON, ndjson_subscribed, ndjson_events, ndjson_mark, NDJSON_HEARTBEAT)


async def open_socket(services: WebServices, request: web.Request) -> web.StreamResponse:
    if not is_upgrade(request):
        raise Refusal(
            "this path speaks WebSocket: send Connection: Upgrade and Upgrade: websocket", code="NotWebSocket"
        )
    return await upgrade(services, request, SocketSession(services).open)


async def subscribe(services: WebServices, request: web.Request) -> web.StreamResponse:
    async def find_room() -> Source:
        room = await services.rooms.get_or_create(request.match_info["room"])
        make_socket = partial(SocketSession, services, is_single=True)
        return Source(room.name, room.log, EventReader, SSE_FORM, NDJSON_FORM, make_socket, RoomNotFound)

    return await answer_subscribe(services, request, RoomSubscribeQuery, find_room)


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
        query=RoomSubscribeQuery,
        headers=RESUME_HEADERS,
        parameters={"room": ROOM},
        answers={200: Answer("Events and marks.", {EVENT_STREAM: None, NDJSON: ShownEvent})},
        is_streaming=True,
    ),
)
