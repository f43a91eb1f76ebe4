"""Slots for large requests: how many of them are decoded, handled and answered at the same time."""

import asyncio

# Others wait as the bytes that arrived.
LARGE_REQUESTS_MAX = 4
# What one of them takes while it is handled, about.
LARGE_REQUEST_BYTES = 50 * 1024 * 1024
# An answer that takes longer most likely waits for other clients, and gives its slot up meanwhile.
SLOT_SECONDS_MAX = 10.0


class LargeRequests(asyncio.Semaphore):
    """Used as `async with`."""

    def __init__(self, slots: int = LARGE_REQUESTS_MAX) -> None:
        super().__init__(slots)
        self._ended = 0

    def release(self) -> None:
        self._ended += 1
        super().release()

    def freed_bytes(self) -> int:
        """About how much memory large requests have taken and given back since the start."""
        return self._ended * LARGE_REQUEST_BYTES
