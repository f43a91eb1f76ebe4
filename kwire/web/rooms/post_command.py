"""POST /api/v1/command: run one of the WebSocket's commands as an HTTP request. The answer's body is the value that the
WebSocket sends as `result`.

`stream.subscribe` fails here, because it needs a WebSocket: GET /ws or GET /rooms/{room}/subscribe.
"""

import msgspec
from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.web.answers.errors import BodyTooLarge
from kwire.web.answers.large_answers import stream_answer
from kwire.web.needs import CREATE_TOPICS, DESCRIBE_TOPICS, READ_TOPICS, WRITE_TOPICS
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import check_is_json, raw_body_of
from kwire.web.requests.request_ids import traceparent_of
from kwire.web.rooms.commands import History, Publish, Unsubscribe, decode_command, history_parts, result_of
from kwire.web.rooms.events import HistoryPage, Stored
from kwire.web.route import JSON, Answer, AnyOf, Route
from kwire.web.services import RoomServices


class Unsubscribed(msgspec.Struct, kw_only=True):
    """The result of stream.unsubscribe. `success` is true if a subscription was ended. Over HTTP it is always false."""

    success: bool


async def run_command(services: RoomServices, request: web.Request) -> web.StreamResponse:
    check_is_json(request)
    raw = await raw_body_of(request)
    # Use the message limit of the WebSocket here too, because decoding cannot be interrupted.
    limit = services.port.config.web.socket_message_bytes_max
    if len(raw) > limit:
        raise BodyTooLarge(f"a command may have at most {limit} bytes", limit=limit)
    command = decode_command(raw)
    access = access_of(request)
    if isinstance(command, History):
        return await stream_answer(request, await history_parts(services, access, command.payload), JSON)
    return web.Response(body=await result_of(services, access, command, traceparent_of(request)), content_type=JSON)


ROUTES: tuple[Route[RoomServices], ...] = (
    Route(
        "POST",
        "/api/v1/command",
        run_command,
        summary="Run a command of rooms",
        description="The answer is the value that the WebSocket sends as `result`.",
        tag="commands",
        request=Publish | Unsubscribe | History,
        answers={200: Answer("The command's result.", {JSON: AnyOf((Stored, HistoryPage, Unsubscribed))})},
        needs=(READ_TOPICS, WRITE_TOPICS, DESCRIBE_TOPICS, CREATE_TOPICS),
        charges=QuotaKind.PRODUCE,
    ),
)
