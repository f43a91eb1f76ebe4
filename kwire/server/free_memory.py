"""Returning freed memory to the operating system.

Large requests, bodies and answers come and go in pieces of all sizes, so glibc's heap keeps most of what a burst of
them took. After a burst it is asked to return the free pages, in a thread: that takes some milliseconds.
"""

import asyncio
import ctypes
from collections.abc import Callable

CHECK_SECONDS = 5.0
# Bytes that were held and given back between two checks; less is not worth it.
BURST_BYTES = 16 * 1024 * 1024
# Checks after a burst at which the heap is trimmed: connections that lasted longer leave free pages as well.
CHECKS_AFTER_BURST = 8


class FreeMemory:
    """Trims the heap after bursts. Does nothing where there is no glibc."""

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
