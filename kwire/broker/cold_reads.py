"""Reads of pages that may have to come from the disk: fetched into memory by a thread before the loop touches them.

Without this, one consumer that reads old data would stop every other client at each page fault.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from storage.segment import LogRead

THREADS = 4


class ColdReads:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="cold-read")
        self.count = 0

    def cold(self, reads: Sequence[LogRead]) -> list[LogRead]:
        """Those whose pages are not all in memory."""
        return [read for read in reads if not read.is_warm()]

    async def warm_up(self, reads: Sequence[LogRead]) -> None:
        self.count += len(reads)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, read.warm_up) for read in reads))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
