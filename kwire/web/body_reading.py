"""Receiving a request's body: within the bound on its size, counted in the port's memory, at a minimum pace.

A body that stops coming would hold its memory for good. It may pause for `kwire.http.receive.timeout.ms` in all, and
gains more time with every byte, at `kwire.http.receive.min.bytes.per.second`. While other requests wait for memory both
are stricter: SHORT_TIMEOUT_S and SHORT_BYTES_PER_SECOND. A body that is too slow is answered 408.
"""

import asyncio
from typing import NamedTuple

from aiohttp import StreamReader, hdrs, web

from kwire.config import WebConfig
from kwire.web.decompression import check_expansion, is_compressed
from kwire.web.errors import BadRequest, BodyTooLarge, Refusal
from kwire.web.memory import UNCOUNTED_BYTES, HttpMemory, Lease

SHORT_TIMEOUT_S = 2.0
SHORT_BYTES_PER_SECOND = 256 * 1024
# The first step of a body whose length is not declared; every further step doubles what is held.
FIRST_STEP_BYTES = 64 * 1024


class Intake(NamedTuple):
    """What every body of a port is received with."""

    memory: HttpMemory
    timeout_s: float
    bytes_per_second_min: int

    @classmethod
    def of(cls, memory: HttpMemory, config: WebConfig) -> "Intake":
        return cls(memory, config.receive_timeout_ms / 1000, config.receive_bytes_per_second_min)


INTAKE: web.AppKey[Intake] = web.AppKey("kwire.intake")
# What the request's body holds; the door gives it back when the request is answered.
BODY_LEASE = web.RequestKey("kwire.body_lease", Lease)


class Pace:
    """The time by which more of a body has to have come."""

    __slots__ = ("_bytes_per_second_min", "_loop", "_memory", "_received_bytes", "_short", "_since", "_timeout_s")

    def __init__(self, intake: Intake) -> None:
        self._memory, self._timeout_s, self._bytes_per_second_min = intake
        self._loop = asyncio.get_running_loop()
        self.begin()

    def begin(self) -> None:
        """Time runs from now on; what came before does not count."""
        self._since = self._loop.time()
        self._received_bytes = 0
        # When memory became short, and what had come by then: the stricter pace counts from there on.
        self._short: tuple[float, int] | None = None

    def received(self, count: int) -> None:
        self._received_bytes += count

    def deadline(self) -> float:
        received_bytes = self._received_bytes
        deadline = self._since + self._timeout_s + received_bytes / self._bytes_per_second_min
        if not self._memory.is_short:
            self._short = None
            return deadline
        if self._short is None:
            self._short = self._loop.time(), received_bytes
        since, before_bytes = self._short
        return min(deadline, since + SHORT_TIMEOUT_S + (received_bytes - before_bytes) / SHORT_BYTES_PER_SECOND)


async def paced_read(content: StreamReader, lease: Lease, pace: Pace) -> bytes:
    """What came next of a body, nothing at its end; raises TimeoutError when it comes too slowly."""
    try:
        async with asyncio.timeout_at(pace.deadline()) as until:
            with lease.memory.hurrying(lambda: until.reschedule(pace.deadline())):
                piece = await content.readany()
    except ConnectionError as error:
        # The reader keeps its exception, which would keep these frames, which keep the reader and what it holds.
        error.__traceback__ = None
        raise ConnectionResetError("the client is gone") from None
    pace.received(len(piece))
    return piece


async def received_body(request: web.Request) -> bytes:
    """All of the body; raises BodyTooLarge, MemoryExhausted, or a Refusal with status 408."""
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
    await lease.hold(declared if declared is not None else FIRST_STEP_BYTES)
    try:
        return await _received(request, lease)
    except TimeoutError:
        raise Refusal(
            "the body came too slowly: send it again, faster or in smaller requests", code="RequestTimeout", status=408
        ) from None
    except web.RequestPayloadError:
        # Chunks that are none, or not compressed as the request says.
        raise BadRequest("the body is broken off, or not encoded as the request says", code="InvalidBody") from None


async def _received(request: web.Request, lease: Lease) -> bytes:
    content, bytes_max = request.content, request.client_max_size
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
