"""A bound on the webhook work per iteration of the event loop.

A thousand webhooks may have to read, sign and send the same new event. This must not block the event loop. Work beyond
the bound waits in a queue for a later iteration.
"""

import asyncio
from collections import deque

# Units of work in one iteration. A unit is about 0.2 ms.
WEIGHT_PER_ITERATION = 8


class WorkBudget:
    """Limits the work in each iteration of the event loop. Use it only in the event loop's thread.

    Each worker has at most one entry in the queue.
    """

    def __init__(self, weight_per_iteration: int = WEIGHT_PER_ITERATION) -> None:
        self._weight_max = weight_per_iteration
        self._weight = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_armed = False

    async def wait(self, weight: int) -> None:
        """Wait for an iteration whose budget is not used up. The last work of an iteration may exceed the budget."""
        if self._waiting or self._weight >= self._weight_max:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((weight, granted))
            await granted
        else:
            self._add(weight)

    def _add(self, weight: int) -> None:
        self._weight += weight
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_armed = False
        self._weight = 0
        while self._waiting and self._weight < self._weight_max:
            weight, granted = self._waiting.popleft()
            # A waiter that was cancelled uses no budget.
            if not granted.done():
                granted.set_result(None)
                self._add(weight)
