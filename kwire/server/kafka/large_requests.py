"""Slots for large requests. They limit how many large requests are decoded, handled, answered and freed at a time."""

import asyncio
from typing import Literal

from kwire.server.garbage import PostponedCollections

# Further large requests wait, and are not decoded before they get a slot.
LARGE_REQUESTS_MAX = 4
# The approximate memory of a large request while it is handled.
LARGE_REQUEST_BYTES = 50 * 1024 * 1024
# If a response is not ready after this time, it most likely waits for other clients. The request then releases its slot
# until the response is ready.
SLOT_SECONDS_MAX = 10.0
# The interval of the check whether garbage collections are still overdue.
POLL_SECONDS = 0.005


class LargeRequests(asyncio.Semaphore):
    """A semaphore for large requests. Garbage collections are postponed while a slot is in use."""

    def __init__(self, slots: int = LARGE_REQUESTS_MAX) -> None:
        super().__init__(slots)
        self._collections = PostponedCollections()
        self._ended = 0

    async def acquire(self) -> Literal[True]:
        while self._collections.are_overdue:
            await asyncio.sleep(POLL_SECONDS)
        await super().acquire()
        self._collections.postpone()
        return True

    def release(self) -> None:
        self._ended += 1
        self._collections.resume()
        super().release()

    def freed_bytes(self) -> int:
        """Return the approximate number of bytes that large requests have used and released since the start."""
        return self._ended * LARGE_REQUEST_BYTES
