"""Periodic calls for every member of a set, a portion in each turn of the loop."""

import asyncio
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

Member = TypeVar("Member")

# Members called in one turn of the loop.
PORTION = 200


class Rounds(Generic[Member]):
    """Calls `tick` with every member and the loop's time, all of them in about `seconds`. Idle while there is none."""

    def __init__(
        self, members: Collection[Member], tick: Callable[[Member, float], None], seconds: float = 1.0
    ) -> None:
        self._members = members
        self._tick = tick
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._left: list[Member] = []
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """There is a member: call them from now on."""
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
        portion, self._left = self._left[:PORTION], self._left[PORTION:]
        now = self._loop.time()
        for member in portion:
            if member in self._members:
                self._tick(member, now)
        if self._members:
            portions = -(-len(self._members) // PORTION)
            self._timer = self._loop.call_later(self._seconds / portions, self._run)
