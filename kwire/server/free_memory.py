"""Returning freed memory to the operating system.

Large requests, bodies and answers come and go in pieces of all sizes, so glibc's heap keeps most of what a burst of
them took. After a burst it is asked to return the free pages, in a thread: that takes some milliseconds.

Pieces of megabytes are mapped and unmapped one by one (`bound_heap`). By default glibc raises the size from which it
does so to the largest piece that was ever freed, and each thread that decompresses batches would keep such a piece.
"""

import asyncio
import ctypes
from collections.abc import Callable

# glibc's names for what `mallopt` sets.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# Pieces from this size on are mapped, and free bytes at the end of the heap beyond the other are returned at once.
MAPPED_BYTES_MIN = 4 * 1024 * 1024
HEAP_END_BYTES_MAX = 16 * 1024 * 1024
CHECK_SECONDS = 5.0
# Bytes that were held and given back between two checks; less is not worth it.
BURST_BYTES = 16 * 1024 * 1024
# Checks after a burst at which the heap is trimmed: connections that lasted longer leave free pages as well.
CHECKS_AFTER_BURST = 8


def bound_heap() -> None:
    """Set the limits for the whole process. On systems without glibc this does nothing."""
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
        """`freed_bytes` tells how many bytes something has held and given back since the start."""
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
            # The reference keeps the future until it is done.
            self._trimming = self._loop.run_in_executor(None, self._trim, 0)
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)


def _malloc_trim() -> Callable[[int], object] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
