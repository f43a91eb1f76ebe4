"""Streaming HTTP connections: WebSocket, Server-Sent Events, JSON lines.

aiohttp (3.14) reads the request. Then the transport's asyncio protocol is replaced by a `StreamConnection`, and the
task of the request's handler waits until the connection is lost. In this time aiohttp is inactive: its keep-alive timer
acts only between requests, its parser gets no bytes, and its writer is not used. When the connection is lost, aiohttp's
`connection_lost` is called, so that aiohttp cleans up.

Bytes that were received directly after an upgrade request are in aiohttp's `_message_tail`. They are passed to the
session. If a later version of aiohttp renames this attribute, such bytes are lost. Only clients that send before they
get the response are affected, and WebSocket forbids that.

Every connection is checked about once a second (`periodic.py`).
"""

import asyncio
import contextlib
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kwire.access.quotas.kinds import QuotaKind
from kwire.server.http.stream_quota import WAIT_SECONDS_MAX, StreamQuota
from kwire.server.periodic import PeriodicCalls
from kwire.web.requests.access import access_of

if TYPE_CHECKING:
    from aiohttp import web

    from kwire.access.quotas.quotas import Quotas
    from kwire.metrics import StreamMetrics
    from kwire.web.requests.access import RequestAccess
    from kwire.web.streaming.streaming import Outlet, Session

log = logging.getLogger("kwire.server")

# If a connection has more unsent bytes, its session has to wait.
UNSENT_BYTES_MAX = 256 * 1024
# The interval at which each connection is checked: also the time after which a stream notices that rights were taken
# away.
SWEEP_SECONDS = 1.0
# When the node stops, one loop iteration stops at most this many sessions.
STOPS_PER_CHUNK = 100
# A number that is larger than the number of unsent bytes of any connection.
ALL_BYTES = 1 << 62
# The time that a client has to close its connection after it has received the end of the stream.
LINGER_SECONDS = 2.0
# The time that clients have to receive the end of their streams when the node stops.
STOP_TIMEOUT_SECONDS = 2.0


