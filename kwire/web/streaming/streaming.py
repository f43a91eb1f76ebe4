"""How a handler of an HTTP request takes its connection for a stream that does not end by itself.

WebSocket, Server-Sent Events and NDJSON all use this: `return await stream(services, request, head, make_session)`.
From then on the connection is the session's. It is called back when bytes come, when the client takes bytes again, from
time to time, when the node stops, and when the client is gone; no task runs for it. What may be sent is decided by one
rule for all: while `outlet.is_writable` is false, nothing that can wait is written. `kwire/server/takeover.py` does it.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import hdrs, web

from kwire.web.errors import BadRequest, Refusal
from kwire.web.safety import cors_headers, is_trusted
from kwire.web.services import WebServices

LAST_CHUNK = b"0\r\n\r\n"
# How often a session is called by the time that passes.
TICK_SECONDS = 1.0


class Outlet(Protocol):
    """Where a session's bytes go."""

    is_writable: bool

    @property
    def unsent_bytes(self) -> int:
        """What was written and is not with the client's machine yet; when the client is gone, what it never got."""
        ...

    def write(self, data: bytes) -> None:
        """Send; what is written in one turn of the loop leaves together. Nothing happens when the client is gone."""
        ...

    def close(self) -> None:
        """End the connection when everything written has been sent."""
        ...

    def finish(self) -> None:
        """End the stream when everything written has been sent, and leave it to the client to close the connection:
        what it sends meanwhile is thrown away, and does not throw away our last words."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Session(Protocol):
    """What uses a connection. All of it is called in the event loop, and `lost` is the last call."""

    def received(self, data: bytes) -> None: ...

    def writable(self) -> None:
        """The outlet was not writable and is again."""
        ...

    def tick(self, now: float) -> None:
        """About every TICK_SECONDS; `now` is the loop's time."""
        ...

    def stop(self) -> None:
        """The node stops: say goodbye and close the outlet. Who takes too long is cut off."""
        ...

    def lost(self) -> None: ...


class TakeOver(Protocol):
    """Takes a connection away from aiohttp; returns when the connection is gone."""

    def __call__(
        self, request: web.Request, head: bytes, make_session: Callable[[Outlet], Session]
    ) -> Awaitable[None]: ...

    async def close(self) -> None:
        """The node stops: every session says goodbye."""
        ...


class TakenOver(web.StreamResponse):
    """What aiohttp is told when a stream has ended: that all was answered, and that the connection is over."""

    def __init__(self) -> None:
        super().__init__()
        self.force_close()

    @property
    def prepared(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


async def stream(
    services: WebServices, request: web.Request, head: bytes, make_session: Callable[[Outlet], Session]
) -> web.StreamResponse:
    """Send `head`, then let the session have the connection until it is gone."""
    await services.take_over(request, head, make_session)
    return TakenOver()


def check_streamable(request: web.Request) -> None:
    """A stream is sent in chunks, and what the client sends behind its request is not looked at."""
    if request.version < (1, 1):
        raise Refusal("a stream needs HTTP/1.1", code="VersionTooOld")
    if request.can_read_body:
        raise BadRequest("this request takes no body")


def chunked_head(request: web.Request, content_type: str) -> bytes:
    """The answer's status and headers for a body that is sent in chunks."""
    headers = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: "no-store",
        hdrs.TRANSFER_ENCODING: "chunked",
        hdrs.CONNECTION: "close",
        "X-Accel-Buffering": "no",
    }
    if is_trusted(request):
        headers.update(cors_headers(request))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode()


def chunk(data: bytes) -> bytes:
    """A part of a chunked body; nothing would end the body, so nothing stays nothing."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
