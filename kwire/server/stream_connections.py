"""A connection that is not aiohttp's any more: the protocol object that takes aiohttp's place at the transport.

aiohttp (3.14) has read a request and its handler's task waits until the connection is lost; nothing else of aiohttp
moves meanwhile: its keep-alive timer acts only between requests, its parser sees no bytes, its writer is not used. At
the end aiohttp is told that the connection is lost, as the transport would have done, and cleans up. Bytes that came
right behind the request of an upgrade lie in `_message_tail`: they are the session's. Should an aiohttp to come not
know that name, then only those lose something who send before they are answered, which WebSocket forbids.

Every connection is looked at about once a second (`rounds.py`).
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

from kwire.server.rounds import Rounds

if TYPE_CHECKING:
    from aiohttp import web

    from kwire.metrics import StreamMetrics
    from kwire.web.streaming import Outlet, Session

log = logging.getLogger("kwire.server")

# Bytes one client may leave unsent before its session is told to wait.
UNSENT_BYTES_MAX = 256 * 1024
SWEEP_SECONDS = 1.0
# Connections that are told in one turn of the loop that the node stops.
STOP_PORTION = 100
# More than anybody was ever sent.
ALL_BYTES = 1 << 62
# How long a client may take to close a connection whose stream has ended, from when it has taken the last of it.
LINGER_SECONDS = 2.0
# How long clients may take for the goodbyes of a node that stops.
GOODBYE_SECONDS = 2.0


class TakenConnection(asyncio.Protocol):
    """One connection: the session's outlet on one side, the transport's protocol on the other."""

    __slots__ = ("_former", "_gone", "_is_reading", "_left_bytes", "_linger_until", "_owner", "_transport",
                 "_unsent_bytes", "is_open", "is_writable", "session", "stuck_since")  # fmt: skip

    session: "Session"

    def __init__(self, owner: "TakeOvers", transport: Any, former: Any, gone: "asyncio.Future[None]") -> None:
        self._owner = owner
        self._transport = transport
        self._former = former
        self._gone = gone
        self._is_reading = True
        self._unsent_bytes = 0
        # What the client had not got when it said that it is going, or was gone.
        self._left_bytes: int | None = None
        self._linger_until = 0.0
        self.is_open = True
        self.is_writable = True
        # Since when the client has not taken anything.
        self.stuck_since: float | None = None

    def write(self, data: bytes) -> None:
        if self.is_open:
            self._owner.metrics.sent_bytes += len(data)
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        if self._left_bytes is not None:
            return self._left_bytes
        return int(self._transport.get_write_buffer_size()) + _unconfirmed_bytes(self._transport)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            # A slow client still gets what was written before.
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
        if not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._owner.metrics.received_bytes += len(data)
        if not self.is_open:
            return
        try:
            self.session.received(data)
        except Exception:
            self._fail()

    def eof_received(self) -> bool:
        self._left_bytes = self.unsent_bytes
        return False

    def pause_writing(self) -> None:
        self.is_writable = False
        self.stuck_since = self._owner.loop.time()
        self._unsent_bytes = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self.is_writable = True
        self.stuck_since = None
        if self.is_open:
            try:
                self.session.writable()
            except Exception:
                self._fail()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = self.is_writable = False
        if self._left_bytes is None:
            # It broke; how much came through is not known.
            self._left_bytes = ALL_BYTES
        self._owner.leave(self)
        try:
            self.session.lost()
        except Exception:
            log.exception("a stream failed when its client was gone")
        self._former.connection_lost(error)
        if not self._gone.done():
            self._gone.set_result(None)

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
                # It takes what it gets bit by bit: slow, not stuck.
                self.stuck_since = now
            self._unsent_bytes = unsent_bytes
            if now - self.stuck_since > self._owner.send_timeout_s:
                self._owner.metrics.closed_stuck += 1
                self.abort()
                return
        try:
            self.session.tick(now)
        except Exception:
            self._fail()

    def _linger(self, now: float, unsent_bytes: int) -> None:
        """A slow client gets the last words too; who has them has little time to close."""
        self._unsent_bytes = unsent_bytes
        self._linger_until = now + (self._owner.send_timeout_s if unsent_bytes else LINGER_SECONDS)

    def stop(self) -> None:
        if self.is_open:
            try:
                self.session.stop()
            except Exception:
                self._fail()

    def _fail(self) -> None:
        """One broken session must not harm the others."""
        self._owner.metrics.closed_failed += 1
        log.exception("a stream failed; its connection is closed")
        self.abort()


def _unconfirmed_bytes(transport: Any) -> int:
    """What the client's machine has not acknowledged; none where the operating system does not tell."""
    try:
        raw = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, AttributeError):
        return 0
    (count,) = struct.unpack("i", raw)
    return int(count)


class TakeOvers:
    """Every connection that was taken from aiohttp. Call it to take one; it returns when that connection is gone."""

    def __init__(self, metrics: "StreamMetrics", send_timeout_ms: int, dead_peer_ms: int) -> None:
        """A client that has taken nothing for `send_timeout_ms` is cut off. A machine that has not acknowledged what
        was sent to it for `dead_peer_ms` is taken for gone by the operating system."""
        self.loop = asyncio.get_running_loop()
        self.metrics = metrics
        self.send_timeout_s = send_timeout_ms / 1000
        self._dead_peer_ms = dead_peer_ms
        self._connections: set[TakenConnection] = set()
        self._rounds = Rounds(self._connections, TakenConnection.tick, SWEEP_SECONDS)
        self._all_gone: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._connections)

    async def __call__(self, request: "web.Request", head: bytes, make_session: "Callable[[Outlet], Session]") -> None:
        transport: Any = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        gone: asyncio.Future[None] = self.loop.create_future()
        former: Any = request.protocol
        connection = TakenConnection(self, transport, former, gone)
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        with contextlib.suppress(OSError, AttributeError):
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._dead_peer_ms)
        tail = getattr(former, "_message_tail", b"")
        if tail:
            former._message_tail = b""
        # First of all: what the session writes at once may be too much for the client already.
        transport.set_protocol(connection)
        try:
            connection.write(head)
            connection.session = make_session(connection)
            if not transport.is_reading():
                # aiohttp stops reading when much comes behind a request it has not handled yet.
                transport.resume_reading()
            self._join(connection)
            if tail:
                connection.data_received(tail)
            await gone
        finally:
            # aiohttp cancels its handlers when it has waited long enough for them.
            connection.abort()

    async def close(self) -> None:
        """Let every session say goodbye, and cut off those that take too long."""
        if self._connections:
            self._all_gone = asyncio.Event()
            for number, connection in enumerate(tuple(self._connections), 1):
                connection.stop()
                if not number % STOP_PORTION:
                    await asyncio.sleep(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._all_gone.wait()
            for connection in tuple(self._connections):
                connection.abort()
        self._rounds.close()

    def leave(self, connection: TakenConnection) -> None:
        self._connections.discard(connection)
        self.metrics.open_count = len(self._connections)
        if not self._connections and self._all_gone is not None:
            self._all_gone.set()

    def _join(self, connection: TakenConnection) -> None:
        self._connections.add(connection)
        self.metrics.opened += 1
        self.metrics.open_count = len(self._connections)
        if self._all_gone is not None:
            # It came while the node stops.
            self._all_gone.clear()
            connection.stop()
        self._rounds.wake()