class StreamConnection(asyncio.Protocol):
    """One streaming connection. It implements `Outlet` for a session, and `asyncio.Protocol` for a transport."""

    __slots__ = (
        "_access",
        "_access_revision",
        "_aiohttp_protocol",
        "_closed",
        "_is_full",
        "_is_reading",
        "_linger_until",
        "_owner",
        "_quota",
        "_transport",
        "_unread_until",
        "_unsent_at_end",
        "_unsent_bytes",
        "_unsent_until",
        "is_open",
        "is_writable",
        "session",
        "stuck_since",
    )  # fmt: skip

    session: "Session"

    def __init__(
        self,
        owner: "StreamConnections",
        transport: Any,
        aiohttp_protocol: Any,
        closed: "asyncio.Future[None]",
        access: "RequestAccess",
        quota: StreamQuota | None,
    ) -> None:
        self._quota = quota
        # The times until which the stream sends nothing, and reads nothing, because of quotas.
        self._unsent_until = self._unread_until = 0.0
        # Whether the client reads more slowly than the session writes.
        self._is_full = False
        self._access = access
        # None: the rights may have changed since the request was admitted, so the first tick checks them.
        self._access_revision: int | None = None
        self._owner = owner
        self._transport = transport
        self._aiohttp_protocol = aiohttp_protocol
        self._closed = closed
        self._is_reading = True
        self._unsent_bytes = 0
        # The number of unsent bytes when the client closed the connection, or ALL_BYTES if the connection broke. None
        # while the connection is open.
        self._unsent_at_end: int | None = None
        self._linger_until = 0.0
        self.is_open = True
        self.is_writable = True
        # The time since which the client has received nothing.
        self.stuck_since: float | None = None

    def write(self, data: bytes) -> None:
        if self.is_open:
            self._owner.metrics.sent_bytes += len(data)
            self._transport.write(data)
            if self._quota is not None and (wait_s := self._quota.charge(QuotaKind.CONSUME, len(data))):
                self._unsent_until = self._owner.loop.time() + wait_s
                if self.is_writable:
                    self.is_writable = False
                    self._resume_sending()

    @property
    def unsent_bytes(self) -> int:
        if self._unsent_at_end is not None:
            return self._unsent_at_end
        return int(self._transport.get_write_buffer_size()) + _unconfirmed_bytes(self._transport)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            # A slow client has this time to receive the data that was already written.
            self._linger_until = self._owner.loop.time() + self._owner.send_timeout_s
        self._transport.close()

    def finish(self) -> None:
        if self.is_open:
            self.is_open = False
            self._linger(self._owner.loop.time(), self._transport.get_write_buffer_size())
            self.resume_reading()
            self._transport.write_eof()

    def abort(self) -> None:
        self.is_open = False
        self._transport.abort()

    def pause_reading(self) -> None:
        if self._is_reading and self.is_open:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and not self._unread_until:
            self._is_reading = True
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._owner.metrics.received_bytes += len(data)
        if not self.is_open:
            return
        if self._quota is not None and (wait_s := self._quota.charge(QuotaKind.PRODUCE, len(data))):
            self._wait_to_read(wait_s)
        try:
            self.session.received(data)
        except Exception:
            self._fail()

    def eof_received(self) -> bool:
        self._unsent_at_end = self.unsent_bytes
        return False

    # --- quotas: a stream that exceeds one waits

    def _resume_sending(self) -> None:
        """Let the session write again at the end of its wait."""
        left_s = self._unsent_until - self._owner.loop.time()
        if left_s > 0 and self.is_open:
            self._owner.loop.call_later(min(left_s, WAIT_SECONDS_MAX), self._resume_sending)
            return
        self._unsent_until = 0.0
        if not self._is_full:
            self._continue_session()

    def _wait_to_read(self, seconds: float) -> None:
        is_waiting, self._unread_until = bool(self._unread_until), self._owner.loop.time() + seconds
        if not is_waiting:
            self.pause_reading()
            self._resume_receiving()

    def _resume_receiving(self) -> None:
        left_s = self._unread_until - self._owner.loop.time()
        if left_s > 0 and self.is_open:
            self._owner.loop.call_later(min(left_s, WAIT_SECONDS_MAX), self._resume_receiving)
            return
        self._unread_until = 0.0
        if self.is_open:
            self.resume_reading()

    def pause_writing(self) -> None:
        self.is_writable = False
        self._is_full = True
        self.stuck_since = self._owner.loop.time()
        self._unsent_bytes = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._is_full = False
        self.stuck_since = None
        if not self._unsent_until:
            self._continue_session()

    def _continue_session(self) -> None:
        if not self._transport.is_closing():
            self.is_writable = True
        if self.is_open:
            try:
                self.session.writable()
            except Exception:
                self._fail()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = self.is_writable = False
        if self._unsent_at_end is None:
            # The connection broke, so it is not known how much the client received.
            self._unsent_at_end = ALL_BYTES
        self._owner.leave(self)
        try:
            self.session.lost()
        except Exception:
            log.exception("a stream failed after its connection was lost")
        self._aiohttp_protocol.connection_lost(error)
        if not self._closed.done():
            self._closed.set_result(None)

    def tick(self, now: float) -> None:
        if not self.is_open:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                self._linger(now, unsent_bytes)
            elif now > self._linger_until:
                self.abort()
            return
        if self.stuck_since is not None:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                # The client has received bytes since the last tick, so it is slow, but not stuck.
                self.stuck_since = now
            self._unsent_bytes = unsent_bytes
            if now - self.stuck_since > self._owner.send_timeout_s:
                self._owner.metrics.closed_stuck += 1
                self.abort()
                return
        try:
            if self._access.revision != self._access_revision:
                self._access_revision = self._access.revision
                self.session.check_access()
            self.session.tick(now)
        except Exception:
            self._fail()

    def _linger(self, now: float, unsent_bytes: int) -> None:
        """Set the time at which the connection is aborted: after `send_timeout_s`, or LINGER_SECONDS if all is sent."""
        self._unsent_bytes = unsent_bytes
        self._linger_until = now + (self._owner.send_timeout_s if unsent_bytes else LINGER_SECONDS)

    def stop(self) -> None:
        if self.is_open:
            try:
                self.session.stop()
            except Exception:
                self._fail()

    def _fail(self) -> None:
        """Abort the connection of a session that raised an exception."""
        self._owner.metrics.closed_failed += 1
        log.exception("a stream failed; its connection is closed")
        self.abort()


