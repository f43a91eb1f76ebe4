"""Limits on an incomplete WebSocket message: it is counted in the port's memory and must arrive at a minimum rate."""

from kwire.web.requests.memory import UNCOUNTED_BYTES
from kwire.web.services import PortServices
from kwire.web.streaming.websocket_frames import POLICY_VIOLATION, TRY_AGAIN_LATER, Failure, FrameReader


class MessageLimits:
    """Checks the incomplete message of one connection. The session calls `check` once a second, and after each read
    that leaves a large incomplete message."""

    __slots__ = ("_lease", "_message", "_rate_min", "_since", "_timeout_s")

    def __init__(self, port: PortServices) -> None:
        web = port.config.web
        self._lease = port.memory.lease()
        self._timeout_s = web.receive_timeout_ms / 1000
        self._rate_min = web.receive_rate_min
        # The number of the incomplete message, and the time from which its rate is measured.
        self._message = -1
        self._since = 0.0

    def check(self, now: float, reader: FrameReader, is_read_from: bool) -> Failure | None:
        """Return the failure with which the connection must end, or None. If `is_read_from` is false, the server does
        not read from the client now, so the measurement of the rate starts again."""
        held_bytes = reader.held_bytes
        if held_bytes <= UNCOUNTED_BYTES:
            self.release()
            return None
        if self._message != reader.message_count or not is_read_from:
            self._message, self._since = reader.message_count, now
        if not self._lease.try_hold(held_bytes):
            return Failure(TRY_AGAIN_LATER, "other requests use all of kwire.http.memory.bytes")
        if now - self._since > self._timeout_s + held_bytes / self._rate_min:
            return Failure(POLICY_VIOLATION, "the message arrived too slowly")
        return None

    def release(self) -> None:
        self._lease.release()
        self._message = -1
