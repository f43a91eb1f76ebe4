"""So much work per turn of the event loop, and no more: a thousand webhooks that hear of one event must not hold up
everybody else while they read it and sign it. Whoever comes too late in a turn waits for a later one, in order."""

import asyncio
from collections import deque

# About two tenths of a millisecond each.
WEIGHT_PER_TURN = 8


class WorkTurns:
    """Called from the event loop. As many wait as there are workers."""

    def __init__(self, weight_per_turn: int = WEIGHT_PER_TURN) -> None:
        self._weight_max = weight_per_turn
        self._weight = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_armed = False

    async def wait(self, weight: int) -> None:
        """Return when there is room in this turn; a weight above what a turn has is a turn of its own."""
        if self._waiting or self._weight >= self._weight_max:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((weight, turn))
            await turn
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
            weight, turn = self._waiting.popleft()
            # Who was cancelled meanwhile needs none.
            if not turn.done():
                turn.set_result(None)
                self._add(weight)
