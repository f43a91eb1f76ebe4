"""Receiving a stream of lines: a line that has begun counts in the port's memory and has to come at a minimum pace.

Between two lines a stream may be silent for any time.
"""

from aiohttp import web

from kwire.web.body_reading import INTAKE, READ_BYTES, Pace, paced_read
from kwire.web.errors import Refusal
from kwire.web.memory import UNCOUNTED_BYTES


class LineIntake:
    """`read` returns what came; after that `hold` counts what is kept of a line without an end, and the next read."""

    __slots__ = ("_content", "_intake", "_lease", "_line", "_pace")

    def __init__(self, request: web.Request) -> None:
        self._content = request.content
        self._intake = request.app[INTAKE]
        self._lease = self._intake.memory.lease()
        # While a line has begun that is long enough to be counted.
        self._pace: Pace | None = None
        self._line = 0

    async def read(self) -> bytes:
        """What came next, nothing at the end; raises a Refusal when a line comes too slowly."""
        if self._pace is None:
            return await self._content.read(READ_BYTES)
        try:
            return await paced_read(self._content, self._lease, self._pace)
        except TimeoutError:
            raise Refusal("the rest of the line came too slowly", code="RequestTimeout", status=408) from None

    async def hold(self, line: int, begun_bytes: int) -> None:
        """`line` is the number of the line that has begun; raises MemoryExhausted."""
        if begun_bytes <= UNCOUNTED_BYTES:
            self._pace = None
            self._lease.release()
            return
        if self._pace is None or line != self._line:
            self._line = line
            self._lease.release()
            self._pace = Pace(self._intake)
        if begun_bytes + READ_BYTES > self._lease.size_bytes:
            await self._lease.hold(max(begun_bytes + READ_BYTES, 2 * self._lease.size_bytes))
            self._pace.begin()

    def release(self) -> None:
        self._lease.release()
