"""Keepalive of WebSockets: pings, the idle timeout, and the timeout for the client's answer to a close frame.

Every WebSocket of the HTTP port uses this module.
"""

from kwire.web.services import PortServices
from kwire.web.streaming.streaming import TICK_SECONDS, Outlet
from kwire.web.streaming.websocket_frames import PING, frame

# The maximum time for a client's answer to a close frame.
CLOSE_SECONDS = 2.0


class WebSocketKeepalive:
    """The timers of one WebSocket. The session calls `tick_open` or `tick_closing` about every TICK_SECONDS, and sets
    `has_received` whenever bytes are received."""

    __slots__ = ("_close_by", "_heard_at", "_pinged_at", "_port", "has_received")

    def __init__(self, port: PortServices) -> None:
        self._port = port
        self.has_received = True
        self._close_by = self._heard_at = self._pinged_at = 0.0

    def tick_open(self, now: float, outlet: Outlet, is_read_from: bool) -> None:
        """Send a ping if it is due. Abort the connection if the client has sent nothing, not even a pong, for
        `socket_idle_timeout_ms`. `is_read_from` says whether the server currently reads from the connection."""
        web = self._port.config.web
        if self.has_received or not outlet.is_writable or not is_read_from:
            # Restart the idle timeout. The idle timeout does not apply while the server does not read from the
            # connection. For a client that does not read, kwire.send.timeout.ms applies.
            self.has_received = False
            self._heard_at = now
        elif (now - self._heard_at) * 1000 >= web.socket_idle_timeout_ms:
            self._port.stream_metrics.closed_idle += 1
            outlet.abort()
            return
        if not self._pinged_at:
            self._pinged_at = now
        elif is_due(now, self._pinged_at, web.ping_interval_ms) and outlet.is_writable:
            self._pinged_at = now
            outlet.write(frame(PING, b""))

    def tick_closing(self, now: float, outlet: Outlet) -> None:
        """Abort the connection if the client does not answer the server's close frame within CLOSE_SECONDS."""
        if not outlet.is_writable:
            # The close frame may not be sent yet. For a client that does not read, kwire.send.timeout.ms applies.
            self._close_by = 0.0
        elif not self._close_by:
            self._close_by = now + CLOSE_SECONDS
        elif now > self._close_by:
            outlet.abort()


def is_due(now: float, last: float, interval_ms: int) -> bool:
    """Return whether a periodic message must be sent at this tick, because the interval ends before the next tick."""
    return (now + TICK_SECONDS - last) * 1000 > interval_ms
