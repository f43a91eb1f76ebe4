"""A WebSocket message on its way in: counted in the port's memory, and to be finished at a minimum pace."""

from kwire.web.memory import UNCOUNTED_BYTES
from kwire.web.services import WebServices
from kwire.web.socket_frames import TOO_SLOW, TRY_AGAIN_LATER, Failure, FrameReader


class MessageIntake:
    """Checked when bytes came and once a second; a failure ends the connection."""

    __slots__ = ("_lease", "_message", "_rate_min", "_since", "_timeout_s")

    def __init__(self, services: WebServices) -> None:
        web = services.config.web
        self._lease = services.memory.lease()
        self._timeout_s = web.receive_timeout_ms / 1000
        self._rate_min = web.receive_rate_min
        # The number of the message that is held, and since when.
        self._message = -1
        self._since = 0.0

    def check(self, now: float, reader: FrameReader, is_read_from: bool) -> Failure | None:
        """Time runs only while the client is read from."""
        held_bytes = reader.held_bytes
        if held_bytes <= UNCOUNTED_BYTES:
            self.release()
            return None
        if self._message != reader.message_count or not is_read_from:
            self._message, self._since = reader.message_count, now
        if not self._lease.try_hold(held_bytes):
            return Failure(TRY_AGAIN_LATER, "messages of other connections hold all of kwire.http.memory.bytes")
        if now - self._since > self._timeout_s + held_bytes / self._rate_min:
            return Failure(TOO_SLOW, "a message came too slowly")
        return None

    def release(self) -> None:
        self._lease.release()
        self._message = -1
