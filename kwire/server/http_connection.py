"""A connection of the HTTP port: aiohttp's protocol with bounds of ours.

- It is admitted only within `kwire.http.max.connections` and `max.connections.per.ip`.
- A client that takes nothing of an answer for `kwire.send.timeout.ms` is cut off, also while its connection is closing.
- What it sends ahead is bounded: the head of a request, a body that is not read yet, and requests behind the first.
- Bytes that are not HTTP are answered as every refusal is, as JSON, and are not worth a traceback in the log: anybody
  can send them. When they come in the middle of a body, its reader gets an error; aiohttp (3.14) would let it wait for
  a rest that never comes.
- The rest of a body that was refused, or is compressed and was not read to its end, is dropped as it comes: aiohttp
  would parse and decompress it before it closes the connection, without giving others their turn.
"""

import asyncio
import logging
from collections import Counter
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from kwire.descriptors import HTTP, Descriptors, descriptor_of
from kwire.metrics import HttpMetrics
from kwire.server.complaints import Complaints
from kwire.server.rounds import Rounds
from kwire.web.decompression import is_compressed
from kwire.web.errors import BadRequest, error_answer

# How long a connection stays open whose body is not read any further.
UNREAD_SECONDS = 1.0
# Answers to bodies that came too slowly, or that there is no memory for: to read the rest would be work for nothing.
NOT_READ_STATUSES = (408, 503)

log = logging.getLogger("kwire.server")

# aiohttp stops reading at twice this many bytes of a body that is not read.
READ_AHEAD_BYTES = 32 * 1024
# Requests that wait behind the one that is handled; reading goes on when half of them are handled.
PIPELINED_MAX = 8
# A request line and all headers.
HEAD_BYTES_MAX = 64 * 1024
SWEEP_SECONDS = 1.0


class HttpConnections:
    """The connections of the HTTP port: how many there may be, and which of them are stuck."""

    def __init__(
        self,
        metrics: HttpMetrics,
        descriptors: Descriptors,
        connections_max: int,
        per_ip_max: int,
        send_timeout_ms: int,
    ) -> None:
        self.metrics = metrics
        self._descriptors = descriptors
        self.send_timeout_s = send_timeout_ms / 1000
        # May be changed while the server runs; 0 is no bound.
        self.per_ip_max = per_ip_max
        self._connections_max = connections_max
        self._connections: set[HttpConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._complaints = Complaints(log)
        self._rounds = Rounds(self._connections, HttpConnection.tick, SWEEP_SECONDS)
        self._complaints_end = 0.0

    def admit(self, connection: "HttpConnection", transport: asyncio.BaseTransport) -> bool:
        """Whether there is room for one more connection: in all, from its host, and in file descriptors."""
        host = connection.client_host
        if len(self._connections) >= self._connections_max:
            reason = f"kwire.http.max.connections={self._connections_max}"
        elif self._by_host[host] >= self.per_ip_max > 0:
            reason = f"max.connections.per.ip={self.per_ip_max}"
        elif not self._descriptors.admit(HTTP, descriptor_of(transport)):
            # Counted and logged there.
            return False
        else:
            self._connections.add(connection)
            self._by_host[host] += 1
            self._rounds.wake()
            return True
        self.metrics.connections_refused += 1
        self.complain("an HTTP connection from %s is refused: %s", host, reason)
        return False

    def leave(self, connection: "HttpConnection") -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._by_host[connection.client_host] -= 1
            if not self._by_host[connection.client_host]:
                del self._by_host[connection.client_host]

    def complain(self, message: str, *details: object) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._complaints_end:
            self._complaints_end = now + SWEEP_SECONDS
            self._complaints.end_round()
        self._complaints.add(message, *details)

    def close(self) -> None:
        self._rounds.close()


class HttpConnection(RequestHandler):
    __slots__ = ("_head_bytes", "_others", "_socket", "_stuck_since", "_unsent_bytes", "client_host")

    def __init__(self, others: HttpConnections, *args: Any, **kw: Any) -> None:
        super().__init__(*args, read_bufsize=READ_AHEAD_BYTES, **kw)
        self._max_msg_queue_size = PIPELINED_MAX
        self._msg_queue_resume_size = PIPELINED_MAX // 2
        self._others = others
        # aiohttp forgets its own reference when it begins to close the connection.
        self._socket: Any = None
        self.client_host = ""
        self._head_bytes = 0
        self._unsent_bytes = 0
        # Since when the client has not taken anything.
        self._stuck_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else ""
        if not self._others.admit(self, transport):
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            return
        self._socket = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._others.leave(self)
        self._socket = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._messages:
            if self._waiter is not None:
                self._check_head(len(data))
            return
        self._head_bytes = 0
        if isinstance(self._messages[-1][0], _ErrInfo):
            request = self._current_request
            if request is not None and not request.content.is_eof():
                request.content.set_exception(web.RequestPayloadError("the body is no HTTP"))

    def _check_head(self, count: int) -> None:
        """Count the bytes of a head that is not whole yet."""
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            self._others.complain(
                "closing the HTTP connection from %s: the head of a request has more than %d bytes",
                self.client_host,
                HEAD_BYTES_MAX,
            )
            self.abort()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def tick(self, now: float) -> None:
        """Called about once a second."""
        transport = self._socket
        if not (self._paused or transport.is_closing()) or transport.get_protocol() is not self:
            # It takes what it gets, or it is a stream by now, which has a watch of its own.
            self._stuck_since = None
            return
        unsent_bytes = transport.get_write_buffer_size()
        if self._stuck_since is None or unsent_bytes < self._unsent_bytes:
            self._stuck_since = now
        elif now - self._stuck_since > self._others.send_timeout_s:
            self._others.metrics.closed_stuck += 1
            self._others.complain("closing the HTTP connection from %s: it takes no answer", self.client_host)
            self.abort()
        self._unsent_bytes = unsent_bytes

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if not request.content.is_eof() and (is_compressed(request.content) or resp.status >= 400):
            resp.force_close()
            # From here on what comes is not looked at. The client has a moment to read the answer.
            self.close()
            if is_compressed(request.content) or resp.status in NOT_READ_STATUSES:
                self._pause_reading_for_buffer()
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
