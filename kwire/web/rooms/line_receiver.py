"""Receives a stream of lines. A long incomplete line is counted in the port's memory and must arrive at a minimum rate.

The client may pause for any time between two lines.
"""

from aiohttp import web

from kwire.web.answers.errors import Refusal
from kwire.web.requests.body_receiver import READ_BYTES, RECEIVE_SETTINGS, ReceiveDeadline, read_before_deadline
from kwire.web.requests.memory import UNCOUNTED_BYTES


class LineReceiver:
    """Reads the body of one stream. Call `hold` after each `read`: it reserves memory for the incomplete line and for
    the next read."""

    __slots__ = ("_content", "_deadline", "_lease", "_line", "_settings")

    def __init__(self, request: web.Request) -> None:
        self._content = request.content
        self._settings = request.app[RECEIVE_SETTINGS]
        self._lease = self._settings.memory.lease()
        # Set while the incomplete line has more than UNCOUNTED_BYTES.
        self._deadline: ReceiveDeadline | None = None
        self._line = 0

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises a Refusal with status 408 if a line arrives too slowly."""
        if self._deadline is None:
            return await self._content.read(READ_BYTES)
        try:
            return await read_before_deadline(self._content, self._lease, self._deadline)
        except TimeoutError:
            raise Refusal("the rest of the line arrived too slowly", code="RequestTimeout", status=408) from None

    async def hold(self, line: int, partial_bytes: int) -> None:
        """Count the incomplete line in the port's memory; raises MemoryExhausted. `line` is the number of this line."""
        if partial_bytes <= UNCOUNTED_BYTES:
            self._deadline = None
            self._lease.release()
            return
        if self._deadline is None or line != self._line:
            self._line = line
            self._lease.release()
            self._deadline = ReceiveDeadline(self._settings)
        if partial_bytes + READ_BYTES > self._lease.size_bytes:
            await self._lease.hold(max(partial_bytes + READ_BYTES, 2 * self._lease.size_bytes))
            self._deadline.begin()

    def release(self) -> None:
        self._lease.release()
