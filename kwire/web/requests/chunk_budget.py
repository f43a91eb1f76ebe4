"""When a loop over the parts of a body has done enough for one turn of the event loop."""

# To check and place an event takes some ten microseconds, and its data at most 25 milliseconds for each megabyte.
PARTS_PER_TURN = 100
BYTES_PER_TURN = 64 * 1024


class BodyTurns:
    """Counts parts and their bytes: `if turns.is_over(len(part)): await asyncio.sleep(0)`."""

    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        self._parts = self._bytes = 0

    def is_over(self, size_bytes: int) -> bool:
        """Whether the loop should get its turn after this part."""
        self._parts += 1
        self._bytes += size_bytes
        if self._parts < PARTS_PER_TURN and self._bytes < BYTES_PER_TURN:
            return False
        self._parts = self._bytes = 0
        return True
