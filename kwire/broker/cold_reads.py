"""Reads of pages that may have to come from the disk: fetched into memory by a thread before the loop touches them.

Without this, one consumer that reads old data would stop every other client at each page fault. A read has two parts
that can be cold: its start (the index, the headers where it begins) and the bytes that will be sent.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from storage.errors import LogClosed

THREADS = 4


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

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
