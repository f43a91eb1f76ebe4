"""GET /ws opens a WebSocket for commands. GET /rooms/{room}/subscribe subscribes to one room. The request's headers
select a WebSocket, Server-Sent Events or NDJSON.

    curl -N 'http://127.0.0.1:8082/rooms/lobby/subscribe?from_offset=-10'

The first message describes the start of the subscription (`epoch`, `oldest_offset`, `newest_offset`, `next_offset`,
`recovered`). On a WebSocket the first message is a `result`. In the other formats it is the control message
`subscribed`.
"""

from functools import partial

from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.errors import RoomNotFound
from kwire.streams.events.reading import EventReader
from kwire.streams.subscriptions import Start
from kwire.web.answers.errors import Refusal
from kwire.web.answers.event_json import ShownEvent
from kwire.web.needs import CREATE_TOPICS, DESCRIBE_TOPICS, READ_ROOM, READ_TOPICS, WRITE_TOPICS
from kwire.web.requests.access import access_of
from kwire.web.rooms.encodings import (
    NDJSON_HEARTBEAT,
    SSE_HEARTBEAT,
    ndjson_control,
    ndjson_events,
    ndjson_subscribed,
    sse_control,
    sse_events,
    sse_subscribed,
)
from kwire.web.rooms.rooms import ROOM, room_to_use
from kwire.web.rooms.socket_session import SocketSession
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import RoomServices
from kwire.web.streaming.stream_requests import RESUME_HEADERS, is_upgrade, upgrade
from kwire.web.streaming.subscribe_requests import FromOffset, Replay, SubscribeQuery
from kwire.web.streaming.subscription_streams import Source, StreamFormat, answer_subscribe


class RoomSubscribeQuery(SubscribeQuery):
    """The query of a subscribe request: the start of the subscription and its options."""

    from_offset: FromOffset = None
    replay: Replay = None

    def start(self) -> Start:
        return Start.parse(self.from_offset, self.replay, self.from_time)


SSE_FORMAT = StreamFormat(EVENT_STREAM, sse_subscribed, sse_events, sse_control, SSE_HEARTBEAT)
NDJSON_FORMAT = StreamFormat(NDJSON, ndjson_subscribed, ndjson_events, ndjson_control, NDJSON_HEARTBEAT)


async def open_socket(services: RoomServices, request: web.Request) -> web.StreamResponse:
    if not is_upgrade(request):
        raise Refusal(
            "this path needs a WebSocket: send Connection: Upgrade and Upgrade: websocket", code="NotWebSocket"
        )
    return await upgrade(services.port, request, SocketSession(services, access_of(request)).open)


async def subscribe(services: RoomServices, request: web.Request) -> web.StreamResponse:
    access = access_of(request)

    async def find_room() -> Source:
        room = await room_to_use(services, access, request.match_info["room"])
        make_socket = partial(SocketSession, services, access, is_single=True)
        return Source(
            access.shown(room.name), room.log, EventReader, SSE_FORMAT, NDJSON_FORMAT, make_socket, RoomNotFound
        )

    return await answer_subscribe(services.port, services.subscriptions, request, RoomSubscribeQuery, find_room)


ROUTES: tuple[Route[RoomServices], ...] = (
    Route(
        "GET",
        "/ws",
        open_socket,
        summary="A WebSocket for commands",
        description=(
            'Send `{"command", "payload", "request_id"}`; the commands are those of `POST /api/v1/command` and '
            "`stream.subscribe`. An answer has `request_id` and `result` or `error`, an event has `room` and `offset`, "
            "a control message has `control`."
        ),
        tag="rooms",
        answers={101: None},
        is_streaming=True,
        needs=(READ_TOPICS, WRITE_TOPICS, DESCRIBE_TOPICS, CREATE_TOPICS),
    ),
    Route(
        "GET",
        "/rooms/{room}/subscribe",
        subscribe,
        summary="Subscribe to the events of a room",
        description=(
            "The stream is a WebSocket if the request is an upgrade, Server-Sent Events with "
            "`Accept: text/event-stream`, otherwise NDJSON."
        ),
        tag="rooms",
        query=RoomSubscribeQuery,
        headers=RESUME_HEADERS,
        parameters={"room": ROOM},
        answers={200: Answer("Events and control messages.", {EVENT_STREAM: None, NDJSON: ShownEvent})},
        is_streaming=True,
        needs=(READ_ROOM, CREATE_TOPICS),
        charges=QuotaKind.CONSUME,
    ),
)
