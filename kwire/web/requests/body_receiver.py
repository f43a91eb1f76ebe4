"""Receives a request's body. The body has a size limit, is counted in the port's memory, and must arrive at a minimum
rate.

A client that stops sending would occupy memory until it disconnects. So in each window of
`kwire.http.receive.timeout.ms` the client must send `kwire.http.receive.rate.min` bytes per second on average, or the
rest of the body. While other requests wait for memory, the stricter limits SHORTAGE_TIMEOUT_S and SHORTAGE_RATE_MIN
apply too. If a body arrives too slowly, the request is answered with status 408.
"""

import asyncio
from io import BytesIO
from typing import NamedTuple

from aiohttp import StreamReader, hdrs, web

from kwire.concurrency.chunking import yield_to_loop
from kwire.config import WebConfig
from kwire.web.answers.errors import BadRequest, BodyTooLarge, Refusal
from kwire.web.requests.access import ACCESS
from kwire.web.requests.decompression import check_expansion, is_compressed
from kwire.web.requests.memory import UNCOUNTED_BYTES, HttpMemory, Lease

SHORTAGE_TIMEOUT_S = 2.0
SHORTAGE_RATE_MIN = 256 * 1024
# The maximum number of bytes of one read from the connection. Further bytes stay in the connection's buffer.
READ_BYTES = 64 * 1024
# The first bytes of a body are read without yielding. After this many bytes the reader yields after each read, so that
# large bodies are read alternately.
READ_FREELY_BYTES = 256 * 1024


class ReceiveSettings(NamedTuple):
    """The limits for receiving bodies. They are the same for all requests of a port."""

    memory: HttpMemory
    timeout_s: float
    rate_min: int

    @classmethod
    def of(cls, memory: HttpMemory, config: WebConfig) -> "ReceiveSettings":
        return cls(memory, config.receive_timeout_ms / 1000, config.receive_rate_min)


RECEIVE_SETTINGS: web.AppKey[ReceiveSettings] = web.AppKey("kwire.receive_settings")
# The lease for the memory of the request's body. The middleware releases it after the handler has returned.
BODY_LEASE = web.RequestKey("kwire.body_lease", Lease)


class _Window:
    """A time window. `missing_bytes` more bytes must be received before `deadline`. When these bytes are received, the
    next window begins."""

    __slots__ = ("_rate_min", "_timeout_s", "deadline", "missing_bytes")

    def __init__(self, timeout_s: float, rate_min: int, now: float) -> None:
        self._timeout_s = timeout_s
        self._rate_min = rate_min
        self.begin(now)

    def begin(self, now: float) -> None:
        self.deadline = now + self._timeout_s
        self.missing_bytes = self._timeout_s * self._rate_min

    def received(self, count: int, now: float) -> None:
        self.missing_bytes -= count
        if self.missing_bytes <= 0:
            self.begin(now)


