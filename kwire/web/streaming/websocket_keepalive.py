"""What time brings on a WebSocket: pings, the end of clients who are silent, and of those who do not answer a close.

Every WebSocket has one of these, whatever it is for, so that the rules are the same for all.
"""

from kwire.web.services import WebServices
from kwire.web.socket_frames import PING, frame
from kwire.web.streaming import TICK_SECONDS, Outlet

# How long a client may take to answer a close.
CLOSE_SECONDS = 2.0


class SocketUpkeep:
    """Called about every TICK_SECONDS. Its owner sets `is_heard` whenever anything comes."""

    __slots__ = ("_close_by", "_heard_at", "_pinged_at", "_services", "is_heard")

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self.is_heard = True
        self._close_by = self._heard_at = self._pinged_at = 0.0

    def tick_open(self, now: float, outlet: Outlet, is_read_from: bool) -> None:
        """Ping in time, and end the connection of a client who says nothing, not even that it is there."""
        web = self._services.config.web
        if self.is_heard or not outlet.is_writable or not is_read_from:
            # Who is not read from cannot be heard; that it takes nothing is judged elsewhere.
            self.is_heard = False
            self._heard_at = now
        elif (now - self._heard_at) * 1000 >= web.socket_idle_timeout_ms:
            self._services.stream_metrics.closed_idle += 1
            outlet.abort()
            return
        if not self._pinged_at:
            self._pinged_at = now
        elif is_due(now, self._pinged_at, web.ping_interval_ms) and outlet.is_writable:
            self._pinged_at = now
            outlet.write(frame(PING, b""))

    def tick_closing(self, now: float, outlet: Outlet) -> None:
        """The last word was said: the client has a while to say its own."""
        if not outlet.is_writable:
            # The last words are still on their way; that it takes nothing is judged elsewhere.
            self._close_by = 0.0
        elif not self._close_by:
            self._close_by = now + CLOSE_SECONDS
        elif now > self._close_by:
            outlet.abort()


def is_due(now: float, last: float, interval_ms: int) -> bool:
    """Whether something that is sent every so often has to be sent now: at the next tick it would be too late."""
    return (now + TICK_SECONDS - last) * 1000 > interval_ms
