"""A connection of the HTTP port: aiohttp's protocol with additional limits.

- A connection is accepted only within `kwire.http.max.connections` and `max.connections.per.ip`.
- A client that reads nothing of a response for `kwire.send.timeout.ms` is disconnected, even if its connection is being
  closed.
- A connection is established when one of its requests was let through (`request[ACCESS]`), until one is not. When the
  budget of a loop iteration is spent, a new request of an established connection waits for a later iteration. The other
  connections begin one request per iteration, and their networks take turns. So clients that guess passwords delay
  neither established connections nor, for long, clients of other networks.
- The amount of data that is received before it can be handled is limited. This applies to the headers of a request, to
  a body that is not read yet, and to pipelined requests.
- Bytes that are not HTTP are answered with a JSON error, like every error. They are logged without a traceback, because
  any client can send them. If they occur in a body, the reader of the body gets an error. With aiohttp (3.14) alone,
  the reader would wait forever.
- If a request is refused before its body was read, the rest of the body is discarded when it is received. The same
  applies to a compressed body that was not read completely. aiohttp would parse and decompress the rest before it
  closes the connection, and that would block the event loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from kwire.concurrency.chunking import schedule_chunk
from kwire.descriptors import HTTP, Descriptors, descriptor_of
from kwire.logs.rate_limited_log import RateLimitedLog
from kwire.metrics import HttpMetrics
from kwire.server.loop_budget import LoopBudget
from kwire.server.network_turns import NetworkTurns
from kwire.server.periodic import PeriodicCalls
from kwire.web.answers.errors import BadRequest, error_answer
from kwire.web.requests.access import ACCESS
from kwire.web.requests.decompression import is_compressed

# The time that a connection stays open after the server has stopped reading its body.
UNREAD_SECONDS = 1.0
# The statuses of responses after which the rest of the body is not read: the body arrived too slowly, or there was no
# memory for it.
NOT_READ_STATUSES = (408, 503)

log = logging.getLogger("kwire.server")

# aiohttp stops reading when twice this many bytes of a body are buffered.
READ_AHEAD_BYTES = 32 * 1024
# The maximum number of waiting pipelined requests. aiohttp then stops reading until half of them are handled.
PIPELINED_MAX = 8
# The limit on the request line and all headers together.
HEAD_BYTES_MAX = 64 * 1024
SWEEP_SECONDS = 1.0
# The maximum number of requests that begin in one loop iteration on connections that are not established. aiohttp
# handles a request after the callback that received it, which takes 0.3 ms, so the loop budget does not include it.
UNESTABLISHED_PER_ITERATION = 1
# The maximum number of connections that one call of `_read_later` defers. Each takes two microseconds.
POSTPONED_MAX = 500


class HttpConnections:
    """All connections of the HTTP port. Limits the number of connections, and disconnects stuck clients."""

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
        # This may be changed while the server runs. 0 means no limit.
        self.per_ip_max = per_ip_max
        self.per_ip_overrides: Mapping[str, int] = {}
        self._connections_max = connections_max
        self._connections: set[HttpConnection] = set()
        self._by_host: Counter[str] = Counter()
        # Connections whose TLS handshake has not ended.
        self._handshakes_by_host: Counter[str] = Counter()
        self._rate_limited_log = RateLimitedLog(log)
        self.loop_budget = LoopBudget()
        # The connections that are not established and wait for a turn, and those that wait for data.
        self._turns: NetworkTurns[HttpConnection] = NetworkTurns(
            asyncio.get_running_loop().call_soon, self._give_turn, UNESTABLISHED_PER_ITERATION
        )
        self._idle: dict[HttpConnection, None] = {}
        # The connection that had the last turn but no data yet. It may begin a request until the next turn.
        self._has_turn: HttpConnection | None = None
        self._periodic_calls = PeriodicCalls(self._connections, HttpConnection.tick, SWEEP_SECONDS)
        self._log_round_end = 0.0

    @property
    def count(self) -> int:
        """The number of open connections, including those of streams."""
        return len(self._connections)

    def admit(self, connection: "HttpConnection", transport: asyncio.BaseTransport) -> bool:
        """Register a new connection. Returns False if a limit is reached.

        The limits are the number of connections, the number per client host, and the number of file descriptors.
        """
        host = connection.client_host
        if not self._is_within_limits(host, descriptor_of(transport)):
            return False
        self._connections.add(connection)
        self._idle[connection] = None
        self._by_host[host] += 1
        self._periodic_calls.start()
        return True

    def admit_handshake(self, host: str, descriptor: int) -> bool:
        """Count a connection whose TLS handshake begins. Returns False if a limit is reached."""
        if not self._is_within_limits(host, descriptor):
            return False
        self._handshakes_by_host[host] += 1
        return True

    def end_handshake(self, host: str) -> None:
        self._handshakes_by_host[host] -= 1
        if not self._handshakes_by_host[host]:
            del self._handshakes_by_host[host]

    def _is_within_limits(self, host: str, descriptor: int) -> bool:
        """Return whether one more connection is allowed. Otherwise count and log the refusal."""
        handshakes = self._handshakes_by_host
        per_ip_max = self.per_ip_overrides.get(host, self.per_ip_max)
        if len(self._connections) + handshakes.total() >= self._connections_max:
            reason = f"kwire.http.max.connections={self._connections_max}"
        elif self._by_host[host] + handshakes[host] >= per_ip_max > 0:
            reason = f"max.connections.per.ip={per_ip_max}"
        else:
            return self.admit_descriptor(descriptor)
        self.metrics.connections_refused += 1
        self.warn("an HTTP connection from %s is refused: %s", host, reason)
        return False

    def admit_descriptor(self, descriptor: int) -> bool:
        """Return whether a connection may keep its descriptor. `Descriptors.admit` counts and logs a refusal."""
        return self._descriptors.admit(HTTP, descriptor)

    def take_turn(self, connection: "HttpConnection") -> bool:
        """Return whether a connection that is not established may begin a request. Otherwise it gets a turn later."""
        self._idle.pop(connection, None)
        if self._has_turn is connection:
            self._has_turn = None
            return True
        if self._turns.take():
            return True
        self._turns.add(connection.client_host, connection)
        self._read_later()
        return False

    def _read_later(self) -> None:
        """Let connections that wait for data wait for a turn first, because many may have received data by now."""
        for connection in tuple(islice(self._idle, POSTPONED_MAX)):
            del self._idle[connection]
            connection.pause()
            self._turns.add(connection.client_host, connection)

    def _give_turn(self, connection: "HttpConnection") -> None:
        if not connection.has_deferred_data:
            self._has_turn = connection
            self.await_data(connection)
        connection.receive_deferred()

    def await_data(self, connection: "HttpConnection") -> None:
        """Note that a connection that is not established waits for the first data of a request, or for more of it."""
        self._idle[connection] = None

    def leave(self, connection: "HttpConnection") -> None:
        self._idle.pop(connection, None)
        self._turns.discard(connection.client_host, connection)
        if self._has_turn is connection:
            self._has_turn = None
        if connection in self._connections:
            self._connections.discard(connection)
            self._by_host[connection.client_host] -= 1
            if not self._by_host[connection.client_host]:
                del self._by_host[connection.client_host]

    def warn(self, message: str, *details: object) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._log_round_end:
            self._log_round_end = now + SWEEP_SECONDS
            self._rate_limited_log.end_round()
        self._rate_limited_log.warning(message, *details)

    def close(self) -> None:
        self._periodic_calls.close()


class HttpConnection(RequestHandler):
    """One connection of the HTTP port."""

    __slots__ = (
        "_deferred_data",
        "_head_bytes",
        "_is_established",
        "_owner",
        "_socket",
        "_stuck_since",
        "_unsent_bytes",
        "client_host",
    )

    def __init__(self, others: HttpConnections, *args: Any, **kw: Any) -> None:
        super().__init__(*args, read_bufsize=READ_AHEAD_BYTES, **kw)
        self._max_msg_queue_size = PIPELINED_MAX
        self._msg_queue_resume_size = PIPELINED_MAX // 2
        self._owner = others
        # The transport. aiohttp removes its own reference when it begins to close the connection.
        self._socket: Any = None
        self.client_host = ""
        self._head_bytes = 0
        self._is_established = False
        # The received data of a request that waits for a later loop iteration.
        self._deferred_data: list[bytes] = []
        self._unsent_bytes = 0
        # The time since which the client has read nothing.
        self._stuck_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else ""
        if not self._owner.admit(self, transport):
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            return
        self._socket = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._owner.leave(self)
        self._socket = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        others = self._owner
        if self._deferred_data:
            self._deferred_data.append(data)
            return
        if data and self._current_request is None and not self._messages and not self._may_begin():
            self._deferred_data.append(data)
            self._socket.pause_reading()
            return
        others.loop_budget.start()
        self._receive(data)

    def _may_begin(self) -> bool:
        """Return whether a request may begin now. Otherwise `receive_deferred` is called in a later loop iteration."""
        if not self._is_established:
            return self._owner.take_turn(self)
        if self._owner.loop_budget.is_spent:
            schedule_chunk(self.receive_deferred)
            return False
        return True

    def pause(self) -> None:
        """Read nothing until `receive_deferred` is called."""
        self._socket.pause_reading()

    @property
    def has_deferred_data(self) -> bool:
        return bool(self._deferred_data)

    def receive_deferred(self) -> None:
        """Handle the data that was received before, and read again."""
        data = b"".join(self._deferred_data)
        self._deferred_data.clear()
        if self._socket is None:
            return
        if data:
            self._receive(data)
        if not self._reading_paused and not self._buffer_paused:
            self._socket.resume_reading()

    def _receive(self, data: bytes) -> None:
        super().data_received(data)
        if not self._messages:
            if self._waiter is not None:
                self._check_head(len(data))
                if not self._is_established:
                    self._owner.await_data(self)
            return
        self._head_bytes = 0
        if isinstance(self._messages[-1][0], _ErrInfo):
            request = self._current_request
            if request is not None and not request.content.is_eof():
                request.content.set_exception(web.RequestPayloadError("the body is not valid HTTP"))

    def _check_head(self, count: int) -> None:
        """Count the bytes of incomplete request headers. Above the limit, abort the connection."""
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            self._owner.warn(
                "closing the HTTP connection from %s: the headers of a request have more than %d bytes",
                self.client_host,
                HEAD_BYTES_MAX,
            )
            self.abort()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def tick(self, now: float) -> None:
        """Check whether the client is stuck. Called about once a second."""
        transport = self._socket
        if not (self._paused or transport.is_closing()) or transport.get_protocol() is not self:
            # The client reads its responses, or the connection is a stream. Streams have their own check.
            self._stuck_since = None
            return
        unsent_bytes = transport.get_write_buffer_size()
        if self._stuck_since is None or unsent_bytes < self._unsent_bytes:
            self._stuck_since = now
        elif now - self._stuck_since > self._owner.send_timeout_s:
            self._owner.metrics.closed_stuck += 1
            self._owner.warn("closing the HTTP connection from %s: the client does not read", self.client_host)
            self.abort()
        self._unsent_bytes = unsent_bytes

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        self._is_established = ACCESS in request
        if not self._is_established and self._socket is not None:
            self._owner.await_data(self)
        if not request.content.is_eof() and (is_compressed(request.content) or resp.status >= 400):
            resp.force_close()
            # After this call, received data is ignored.
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
        answer = error_answer(BadRequest(f"the request is not valid HTTP: {message}", code="InvalidHttp"))
        answer.force_close()
        return answer
