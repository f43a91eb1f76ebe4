"""Whose turn it is to read the next part of a page: a few requests in each turn of the loop.

To read and encode a part takes about a millisecond. Hundreds of requests for large pages at a time would otherwise each
take one in every turn of the loop, and a request that needs ten turns would wait for seconds.
"""

import asyncio
from collections import deque

PARTS_PER_TURN = 1


class PageTurns:
    """Call `next` before each part. Those that wait go on in the order in which they asked."""

    __slots__ = ("_is_running", "_left", "_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = PARTS_PER_TURN
        self._is_running = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Returns at once while this turn of the loop has room for a part."""
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._begin_turn)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _begin_turn(self) -> None:
        self._left = PARTS_PER_TURN
        while self._waiting and self._left > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._left -= 1
        self._is_running = self._left < PARTS_PER_TURN
        if self._is_running:
            self._loop.call_soon(self._begin_turn)
