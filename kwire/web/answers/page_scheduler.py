"""Schedules the reads for pages of events. Each read of a part is a chunk in the queue of
`kwire/concurrency/chunking.py`.

Reading and encoding a part takes about a millisecond. Without a schedule, hundreds of concurrent requests for large
pages would each read one part in every iteration of the event loop. Another request that needs ten iterations would
then wait for seconds.
"""

import asyncio
from collections import deque

from kwire.concurrency.chunking import schedule_chunk


class PageScheduler:
    """A FIFO queue of requests that want to read the next part of their page. Call `next` before each part."""

    __slots__ = ("_is_running", "_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_running = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait until the caller may read a part.

        Returns immediately if no other request waits and no other part was read since the last chunk.
        """
        if not self._is_running:
            self._is_running = True
            schedule_chunk(self._wake_next)
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                schedule_chunk(self._wake_next)
                return
        self._is_running = False
