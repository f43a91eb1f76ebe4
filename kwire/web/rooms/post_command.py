"""POST /api/v1/command: a command as on the WebSocket, for those who have none. Its result stands alone.

All but `stream.subscribe`, which needs a connection that stays: GET /ws or GET /rooms/{room}/subscribe.
"""

import msgspec
from aiohttp import web

from kwire.web.bodies import check_is_json, raw_body_of
from kwire.web.errors import BodyTooLarge
from kwire.web.large_answers import stream_answer
from kwire.web.rooms.commands import History, Publish, Unsubscribe, decode_command, history_parts, result_of
from kwire.web.rooms.events import HistoryPage, Stored
from kwire.web.route import JSON, Answer, AnyOf, Route
from kwire.web.services import WebServices


class Unsubscribed(msgspec.Struct, kw_only=True):
    """Whether there was a subscription to end; over HTTP there is none."""

    success: bool


async def run_command(services: WebServices, request: web.Request) -> web.StreamResponse:
    check_is_json(request)
    raw = await raw_body_of(request)
    # As on the socket: decoding is one step that cannot be interrupted.
    limit = services.config.web.socket_message_bytes_max
    if len(raw) > limit:
        raise BodyTooLarge(f"a command may have {limit} bytes", limit=limit)
    command = decode_command(raw)
    if isinstance(command, History):
        return await stream_answer(request, await history_parts(services, command.payload), JSON)
    return web.Response(body=await result_of(services, command), content_type=JSON)


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/api/v1/command",
        run_command,
        summary="Run a command of rooms",
        description="The result stands alone: what the WebSocket sends under `result`.",
        tag="commands",
        request=Publish | Unsubscribe | History,
        answers={200: Answer("The command's result.", {JSON: AnyOf((Stored, HistoryPage, Unsubscribed))})},
    ),
)
