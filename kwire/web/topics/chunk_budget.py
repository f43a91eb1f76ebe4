"""A budget for loops over the parts of a body. It determines when the loop must yield to the event loop."""

# The budget of one chunk. Checking and preparing an event takes about ten microseconds, and in addition at most 25
# milliseconds per megabyte of its data.
PARTS_PER_CHUNK = 100
BYTES_PER_CHUNK = 64 * 1024


class ChunkBudget:
    """Counts parts and their bytes. Use: `if budget.is_spent(len(part)): await asyncio.sleep(0)`."""

    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        self._parts = self._bytes = 0

    def is_spent(self, size_bytes: int) -> bool:
        """Count a part of `size_bytes`. Return whether the caller must now yield to the event loop; if so, a new budget
        begins."""
        self._parts += 1
        self._bytes += size_bytes
        if self._parts < PARTS_PER_CHUNK and self._bytes < BYTES_PER_CHUNK:
            return False
        self._parts = self._bytes = 0
        return True
