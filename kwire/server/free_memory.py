"""Gives freed memory back to the operating system.

Large requests, bodies and responses are allocated in pieces of all sizes. After a burst, glibc's heap keeps most of
this memory. A thread then trims the heap, because that takes some milliseconds.

Pieces of at least MAPPED_BYTES_MIN are mapped and unmapped individually (`bound_heap`). By default, glibc raises the
threshold for this to the size of the largest piece that was freed. Each thread that decompresses batches would then
keep such a piece.
"""

import asyncio
import ctypes
from collections.abc import Callable

# The parameters of glibc's `mallopt`, with their names in C.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# Pieces of at least MAPPED_BYTES_MIN are mapped. If more than HEAP_END_BYTES_MAX are free at the end of the heap, glibc
# gives them back to the operating system immediately.
MAPPED_BYTES_MIN = 4 * 1024 * 1024
HEAP_END_BYTES_MAX = 16 * 1024 * 1024
CHECK_SECONDS = 5.0
# If at least this many bytes were used and released between two checks, that is a burst.
BURST_BYTES = 16 * 1024 * 1024
# The number of checks after a burst at which the heap is trimmed. One check is not enough, because connections that are
# closed later also free pages.
CHECKS_AFTER_BURST = 8


def bound_heap() -> None:
    """Set MAPPED_BYTES_MIN and HEAP_END_BYTES_MAX for the whole process. Without glibc this does nothing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
    mallopt(M_TRIM_THRESHOLD, HEAP_END_BYTES_MAX)


class FreeMemory:
    """Trims the heap after bursts. On systems without glibc it does nothing."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], int]] = []
        self._trim = _malloc_trim()
        self._freed_bytes = 0
        self._checks_left = 0
        self._loop = asyncio.get_running_loop()
        self._trimming: asyncio.Future[object] | None = None
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def watch(self, freed_bytes: Callable[[], int]) -> None:
        """Add a function that returns the number of bytes that were used and released since the start."""
        self._sources.append(freed_bytes)

    def close(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        freed_bytes = sum(source() for source in self._sources)
        if freed_bytes - self._freed_bytes >= BURST_BYTES:
            self._checks_left = CHECKS_AFTER_BURST
        self._freed_bytes = freed_bytes
        if self._trim is not None and self._checks_left:
            self._checks_left -= 1
            # Without a reference, the future could be garbage-collected before it is done.
            self._trimming = self._loop.run_in_executor(None, self._trim, 0)
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)


def _malloc_trim() -> Callable[[int], object] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
