"""What may have to wait for the disk, done by threads so that the loop need not.

Pages are fetched into memory before the loop touches them; searches are made whole in a thread, on objects of its own.

Without this, one consumer that reads old data would stop every other client at each page fault. A read has two parts
that can be cold: its start (the index, the headers where it begins) and the bytes that will be sent.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from storage.errors import LogClosed, StorageError

THREADS = 4

R = TypeVar("R")


class ColdReads:
    """The threads that wait for the disk in the loop's place."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="cold-read")
        self.count = 0

    async def do(self, warm_ups: Iterable[Callable[[], None]]) -> None:
        """Run what fetches pages; returns when all of them are in memory, except those of a log deleted meanwhile."""
        loop = asyncio.get_running_loop()
        waits = [loop.run_in_executor(self._threads, warm_up) for warm_up in warm_ups]
        self.count += len(waits)
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, LogClosed):
                raise outcome

    async def find(self, searches: Iterable[Callable[[], R]]) -> list[R | StorageError]:
        """Run searches that share nothing with the loop; what each has found, or why the disk did not tell."""
        loop = asyncio.get_running_loop()
        waits = [loop.run_in_executor(self._threads, search) for search in searches]
        found: list[R | StorageError] = []
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, StorageError):
                raise outcome
            found.append(outcome)
        return found

    def begin(self, warm_up: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """The same as `do` without a task: `done` is called in a later loop turn, with what went wrong if anything.

        A log that was deleted meanwhile is nothing wrong: the next read tells.
        """
        self.count += 1

        def end(wait: "asyncio.Future[None]") -> None:
            if not wait.cancelled():
                error = wait.exception()
                done(None if isinstance(error, LogClosed) else error)

        asyncio.get_running_loop().run_in_executor(self._threads, warm_up).add_done_callback(end)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
