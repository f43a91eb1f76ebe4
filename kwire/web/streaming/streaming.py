"""Streams: a handler takes over the connection of its HTTP request.

Handlers for WebSockets, Server-Sent Events and NDJSON call `return await stream(port, request, head, make_session)`.
From then on the session controls the connection. The session needs no task: the server calls its methods when bytes are
received, when the outlet is writable again, about every second, when rights change, when the node stops, and when the
connection is closed.
While `outlet.is_writable` is false, a session writes only data that cannot wait. `Outlet` and `ServeStream` are
implemented by `kwire/server/http/stream_connections.py`.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import hdrs, web

from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.requests.request_ids import common_headers
from kwire.web.services import PortServices

# The position of the status in the first line of an answer.
STATUS_BYTES = slice(9, 12)
LAST_CHUNK = b"0\r\n\r\n"
# The interval between two calls of `Session.tick`.
TICK_SECONDS = 1.0


class Outlet(Protocol):
    """The sending side of a session's connection, and the control over its receiving side."""

    is_writable: bool

    @property
    def unsent_bytes(self) -> int:
        """The number of written bytes that the client's machine has not acknowledged. After a disconnect, the number
        does not change."""
        ...

    def write(self, data: bytes) -> None:
        """Send `data`. All data written in one iteration of the event loop is sent together. Does nothing after a
        disconnect."""
        ...

    def close(self) -> None:
        """Close the connection after all written data has been sent."""
        ...

    def finish(self) -> None:
        """End the stream after all written data has been sent, and wait until the client closes the connection. Bytes
        that the client sends meanwhile are read and discarded. If the server closed a connection with unread bytes, the
        operating system would reset it and the client might lose the last data."""
        ...

    def abort(self) -> None:
        """Close the connection immediately. Unsent data is discarded."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Session(Protocol):
    """The protocol handler of a connection. All methods are called in the event loop's thread. `lost` is the last
    call."""

    def received(self, data: bytes) -> None: ...

    def writable(self) -> None:
        """Called when the outlet is writable again."""
        ...

    def tick(self, now: float) -> None:
        """Called about every TICK_SECONDS. `now` is the event loop's time."""
        ...

    def check_access(self) -> None:
        """Called when the rights of the client may have changed. Ends what the client may no longer receive."""
        ...

    def stop(self) -> None:
        """Send the last message and close the outlet, because the node is stopping. If this takes too long, the
        connection is aborted."""
        ...

    def lost(self) -> None: ...


class ServeStream(Protocol):
    """Takes over a connection from aiohttp; returns when the connection is closed."""

    def __call__(
        self, request: web.Request, head: bytes, make_session: Callable[[Outlet], Session]
    ) -> Awaitable[None]: ...

    async def close(self) -> None:
        """Stop every session, because the node is stopping."""
        ...


class StreamedResponse(web.StreamResponse):
    """The response that a handler returns to aiohttp after a stream. aiohttp sends nothing for it and does not use the
    connection again."""

    def __init__(self, status: int) -> None:
        super().__init__(status=status)
        self.force_close()

    @property
    def prepared(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


async def stream(
    port: PortServices, request: web.Request, head: bytes, make_session: Callable[[Outlet], Session]
) -> web.StreamResponse:
    """Send `head`, then give the connection to the session that `make_session` creates. Returns when the connection is
    closed."""
    await port.serve_stream(request, head, make_session)
    return StreamedResponse(int(head[STATUS_BYTES]))


def check_streamable(request: web.Request) -> None:
    """Raise a Refusal if the request has a body or uses HTTP/1.0, which has no chunked encoding."""
    if request.version < (1, 1):
        raise Refusal("a stream requires HTTP/1.1", code="HttpVersionNotSupported")
    if request.can_read_body:
        raise BadRequest("a request for a stream must not have a body")


def chunked_head(request: web.Request, content_type: str) -> bytes:
    """Return the status line and headers of an answer whose body is sent in chunks."""
    headers = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: "no-store",
        hdrs.TRANSFER_ENCODING: "chunked",
        hdrs.CONNECTION: "close",
        "X-Accel-Buffering": "no",
        **common_headers(request),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body. Return b"" for empty data, because an empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
