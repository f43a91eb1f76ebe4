"""Cold reads: reads that may have to wait for the disk. They run in the read lane, so the event loop does not wait.

A thread loads pages into memory before the event loop accesses them. Searches run completely in a thread, and share no
objects with the event loop.

Without cold reads, a consumer of old records would block all other clients at each page fault. Two parts of a read can
be cold. The first is the start of the read: the index, and the batch headers at the start. The second is the bytes that
will be sent.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from kwire.concurrency.disk_lanes import Lane, LaneClosed
from storage.errors import LogClosed, StorageError

R = TypeVar("R")


class ColdReads:
    """Runs cold reads in the read lane. `count` is the number of cold reads since the start."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.count = 0

    async def do(self, warm_ups: Iterable[Callable[[], None]]) -> None:
        """Run functions that load pages into memory, and wait for all of them.

        A log that is deleted in the meantime is ignored.
        """
        for outcome in await self._outcomes(warm_ups):
            if isinstance(outcome, BaseException) and not isinstance(outcome, LogClosed):
                raise outcome

    async def find(self, searches: Iterable[Callable[[], R]]) -> list[R | StorageError]:
        """Run searches that share no objects with the event loop. Returns the result or StorageError of each."""
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
        """Run `warm_up`, a function that loads pages into memory, and then call `done` with the error or None.

        `done` is called in a later loop iteration. If the log is deleted in the meantime, `done` gets None, because the
        next read reports the deletion. If the server stops first, `done` is not called.
        """
        self.count += 1

        def end(_: None, error: BaseException | None) -> None:
            if not isinstance(error, LaneClosed):
                done(None if isinstance(error, LogClosed) else error)

        self._lane.begin(warm_up, end)

    def close(self) -> None:
        """Close the read lane, and discard the reads that have not begun."""
        self._lane.close(0.0, drops=True)
