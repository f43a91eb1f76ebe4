"""Large answers, sent in pieces: the client takes one before the next is made or handed to the transport.

A page of events is an async generator of parts (`Parts`). It is sent whole, with its length, if it fits into one piece;
otherwise as chunks while it is read, so that a client that does not read holds one part and what lies in the transport,
not the page. An answer that is there as a whole is counted in the port's memory until it is sent.

Its connection cuts off a client that takes nothing for `kwire.send.timeout.ms` (`kwire/server/http_connection.py`).
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from aiohttp import hdrs, web

from kwire.broker.events.event import Event
from kwire.web.errors import error_answer
from kwire.web.memory import SMALL_BYTES, HttpMemory, Lease
from kwire.web.safety import cors_headers
from kwire.web.services import WebServices

log = logging.getLogger("kwire.web")

PIECE_BYTES = 64 * 1024
# What an answer holds besides the part that is being sent: the piece and what the transport has not sent.
SENDING_BYTES = 2 * PIECE_BYTES
# What is read ahead of the client: normally, and while memory is short.
PART_BYTES = 128 * 1024
SHORT_PART_BYTES = 32 * 1024

Parts = AsyncGenerator[bytes, None]


class PartSizes:
    """How much a page may read at a time, counted in the port's memory. Released when the page is sent."""

    __slots__ = ("_is_begun", "_lease", "_turns")

    def __init__(self, services: WebServices) -> None:
        self._lease: Lease = services.memory.lease()
        self._turns = services.page_turns
        self._is_begun = False

    async def next_bytes_max(self) -> int:
        """For the next part, when it may be read; raises MemoryExhausted, but only for the first."""
        await self._turns.next()
        if self._lease.try_hold(SENDING_BYTES + PART_BYTES):
            self._is_begun = True
            return PART_BYTES
        if not self._is_begun:
            self._is_begun = True
            await self._lease.hold(SMALL_BYTES)
        return SHORT_PART_BYTES

    def check(self, events: Sequence[Event]) -> None:
        """Count a part that a single large event made larger; raises MemoryExhausted where it may not be held."""
        size_bytes = sum([event.size_bytes for event in events])
        if size_bytes > self._lease.size_bytes and not self._lease.try_hold(SENDING_BYTES + size_bytes):
            raise self._lease.memory.exhausted()

    def release(self) -> None:
        self._lease.release()


async def stream_answer(
    request: web.Request, parts: Parts, content_type: str, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """An answer from its parts. What they raise before the first piece is full is the caller's to answer."""
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
            # The answer has begun: only a broken connection tells that it is not whole.
            if request.transport is not None:
                request.transport.abort()
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, ConnectionError):
                log.error("an answer broke off", exc_info=error)
            raise ConnectionResetError("an answer broke off") from error
    if response is not None:
        return response
    whole = web.Response(body=b"".join(pending), content_type=content_type, headers=headers)
    if request.method == hdrs.METH_HEAD:
        whole.headers[hdrs.CONTENT_LENGTH] = str(size_bytes)
    return whole


async def _begun(request: web.Request, content_type: str, headers: Mapping[str, str] | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={**(headers or {}), **cors_headers(request)})
    response.content_type = content_type
    if request.version < (1, 1):
        # Without chunks the end of the connection is the end of the answer.
        response.force_close()
    await response.prepare(request)
    return response


async def send_in_pieces(request: web.Request, answer: web.Response, memory: HttpMemory) -> web.StreamResponse:
    """An answer that is there as a whole; it is counted until it is sent, and refused where there is no room."""
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
    """Send, piece by piece; returns when the transport holds less than a piece."""
    for start in range(0, len(data), PIECE_BYTES):
        # A copy: a view would keep all of it until the transport has sent this piece.
        await response.write(data[start : start + PIECE_BYTES])
        await request.writer.drain()
