"""A connection of the HTTP port: aiohttp's protocol, and what becomes of bytes that are no HTTP.

They are answered as every refusal is, as JSON, and are not worth a traceback in the log: anybody can send them. When
they come in the middle of a body, whoever reads that body is told; aiohttp (3.14) would let it wait for a rest that
never comes.

A compressed body that was not read to its end is dropped: aiohttp would read the rest before it closes the connection,
and so decompress it, without giving others their turn.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from kwire.web.decompression import is_compressed
from kwire.web.errors import BadRequest, error_answer

# How long a connection stays open whose compressed body is not read any further.
UNREAD_SECONDS = 1.0

log = logging.getLogger("kwire.server")


class HttpConnection(RequestHandler):
    __slots__ = ("_may_stay",)

    def __init__(self, may_stay: Callable[[asyncio.BaseTransport], bool], *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._may_stay = may_stay

    def connection_made(self, transport: Any) -> None:
        if not self._may_stay(transport):
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            return
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            request = self._current_request
            if request is not None and not request.content.is_eof():
                request.content.set_exception(web.RequestPayloadError("the body is no HTTP"))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if is_compressed(request.content) and not request.content.is_eof():
            resp.force_close()
            # From here on what comes is not looked at. The client has a moment to read the answer.
            self.close()
            self._lingering_time = UNREAD_SECONDS
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        if isinstance(kw.get("exc_info"), HttpProcessingError | web.RequestPayloadError):
            log.debug(*args, **kw)
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        answer = error_answer(BadRequest(f"this is no HTTP: {message}", code="InvalidHttp"))
        answer.force_close()
        return answer