def _unconfirmed_bytes(transport: Any) -> int:
    """Return the number of bytes that the client's machine has not acknowledged. 0 if the system does not report it."""
    try:
        raw = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, AttributeError):
        return 0
    (count,) = struct.unpack("i", raw)
    return int(count)


class StreamConnections:
    """All streaming connections.

    The object is called with a request. The call turns the request's connection into a stream, and returns when the
    connection is closed.
    """

    def __init__(
        self, metrics: "StreamMetrics", send_timeout_ms: int, dead_peer_ms: int, quotas: "Quotas | None" = None
    ) -> None:
        """A client that has received nothing for `send_timeout_ms`, although bytes are unsent, is disconnected.

        The operating system closes a connection if the client's machine does not acknowledge sent data for
        `dead_peer_ms`. Without `quotas` streams have none.
        """
        self.loop = asyncio.get_running_loop()
        self.metrics = metrics
        self._quotas = quotas
        self.send_timeout_s = send_timeout_ms / 1000
        self._dead_peer_ms = dead_peer_ms
        self._connections: set[StreamConnection] = set()
        self._periodic_calls = PeriodicCalls(self._connections, StreamConnection.tick, SWEEP_SECONDS)
        self._all_closed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._connections)

    async def __call__(self, request: "web.Request", head: bytes, make_session: "Callable[[Outlet], Session]") -> None:
        transport: Any = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has closed the connection")
        closed: asyncio.Future[None] = self.loop.create_future()
        aiohttp_protocol: Any = request.protocol
        access = access_of(request)
        quota = None if self._quotas is None else StreamQuota(self._quotas, access.principal.name)
        connection = StreamConnection(self, transport, aiohttp_protocol, closed, access, quota)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        with contextlib.suppress(OSError, AttributeError):
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._dead_peer_ms)
        tail = getattr(aiohttp_protocol, "_message_tail", b"")
        if tail:
            aiohttp_protocol._message_tail = b""
        # The protocol is set before the session is created, because the first writes may already fill the write buffer.
        transport.set_protocol(connection)
        try:
            connection.write(head)
            connection.session = make_session(connection)
            if not transport.is_reading():
                # aiohttp may have stopped reading, if it received much data after the request.
                transport.resume_reading()
            self._join(connection)
            if tail:
                connection.data_received(tail)
            await closed
        finally:
            # aiohttp may cancel this task, after its shutdown timeout.
            connection.abort()

    async def close(self) -> None:
        """Stop every session, and abort the connections that are still open after STOP_TIMEOUT_SECONDS."""
        if self._connections:
            self._all_closed = asyncio.Event()
            for number, connection in enumerate(tuple(self._connections), 1):
                connection.stop()
                if not number % STOPS_PER_CHUNK:
                    await asyncio.sleep(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                    await self._all_closed.wait()
            for connection in tuple(self._connections):
                connection.abort()
        self._periodic_calls.close()

    def leave(self, connection: StreamConnection) -> None:
        self._connections.discard(connection)
        self.metrics.open_count = len(self._connections)
        if not self._connections and self._all_closed is not None:
            self._all_closed.set()

    def _join(self, connection: StreamConnection) -> None:
        self._connections.add(connection)
        self.metrics.opened += 1
        self.metrics.open_count = len(self._connections)
        if self._all_closed is not None:
            # The connection was opened while the node stops.
            self._all_closed.clear()
            connection.stop()
        self._periodic_calls.start()