class ReceiveDeadline:
    """The deadline before which the client must send more bytes of a body. Bytes that arrive move the deadline."""

    __slots__ = ("_loop", "_memory", "_short", "_window")

    def __init__(self, settings: ReceiveSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._memory, timeout_s, rate_min = settings
        self._window = _Window(timeout_s, rate_min, self._loop.time())
        # The window for the stricter limits. It is set while other requests wait for memory.
        self._short: _Window | None = None

    def begin(self) -> None:
        """Begin a new window now. Bytes that were received earlier are not counted in it."""
        self._window.begin(self._loop.time())
        self._short = None

    def received(self, count: int) -> None:
        now = self._loop.time()
        self._window.received(count, now)
        if self._short is not None:
            self._short.received(count, now)

    def deadline(self) -> float:
        if not self._memory.is_short:
            self._short = None
            return self._window.deadline
        if self._short is None:
            self._short = _Window(SHORTAGE_TIMEOUT_S, SHORTAGE_RATE_MIN, self._loop.time())
        return min(self._window.deadline, self._short.deadline)


async def read_before_deadline(content: StreamReader, lease: Lease, receive_deadline: ReceiveDeadline) -> bytes:
    """Return the next bytes of a body, at most READ_BYTES, or b"" at its end. Raises TimeoutError if the body arrives
    too slowly."""
    try:
        async with asyncio.timeout_at(receive_deadline.deadline()) as until:
            with lease.memory.on_shortage(lambda: until.reschedule(receive_deadline.deadline())):
                piece = await content.read(READ_BYTES)
    except ConnectionError as error:
        # The reader keeps a reference to its exception. The exception's traceback refers to this frame, which refers to
        # the reader. Break this cycle, so that the reader's bytes are released.
        error.__traceback__ = None
        raise ConnectionResetError("the client has disconnected") from None
    receive_deadline.received(len(piece))
    return piece


async def received_body(request: web.Request) -> bytes:
    """Receive and return the complete body. Raises BodyTooLarge, MemoryExhausted, BadRequest, or a Refusal with status
    408."""
    try:
        return await _body(request)
    except TimeoutError:
        raise Refusal(
            "the body arrived too slowly: send it again, faster or in smaller requests",
            code="RequestTimeout",
            status=408,
        ) from None
    except web.RequestPayloadError:
        # The body has invalid chunks, or is not compressed as its Content-Encoding declares.
        raise BadRequest("the body is incomplete, or not encoded as the headers say", code="InvalidBody") from None


async def _body(request: web.Request) -> bytes:
    content, bytes_max = request.content, request.client_max_size
    declared = declared_length(request)
    if declared is not None and declared > bytes_max:
        raise body_too_large(bytes_max)
    if content.is_eof():
        # The body arrived together with the head of the request. That is true for most requests.
        raw = content.read_nowait()
        if len(raw) > bytes_max:
            raise body_too_large(bytes_max)
        check_expansion(content, len(raw))
        if len(raw) > UNCOUNTED_BYTES:
            await _lease_of(request).hold(len(raw))
        return raw
    lease = _lease_of(request)
    await lease.hold(declared if declared is not None else READ_BYTES)
    receive_deadline = ReceiveDeadline(request.app[RECEIVE_SETTINGS])
    body = BytesIO()
    size_bytes = 0
    while piece := await read_before_deadline(content, lease, receive_deadline):
        size_bytes += len(piece)
        if size_bytes > bytes_max:
            # The rest of the body is not read. The connection is closed after the answer.
            raise body_too_large(bytes_max)
        if size_bytes > lease.size_bytes:
            await lease.hold(min(max(size_bytes, 2 * lease.size_bytes), bytes_max))
            receive_deadline.begin()
        body.write(piece)
        if size_bytes > READ_FREELY_BYTES:
            # The server reads nothing from the connection until this call returns.
            await yield_to_loop()
        if is_compressed(content):
            check_expansion(content, size_bytes)
            # Yield to the event loop here, because the next step of the decompression would start without a yield.
            await asyncio.sleep(0)
    check_rights_again(request)
    # `getvalue` does not copy the bytes. Joining a list of pieces would copy megabytes and block the event loop.
    return body.getvalue()


def check_rights_again(request: web.Request) -> None:
    """Raise a Refusal if the client has lost its login or a right while the body arrived, which it can delay."""
    access = request.get(ACCESS)
    loss = None if access is None else access.loss()
    if loss is not None:
        raise loss


def declared_length(request: web.Request) -> int | None:
    """Return the declared length of the body; None if the request does not declare it or the body is compressed."""
    return None if hdrs.CONTENT_ENCODING in request.headers else request.content_length


def body_too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body exceeds {bytes_max} bytes (kwire.http.max.body.bytes): send smaller requests", limit=bytes_max
    )


def _lease_of(request: web.Request) -> Lease:
    lease = request[BODY_LEASE] = request.app[RECEIVE_SETTINGS].memory.lease()
    return lease


def release_body(request: web.Request) -> None:
    """Release the memory of the request's body. Called when the handler has returned."""
    lease = request.get(BODY_LEASE)
    if lease is not None:
        lease.release()
