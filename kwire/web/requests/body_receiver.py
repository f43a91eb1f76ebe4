"""Receiving a request's body: within the bound on its size, counted in the port's memory, at a minimum pace.

A body that stops coming would hold its memory for good. So within each `kwire.http.receive.timeout.ms` it has to bring
at least `kwire.http.receive.rate.min` bytes per second, or be complete. While other requests wait for memory the rule
is stricter: SHORT_TIMEOUT_S and SHORT_RATE_MIN. A body that is too slow is answered 408.
"""

import asyncio
from typing import NamedTuple

from aiohttp import StreamReader, hdrs, web

from kwire.config import WebConfig
from kwire.web.decompression import check_expansion, is_compressed
from kwire.web.errors import BadRequest, BodyTooLarge, Refusal
from kwire.web.memory import UNCOUNTED_BYTES, HttpMemory, Lease

SHORT_TIMEOUT_S = 2.0
SHORT_RATE_MIN = 256 * 1024
# Taken from the connection at a time; what came beyond it waits there and counts as read ahead.
READ_BYTES = 64 * 1024


class Intake(NamedTuple):
    """What every body of a port is received with."""

    memory: HttpMemory
    timeout_s: float
    rate_min: int

    @classmethod
    def of(cls, memory: HttpMemory, config: WebConfig) -> "Intake":
        return cls(memory, config.receive_timeout_ms / 1000, config.receive_rate_min)


INTAKE: web.AppKey[Intake] = web.AppKey("kwire.intake")
# What the request's body holds; the door gives it back when the request is answered.
BODY_LEASE = web.RequestKey("kwire.body_lease", Lease)


class _Window:
    """Until `deadline`, `missing_bytes` more have to come; then the next window begins."""

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


class Pace:
    """The time by which more of a body has to have come."""

    __slots__ = ("_loop", "_memory", "_short", "_window")

    def __init__(self, intake: Intake) -> None:
        self._loop = asyncio.get_running_loop()
        self._memory, timeout_s, rate_min = intake
        self._window = _Window(timeout_s, rate_min, self._loop.time())
        # The window of the stricter rule, while others wait for memory.
        self._short: _Window | None = None

    def begin(self) -> None:
        """Time runs from now on; what came before does not count."""
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
            self._short = _Window(SHORT_TIMEOUT_S, SHORT_RATE_MIN, self._loop.time())
        return min(self._window.deadline, self._short.deadline)


async def paced_read(content: StreamReader, lease: Lease, pace: Pace) -> bytes:
    """Up to READ_BYTES that came next of a body, nothing at its end; raises TimeoutError when it comes too slowly."""
    try:
        async with asyncio.timeout_at(pace.deadline()) as until:
            with lease.memory.hurrying(lambda: until.reschedule(pace.deadline())):
                piece = await content.read(READ_BYTES)
    except ConnectionError as error:
        # The reader keeps its exception, which would keep these frames, which keep the reader and what it holds.
        error.__traceback__ = None
        raise ConnectionResetError("the client is gone") from None
    pace.received(len(piece))
    return piece


async def received_body(request: web.Request) -> bytes:
    """All of the body; raises BodyTooLarge, MemoryExhausted, or a Refusal with status 408."""
    try:
        return await _body(request)
    except TimeoutError:
        raise Refusal(
            "the body came too slowly: send it again, faster or in smaller requests", code="RequestTimeout", status=408
        ) from None
    except web.RequestPayloadError:
        # Chunks that are none, or not compressed as the request says.
        raise BadRequest("the body is broken off, or not encoded as the request says", code="InvalidBody") from None


async def _body(request: web.Request) -> bytes:
    content, bytes_max = request.content, request.client_max_size
    declared = declared_length(request)
    if declared is not None and declared > bytes_max:
        raise body_too_large(bytes_max)
    if content.is_eof():
        # It came together with the request, as most do: there is nothing to wait for.
        raw = content.read_nowait()
        if len(raw) > bytes_max:
            raise body_too_large(bytes_max)
        check_expansion(content, len(raw))
        if len(raw) > UNCOUNTED_BYTES:
            await _lease_of(request).hold(len(raw))
        return raw
    lease = _lease_of(request)
    await lease.hold(declared if declared is not None else READ_BYTES)
    pace = Pace(request.app[INTAKE])
    pieces: list[bytes] = []
    size_bytes = 0
    while piece := await paced_read(content, lease, pace):
        size_bytes += len(piece)
        if size_bytes > bytes_max:
            # The rest is still on its way; the answer ends the connection instead of reading it.
            raise body_too_large(bytes_max)
        if size_bytes > lease.size_bytes:
            await lease.hold(min(max(size_bytes, 2 * lease.size_bytes), bytes_max))
            pace.begin()
        pieces.append(piece)
        if is_compressed(content):
            check_expansion(content, size_bytes)
            # The next step of decompression is at hand without waiting.
            await asyncio.sleep(0)
    return b"".join(pieces)


def declared_length(request: web.Request) -> int | None:
    """The length that the body will have; None where the request does not declare it, or compresses the body."""
    return None if hdrs.CONTENT_ENCODING in request.headers else request.content_length


def body_too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body may have {bytes_max} bytes", limit=bytes_max)


def _lease_of(request: web.Request) -> Lease:
    lease = request[BODY_LEASE] = request.app[INTAKE].memory.lease()
    return lease


def release_body(request: web.Request) -> None:
    """The request is answered: its body holds no memory any more."""
    lease = request.get(BODY_LEASE)
    if lease is not None:
        lease.release()
