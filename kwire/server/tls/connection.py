"""A TLS connection: the protocol of a TCP transport, and the transport of the connection above it.

asyncio and uvloop have such a class, too. This one differs in what a hostile or slow client can cause:

- The connection above is made only after the handshake; before, a client costs a few kilobytes (`acceptor.py`).
- A step of a handshake takes up to a millisecond, so at most one runs per loop iteration, as a chunk.
- The memory per connection is bounded. With INCOMING_BYTES_MAX received bytes that are not yet decrypted, the socket is
  not read. `pause_reading` stops the socket at once. Responses wait unencrypted (for Fetch these are file pages), and
  are encrypted in pieces as the client reads them, at most ENCRYPTED_PER_CHUNK bytes per chunk.
- Messages of TLS itself, such as key updates, cost the client nothing and the server some ten microseconds each. After
  PROTOCOL_BYTES_AT_ONCE of them the socket is read again in a later chunk, and little at a time. While their responses
  cannot be sent, nothing is received.
- `get_write_buffer_size` counts all bytes that the socket has not taken, so that progress of a slow client is seen.
- A failed handshake sends the TLS alert that tells the client the reason.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from kwire.access.principal import Principal
from kwire.access.principal_rules import PRINCIPAL_INFO
from kwire.concurrency.chunking import schedule_chunk
from kwire.enum_members import fast_members

if TYPE_CHECKING:
    from kwire.server.tls.acceptor import TlsAcceptor

# One read from the socket. All connections share this memory, because the bytes are passed on in the same callback.
RECEIVE_BYTES = 64 * 1024
# With this many received bytes that are not yet decrypted, the socket is not read.
INCOMING_BYTES_MAX = 64 * 1024
# The bytes of a record. They contain no data until the last of them has arrived.
RECORD_BYTES_MAX = 17 * 1024
# Received bytes that contained no data, after which the connection waits for another chunk.
PROTOCOL_BYTES_AT_ONCE = 32 * 1024
# One read until the client has sent data, and while it sends messages without data. That many key updates take some
# milliseconds.
RECEIVE_LITTLE_BYTES = 8 * 1024
# The bytes of a record besides its data: header, type, authentication tag, and in TLS 1.2 initial vector and padding.
RECORD_OVERHEAD_BYTES = {"TLSv1.3": 32, "TLSv1.2": 96}
# The bytes that are encrypted at once. Smaller buffers of one response are joined up to this size, because each becomes
# at least one TLS record.
PIECE_BYTES = 64 * 1024
# The bytes that one chunk encrypts, in about 0.2 ms.
ENCRYPTED_PER_CHUNK = 256 * 1024
# With this many encrypted bytes that the socket has not taken, nothing more is encrypted.
UNSENT_ENCRYPTED_BYTES_MAX = 256 * 1024
# The default of `set_write_buffer_limits`, as in uvloop.
UNSENT_BYTES_MAX = 64 * 1024
# The bytes of a handshake that the client may send; certificate chains are below OpenSSL's own limit of 100 KiB.
HANDSHAKE_BYTES_MAX = 256 * 1024

Buffer = bytes | bytearray | memoryview

_receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
_receive_little_buffer = _receive_buffer[:RECEIVE_LITTLE_BYTES]


@fast_members
class State(Enum):
    """The state of a connection. LINGERING: the end of the stream was sent, and received bytes are discarded."""

    HANDSHAKE = auto()
    OPEN = auto()
    LINGERING = auto()
    CLOSING = auto()
    CLOSED = auto()


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection. Use it only in the event loop's thread."""

    __slots__ = ("_acceptor", "_app", "_app_buffer_updated", "_app_data_received", "_app_get_buffer",
                 "_backlog", "_backlog_bytes", "_context", "_handshake_bytes", "_high", "_incoming",
                 "_is_app_paused", "_is_delayed", "_is_eof_wanted", "_is_pump_scheduled",
                 "_is_read_scheduled", "_is_reading", "_is_tcp_reading", "_is_tcp_writable", "_loop", "_low",
                 "_outgoing", "_overhead_bytes", "_principal", "_protocol_bytes", "_receive_buffer", "_ssl",
                 "_state", "_tcp", "host")  # fmt: skip

    def __init__(self, acceptor: "TlsAcceptor", context: ssl.SSLContext) -> None:
        self._acceptor = acceptor
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._tcp: Any = None
        self._ssl: Any = None
        # Received and outgoing bytes of TLS. They exist from the client's first byte on.
        self._incoming: Any = None
        self._outgoing: Any = None
        self._state = State.HANDSHAKE
        self._handshake_bytes = 0
        self._app: Any = None
        self._app_get_buffer: Callable[[int], Any] | None = None
        self._app_buffer_updated: Callable[[int], None] | None = None
        self._app_data_received: Callable[[bytes], None] | None = None
        self._principal: Principal | None = None
        # Whether the connection above wants data, and whether the socket is read.
        self._is_reading = self._is_tcp_reading = True
        self._is_read_scheduled = False
        # The recently received bytes that contained no data, and whether the next read waits for a chunk.
        self._protocol_bytes = 0
        self._is_delayed = False
        self._overhead_bytes = 0
        self._receive_buffer = _receive_little_buffer
        self._is_tcp_writable = True
        self._is_pump_scheduled = False
        self._is_app_paused = False
        self._is_eof_wanted = False
        # Bytes to send that are not yet encrypted.
        self._backlog: deque[Buffer] = deque()
        self._backlog_bytes = 0
        self._high, self._low = UNSENT_BYTES_MAX, UNSENT_BYTES_MAX // 4
        self.host = ""

    # --- the protocol of the TCP transport

    def connection_made(self, transport: Any) -> None:
        self._tcp = transport
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        if not self._acceptor.admit(self, transport):
            self._state = State.CLOSED
            transport.abort()
            return
        transport.set_write_buffer_limits(high=UNSENT_ENCRYPTED_BYTES_MAX)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive_buffer

    def buffer_updated(self, count: int) -> None:
        state = self._state
        if state is State.OPEN:
            self._incoming.write(_receive_buffer[:count])
            if self._is_read_scheduled or self._is_delayed:
                # libuv reads a socket many times in one callback, until it is told to stop.
                self._update_tcp_reading()
            else:
                self._receive()
        elif state is State.HANDSHAKE:
            self._receive_handshake(_receive_buffer[:count])

    def eof_received(self) -> bool:
        if self._state is State.OPEN:
            self._end_of_stream()
            # The rest of the backlog is sent before the TCP transport is closed.
            return True
        if self._state is State.HANDSHAKE and self._incoming is not None:
            self._acceptor.fail(self, "the client closed the connection during the handshake")
        return False

    def pause_writing(self) -> None:
        self._is_tcp_writable = False

    def resume_writing(self) -> None:
        self._is_tcp_writable = True
        self._pump_later()
        if self._state is State.OPEN and self._outgoing.pending:
            self._flush()
            self._receive_soon()

    def connection_lost(self, error: Exception | None) -> None:
        was_open = self._app is not None
        self._state = State.CLOSED
        self._backlog.clear()
        self._backlog_bytes = 0
        if was_open:
            self._app.connection_lost(error)
        else:
            self._acceptor.end(self)
        # These references are cycles.
        self._app = self._app_get_buffer = self._app_buffer_updated = self._app_data_received = None

    # --- the handshake

    def _receive_handshake(self, data: memoryview) -> None:
        if self._incoming is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._handshake_bytes += len(data)
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._acceptor.fail(self, f"the handshake has more than {HANDSHAKE_BYTES_MAX} bytes")
            self._tcp.abort()
            return
        self._incoming.write(data)
        self._read_tcp(False)
        schedule_chunk(self._step_handshake)

    def _step_handshake(self) -> None:
        if self._state is not State.HANDSHAKE or self._tcp.is_closing():
            return
        try:
            if self._ssl is None:
                self._ssl = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._read_tcp(True)
            return
        except (ssl.SSLError, ValueError) as error:
            self._acceptor.fail(self, _reason(error))
            # The alert tells the client the reason.
            self._flush()
            self._tcp.close()
            return
        self._flush()
        self._open()

    def _open(self) -> None:
        """Make the connection above, because the handshake has ended."""
        try:
            self._principal = self._acceptor.tls.principal(self._ssl)
        except ValueError as error:
            self._acceptor.fail(self, str(error))
            self._tcp.abort()
            return
        self._overhead_bytes = RECORD_OVERHEAD_BYTES[self._ssl.version()]
        self._state = State.OPEN
        self._acceptor.end(self)
        app = self._acceptor.make_protocol()
        self.set_protocol(app)
        app.connection_made(self)
        if self._state is State.OPEN:
            self._receive_soon()
            self._update_tcp_reading()

    # --- receiving

    def _receive_soon(self) -> None:
        if not self._is_read_scheduled:
            self._is_read_scheduled = True
            self._loop.call_soon(self._receive_scheduled)

    def _receive_scheduled(self) -> None:
        self._is_read_scheduled = False
        if self._state is not State.OPEN or self._is_delayed:
            return
        try:
            self._receive()
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "a protocol failed over TLS", "exception": error, "protocol": self._app, "transport": self}
            )
            self.abort()

    def _receive(self) -> None:
        """Decrypt bytes and pass them to the connection above. At most one of its buffers is filled per call."""
        # A response of TLS itself may wait until the socket is writable. Until then further ones would be collected.
        if self._is_reading and not self._outgoing.pending:
            pending_bytes, protocol_bytes = self._incoming.pending, self._protocol_bytes
            try:
                is_ended = self._fill_app() if self._app_get_buffer is not None else self._pass_data()
            except ssl.SSLError as error:
                self._acceptor.warn("closing the TLS connection from %s: %s", self.host, _reason(error))
                self.abort()
                return
            if self._state is not State.OPEN:
                return
            if self._outgoing.pending and self._is_tcp_writable:
                # The response to a key update.
                self._flush()
            if is_ended:
                self._end_of_stream()
                return
            has_data = self._protocol_bytes < protocol_bytes
            self._count_protocol_bytes(pending_bytes - self._incoming.pending, has_data)
            if self._has_received and self._is_reading and not self._is_delayed:
                self._receive_soon()
        self._update_tcp_reading()

    def _count_protocol_bytes(self, received_bytes: int, has_data: bool) -> None:
        """Delay the next read if the client has sent many bytes without data. The reads have subtracted their data."""
        self._protocol_bytes = max(self._protocol_bytes + received_bytes, 0)
        if self._protocol_bytes > PROTOCOL_BYTES_AT_ONCE:
            self._protocol_bytes = PROTOCOL_BYTES_AT_ONCE
            self._receive_buffer = _receive_little_buffer
            self._is_delayed = True
            schedule_chunk(self._end_delay)
        elif has_data and self._protocol_bytes <= RECORD_BYTES_MAX:
            self._receive_buffer = _receive_buffer

    def _end_delay(self) -> None:
        self._is_delayed = False
        self._receive_scheduled()

    def _fill_app(self) -> bool:
        """Fill one buffer of the connection above. Returns whether the client has ended its stream."""
        assert self._app_get_buffer is not None
        assert self._app_buffer_updated is not None
        read, incoming, pending = self._ssl.read, self._incoming, self._ssl.pending
        if not incoming.pending and not pending():
            return False
        view = self._app_get_buffer(-1)
        size, filled, read_count, is_ended = len(view), 0, 0, False
        try:
            while filled < size and (incoming.pending or pending()):
                count = read(size - filled, view[filled:] if filled else view)
                if not count:
                    is_ended = True
                    break
                filled += count
                read_count += 1
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_ended = True
        self._protocol_bytes -= filled + self._overhead_bytes * read_count
        if filled:
            self._app_buffer_updated(filled)
        return is_ended

    def _pass_data(self) -> bool:
        """Call `data_received` of the protocol above. Returns whether the client has ended its stream."""
        assert self._app_data_received is not None
        parts: list[bytes] = []
        is_ended = False
        try:
            while self._has_received:
                part = self._ssl.read(RECEIVE_BYTES)
                if not part:
                    is_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_ended = True
        self._protocol_bytes -= sum(map(len, parts)) + self._overhead_bytes * len(parts)
        if parts:
            self._app_data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        return is_ended

    @property
    def _has_received(self) -> bool:
        return bool(self._incoming.pending or self._ssl.pending())

    def _end_of_stream(self) -> None:
        """The client sends nothing more."""
        self._app.eof_received()
        self.close()

    def _update_tcp_reading(self) -> None:
        if self._state is State.OPEN:
            is_ready = self._is_reading and not self._is_delayed and not self._outgoing.pending
            self._read_tcp(is_ready and self._incoming.pending < INCOMING_BYTES_MAX)

    def _read_tcp(self, wanted: bool) -> None:
        if wanted != self._is_tcp_reading and not self._tcp.is_closing():
            self._is_tcp_reading = wanted
            if wanted:
                self._tcp.resume_reading()
            else:
                self._tcp.pause_reading()

    # --- sending

    def write(self, data: Buffer) -> None:
        if self._state is not State.OPEN or self._is_eof_wanted or not data:
            return
        if not self._backlog and self._is_tcp_writable and len(data) <= PIECE_BYTES:
            self._encrypt(data)
            return
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        self._send_backlog()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._state is not State.OPEN or self._is_eof_wanted:
            return
        chunks = list(list_of_data)
        size = sum(map(len, chunks))
        if not self._backlog and self._is_tcp_writable and size <= PIECE_BYTES:
            if size:
                self._encrypt(b"".join(chunks))
            return
        self._backlog.extend(chunk for chunk in chunks if chunk)
        self._backlog_bytes += size
        self._send_backlog()

    def _send_backlog(self) -> None:
        if not self._is_pump_scheduled:
            self._pump()
        if self._backlog_bytes > self._high and not self._is_app_paused and self._state is State.OPEN:
            self._is_app_paused = True
            self._app.pause_writing()

    def _pump_later(self) -> None:
        if not self._is_pump_scheduled and self._state is not State.CLOSED:
            self._is_pump_scheduled = True
            schedule_chunk(self._pump_scheduled)

    def _pump_scheduled(self) -> None:
        self._is_pump_scheduled = False
        self._pump()

    def _pump(self) -> None:
        """Encrypt and send a part of the backlog."""
        left = ENCRYPTED_PER_CHUNK
        while self._backlog and self._is_tcp_writable and left > 0 and self._state is not State.CLOSED:
            piece = self._next_piece()
            left -= len(piece)
            self._encrypt(piece)
        if self._state is State.CLOSED:
            return
        if self._backlog:
            if self._is_tcp_writable:
                self._pump_later()
        elif self._state is State.CLOSING:
            self._finish()
        elif self._is_eof_wanted and self._state is State.OPEN:
            self._send_eof()
        if self._is_app_paused and self._backlog_bytes <= self._low and self._state is State.OPEN:
            self._is_app_paused = False
            self._app.resume_writing()

    def _next_piece(self) -> Buffer:
        """Remove up to PIECE_BYTES from the backlog."""
        backlog = self._backlog
        first = backlog.popleft()
        size = len(first)
        if size > PIECE_BYTES:
            view = memoryview(first)
            backlog.appendleft(view[PIECE_BYTES:])
            self._backlog_bytes -= PIECE_BYTES
            return view[:PIECE_BYTES]
        if not backlog or size + len(backlog[0]) > PIECE_BYTES:
            self._backlog_bytes -= size
            return first
        parts = [first]
        while backlog and size + len(backlog[0]) <= PIECE_BYTES:
            size += len(backlog[0])
            parts.append(backlog.popleft())
        self._backlog_bytes -= size
        return b"".join(parts)

    def _encrypt(self, data: Buffer) -> None:
        try:
            sent, size = self._ssl.write(data), len(data)
            while sent < size:
                sent += self._ssl.write(memoryview(data)[sent:])
        except ssl.SSLError as error:
            self._acceptor.warn("closing the TLS connection from %s: %s", self.host, _reason(error))
            self.abort()
            return
        self._tcp.write(self._outgoing.read())

    def _flush(self) -> None:
        """Send bytes of the TLS protocol itself."""
        if self._outgoing.pending and not self._tcp.is_closing():
            self._tcp.write(self._outgoing.read())

    def _send_close_notify(self) -> None:
        # The error says that the client's own close_notify has not arrived. Nothing waits for it.
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()
        self._flush()

    # --- the transport of the connection above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._ssl
        if name == "peercert":
            return self._ssl.getpeercert()
        if name == PRINCIPAL_INFO:
            return self._principal
        return self._tcp.get_extra_info(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._app = protocol
        if hasattr(protocol, "get_buffer"):
            self._app_get_buffer, self._app_buffer_updated = protocol.get_buffer, protocol.buffer_updated
            self._app_data_received = None
        else:
            self._app_get_buffer = self._app_buffer_updated = None
            self._app_data_received = protocol.data_received

    def get_protocol(self) -> Any:
        return self._app

    def is_closing(self) -> bool:
        return self._state in (State.CLOSING, State.CLOSED) or bool(self._tcp.is_closing())

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False
        self._update_tcp_reading()

    def resume_reading(self) -> None:
        if self._is_reading or self._state is not State.OPEN:
            return
        self._is_reading = True
        if self._has_received:
            self._receive_soon()
        self._update_tcp_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = UNSENT_BYTES_MAX if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + int(self._tcp.get_write_buffer_size())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """End the stream to the client after the backlog. Bytes that the client sends are discarded from then on."""
        if self._state is State.OPEN and not self._is_eof_wanted:
            self._is_eof_wanted = True
            if not self._backlog:
                self._send_eof()

    def _send_eof(self) -> None:
        self._send_close_notify()
        self._state = State.LINGERING
        self._read_tcp(True)
        if not self._tcp.is_closing():
            self._tcp.write_eof()

    def close(self) -> None:
        """Send the backlog, then close the connection."""
        if self._state in (State.OPEN, State.LINGERING):
            is_ended = self._state is State.LINGERING
            self._read_tcp(False)
            self._state = State.CLOSING
            if is_ended:
                self._tcp.close()
            elif not self._backlog:
                self._finish()
        elif self._state is State.HANDSHAKE:
            self.abort()

    def _finish(self) -> None:
        self._send_close_notify()
        self._tcp.close()

    def abort(self) -> None:
        self._state = State.CLOSED
        self._tcp.abort()


def _reason(error: Exception) -> str:
    """Return OpenSSL's reason in plain words, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return f"TLS failed: {reason.lower().replace('_', ' ')}" if isinstance(reason, str) else f"TLS failed: {error}"
