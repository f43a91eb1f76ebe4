"""Sends large answers in pieces of at most PIECE_BYTES. The server writes a piece only when the transport's buffer is
below its limit.

A page of events is an async generator of parts (`Parts`). A part has the events of one read from the log. A page of at
most PIECE_BYTES is sent with a Content-Length. A larger page is sent in HTTP chunks while it is read. So for a client
that does not read, the server keeps only one part and the transport's buffer in memory, not the whole page. An answer
that is already complete and has more than PIECE_BYTES is counted in the port's memory (`HttpMemory`) until it is sent.

If a client receives nothing for `kwire.send.timeout.ms`, its connection is closed
(`kwire/server/http/connection.py`).
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from aiohttp import hdrs, web

from kwire.streams.events.event import Event
from kwire.web.answers.errors import error_answer
from kwire.web.requests.memory import SMALL_BYTES, HttpMemory, Lease
from kwire.web.requests.request_ids import common_headers
from kwire.web.services import PortServices

log = logging.getLogger("kwire.web")

PIECE_BYTES = 64 * 1024
# The memory of an answer in addition to the part that is being sent: one piece, and the unsent bytes in the transport.
SENDING_BYTES = 2 * PIECE_BYTES
# The maximum size of a part. If the memory for a part of PART_BYTES is not free, the maximum is SHORTAGE_PART_BYTES.
PART_BYTES = 128 * 1024
SHORTAGE_PART_BYTES = 32 * 1024

Parts = AsyncGenerator[bytes, None]


class PartSizes:
    """Determines the maximum size of each part of a page, and counts the current part in the port's memory. Call
    `release` when the page is sent."""

    __slots__ = ("_is_begun", "_lease", "_scheduler")

    def __init__(self, port: PortServices) -> None:
        self._lease: Lease = port.memory.lease()
        self._scheduler = port.page_scheduler
        self._is_begun = False

    async def next_bytes_max(self) -> int:
        """Wait until the next part may be read, and return its maximum size. Only the first call may raise
        MemoryExhausted."""
        await self._scheduler.next()
        if self._lease.try_hold(SENDING_BYTES + PART_BYTES):
            self._is_begun = True
            return PART_BYTES
        if not self._is_begun:
            self._is_begun = True
            await self._lease.hold(SMALL_BYTES)
        return SHORTAGE_PART_BYTES

    def check(self, events: Sequence[Event]) -> None:
        """Count a part that exceeds its maximum size because of one large event. Raises MemoryExhausted if the memory
        is not free."""
        size_bytes = sum([event.size_bytes for event in events])
        if size_bytes > self._lease.size_bytes and not self._lease.try_hold(SENDING_BYTES + size_bytes):
            raise self._lease.memory.exhausted()

    def release(self) -> None:
        self._lease.release()


async def stream_answer(
    request: web.Request, parts: Parts, content_type: str, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Send an answer that consists of the parts. If the generator `parts` raises before the first piece is sent, the
    exception propagates. If it raises later, the connection is aborted."""
    response: web.StreamResponse | None = None
    pending: list[bytes] = []
    size_bytes = 0
    async with aclosing(parts):
        try:
            async for part in parts:
                size_bytes += len(part)
                if request.method == hdrs.METH_HEAD:
                    continue
                if response is not None:
                    await _write(request, response, part)
                    continue
                pending.append(part)
                if size_bytes > PIECE_BYTES:
                    response = await _begun(request, content_type, headers)
                    part = b"".join(pending)
                    pending.clear()
                    await _write(request, response, part)
        except BaseException as error:
            if response is None:
                raise
            # The status is already sent. Only an aborted connection shows the client that the answer is incomplete.
            if request.transport is not None:
                request.transport.abort()
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, ConnectionError):
                log.error("an answer was aborted after it had begun", exc_info=error)
            raise ConnectionResetError("the answer was aborted") from error
    if response is not None:
        return response
    whole = web.Response(body=b"".join(pending), content_type=content_type, headers=headers)
    if request.method == hdrs.METH_HEAD:
        whole.headers[hdrs.CONTENT_LENGTH] = str(size_bytes)
    return whole


async def _begun(request: web.Request, content_type: str, headers: Mapping[str, str] | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={**(headers or {}), **common_headers(request)})
    response.content_type = content_type
    if request.version < (1, 1):
        # HTTP/1.0 has no chunked encoding. The end of the connection ends the answer.
        response.force_close()
    await response.prepare(request)
    return response


async def send_in_pieces(request: web.Request, answer: web.Response, memory: HttpMemory) -> web.StreamResponse:
    """Send a large complete answer piece by piece, and count it in the port's memory until it is sent. Return an answer
    with status 503 if the memory is not free. Return small answers unchanged."""
    body = answer.body
    if request.method == hdrs.METH_HEAD or not isinstance(body, bytes) or len(body) <= PIECE_BYTES:
        return answer
    lease = memory.lease()
    if not lease.try_hold(len(body)):
        return error_answer(memory.exhausted())
    try:
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=answer.headers)
        response.content_length = len(body)
        await response.prepare(request)
        await _write(request, response, body)
        await response.write_eof()
    finally:
        lease.release()
    return response


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Write `data` in pieces. Returns when the transport's buffer is below its limit."""
    for start in range(0, len(data), PIECE_BYTES):
        # Copy the piece. A memoryview would keep all of `data` in memory until the transport has sent the piece.
        await response.write(data[start : start + PIECE_BYTES])
        await request.writer.drain()
