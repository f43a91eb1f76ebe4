"""Reads that may have to wait for the disk, made in the read lane so that the loop does not wait.

Pages are fetched into memory before the loop touches them; searches are made whole in a thread, on objects of its own.

Without this, one consumer that reads old data would stop every other client at each page fault. A read has two parts
that can be cold: its start (the index, the headers where it begins) and the bytes that will be sent.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from kwire.disk_lanes import Lane, LaneClosed
from storage.errors import LogClosed, StorageError

R = TypeVar("R")


class ColdReads:
    """Reads in the read lane. `count` counts them."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.count = 0

    async def do(self, warm_ups: Iterable[Callable[[], None]]) -> None:
        """Run what fetches pages; returns when all of them are in memory, except those of a log deleted meanwhile."""
        for outcome in await self._outcomes(warm_ups):
            if isinstance(outcome, BaseException) and not isinstance(outcome, LogClosed):
                raise outcome

    async def find(self, searches: Iterable[Callable[[], R]]) -> list[R | StorageError]:
        """Run searches that share nothing with the loop; returns the result of each, or the error of the disk."""
        found: list[R | StorageError] = []
        for outcome in await self._outcomes(searches):
            if isinstance(outcome, BaseException) and not isinstance(outcome, StorageError):
                raise outcome
            found.append(outcome)
        return found

    async def _outcomes(self, calls: Iterable[Callable[[], R]]) -> list[R | BaseException]:
        waits = [self._lane.run(call) for call in calls]
        self.count += len(waits)
        return await asyncio.gather(*waits, return_exceptions=True)

    def begin(self, warm_up: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """The same as `do` without a task: `done` is called in a later loop turn, with the error if there is one.

        A log that was deleted meanwhile is not an error: the next read reports it. When the server stops first, `done`
        is not called.
        """
        self.count += 1

        def end(_: None, error: BaseException | None) -> None:
            if not isinstance(error, LaneClosed):
                done(None if isinstance(error, LogClosed) else error)

        self._lane.begin(warm_up, end)

    def close(self) -> None:
        """Drop the reads that have not begun."""
        self._lane.close(0.0, drops=True)
