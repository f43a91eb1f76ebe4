"""Slots for large requests: how many of them are decoded, handled, answered and freed at the same time."""

import asyncio
from typing import Literal

from kwire.server.garbage import PostponedCollections

# Others wait as the bytes that arrived.
LARGE_REQUESTS_MAX = 4
# What one of them takes while it is handled, about.
LARGE_REQUEST_BYTES = 50 * 1024 * 1024
# An answer that takes longer most likely waits for other clients, and gives its slot up meanwhile.
SLOT_SECONDS_MAX = 10.0
# Between two looks whether collections that have waited for too long are done.
LOOK_SECONDS = 0.005


class LargeRequests(asyncio.Semaphore):
    """Used as `async with`. Garbage collections wait for the requests in the slots."""

    def __init__(self, slots: int = LARGE_REQUESTS_MAX) -> None:
        super().__init__(slots)
        self._collections = PostponedCollections()
        self._ended = 0

    async def acquire(self) -> Literal[True]:
        while self._collections.are_overdue:
            await asyncio.sleep(LOOK_SECONDS)
        await super().acquire()
        self._collections.postpone()
        return True

    def release(self) -> None:
        self._ended += 1
        self._collections.resume()
        super().release()

    def freed_bytes(self) -> int:
        """About how much memory large requests have taken and given back since the start."""
        return self._ended * LARGE_REQUEST_BYTES
