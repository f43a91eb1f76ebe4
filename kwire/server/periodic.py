"""Periodic calls for every member of a set, at most CALLS_PER_CHUNK in one loop iteration."""

import asyncio
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

Member = TypeVar("Member")

# The maximum number of members for which one loop iteration makes calls.
CALLS_PER_CHUNK = 200


class PeriodicCalls(Generic[Member]):
    """Calls `tick` with every member and the event loop's time, about every `seconds`. Stops while the set is empty."""

    def __init__(
        self, members: Collection[Member], tick: Callable[[Member, float], None], seconds: float = 1.0
    ) -> None:
        self._members = members
        self._tick = tick
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._left: list[Member] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the calls if they are stopped. Call this method when a member was added."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._run)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        if not self._left:
            self._left = list(self._members)
        chunk, self._left = self._left[:CALLS_PER_CHUNK], self._left[CALLS_PER_CHUNK:]
        now = self._loop.time()
        for member in chunk:
            if member in self._members:
                self._tick(member, now)
        if self._members:
            chunk_count = -(-len(self._members) // CALLS_PER_CHUNK)
            self._timer = self._loop.call_later(self._seconds / chunk_count, self._run)
