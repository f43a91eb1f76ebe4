"""Parses requests for a stream: content negotiation, Last-Event-ID, and the WebSocket handshake."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from aiohttp import hdrs, web

from kwire.logs.log_context import current_request_id
from kwire.web.answers.errors import BadRequest, Refusal, error_answer
from kwire.web.requests.request_ids import REQUEST_ID
from kwire.web.requests.tickets import selected_subprotocol
from kwire.web.services import PortServices
from kwire.web.streaming.streaming import Outlet, Session, check_streamable, stream
from kwire.web.streaming.websocket_frames import accept_of

WEBSOCKET_VERSION = "13"
LAST_EVENT_ID = "Last-Event-ID"
OFFSET_MAX = 2**63 - 2
# The documented headers of a route that can send Server-Sent Events.
RESUME_HEADERS: Mapping[str, Any] = {
    LAST_EVENT_ID: Annotated[
        int, msgspec.Meta(ge=0, le=OFFSET_MAX, description="Server-Sent Events: the last `id` that was received.")
    ]
}


def accepts(request: web.Request, content_type: str) -> bool:
    accepted = request.headers.get(hdrs.ACCEPT, "")
    return any(one.partition(";")[0].strip().lower() == content_type for one in accepted.split(","))


def last_event_id(request: web.Request) -> int | None:
    """Return the offset in Last-Event-ID: the last offset that the client has received. Return None if the request has
    no such header. Raises BadRequest if the header is invalid."""
    text = request.headers.get(LAST_EVENT_ID)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > OFFSET_MAX:
        raise BadRequest(f"{LAST_EVENT_ID} must be the offset of an event")
    return int(text)


def is_upgrade(request: web.Request) -> bool:
    headers = request.headers
    return headers.get(hdrs.UPGRADE, "").strip().lower() == "websocket" and "upgrade" in [
        one.strip().lower() for one in headers.get(hdrs.CONNECTION, "").split(",")
    ]


def accept_of_request(request: web.Request) -> str:
    """Return the value of Sec-WebSocket-Accept for the client's key; raises BadRequest."""
    accept = accept_of(request.headers.get(hdrs.SEC_WEBSOCKET_KEY, ""))
    if accept is None:
        raise BadRequest("Sec-WebSocket-Key must be 16 bytes in base64")
    return accept


async def upgrade(
    port: PortServices, request: web.Request, make_session: Callable[[Outlet], Session]
) -> web.StreamResponse:
    """Answer the WebSocket handshake, and give the connection to the session that `make_session` creates. Returns when
    the connection is closed."""
    check_streamable(request)
    if request.headers.get(hdrs.SEC_WEBSOCKET_VERSION) != WEBSOCKET_VERSION:
        refusal = Refusal(f"Sec-WebSocket-Version must be {WEBSOCKET_VERSION}", code="UpgradeRequired", status=426)
        answer = error_answer(refusal)
        answer.headers[hdrs.SEC_WEBSOCKET_VERSION] = WEBSOCKET_VERSION
        answer.headers[hdrs.UPGRADE] = "websocket"
        answer.headers[hdrs.CONNECTION] = "Upgrade"
        return answer
    accept = accept_of_request(request)
    subprotocol = selected_subprotocol(request)
    selected = "" if subprotocol is None else f"{hdrs.SEC_WEBSOCKET_PROTOCOL}: {subprotocol}\r\n"
    identified = f"{REQUEST_ID}: {request_id}\r\n" if (request_id := current_request_id()) is not None else ""
    head = (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n{selected}{identified}\r\n"
    )
    return await stream(port, request, head.encode(), make_session)
