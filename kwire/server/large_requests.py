"""Slots for large requests, and peace from the garbage collector while one of them is in use.

A large request is hundreds of thousands of objects for about a second. None of them is garbage, yet each time their
number has grown by a quarter Python looks at all of them (a full collection), which stops the loop for up to half a
second. So full collections are postponed while a slot is in use, but never for longer than FULL_COLLECTION_WAIT_MAX_S:
somebody may send large requests without a pause. Collections of young objects go on.
"""

import asyncio
import gc
from time import monotonic

# Large requests that are decoded at the same time, some 50 MB each. Others wait as the bytes that arrived.
LARGE_REQUESTS_MAX = 4
# An answer that takes longer most likely waits for other clients, and gives its slot up meanwhile.
SLOT_SECONDS_MAX = 10.0
FULL_COLLECTION_WAIT_MAX_S = 60.0
# Collections of the middle generation between two full ones: more than there are in any time.
_NEVER = 2**31 - 1


class LargeRequests:
    """Used as `async with`."""

    __slots__ = ("_postponed_since", "_slots", "_thresholds", "_used")

    def __init__(self, slots: int = LARGE_REQUESTS_MAX) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._used = 0
        self._thresholds = gc.get_threshold()
        self._postponed_since = 0.0

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        self._used += 1
        if self._used == 1:
            self._thresholds = gc.get_threshold()
            self._postponed_since = monotonic()
            gc.set_threshold(*self._thresholds[:2], _NEVER)
        elif monotonic() - self._postponed_since > FULL_COLLECTION_WAIT_MAX_S:
            gc.set_threshold(*self._thresholds)

    async def __aexit__(self, *_: object) -> None:
        self._used -= 1
        if not self._used:
            gc.set_threshold(*self._thresholds)
        self._slots.release()
