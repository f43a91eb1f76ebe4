"""The loop budget: the time that the requests of one iteration of the event loop may take."""

import asyncio
from time import perf_counter

# After this time, other requests that were received in the same iteration wait for a later iteration.
BUDGET_SECONDS = 0.002


class LoopBudget:
    """The time budget of a loop iteration. The first request starts it, and the next iteration resets it."""

    __slots__ = ("_loop", "deadline")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The time at which the budget of this iteration is spent. None before the first request of the iteration.
        self.deadline: float | None = None

    def start(self) -> float:
        """Start the budget of this iteration, unless a request has started it, and return its deadline."""
        if self.deadline is None:
            self.deadline = perf_counter() + BUDGET_SECONDS
            self._loop.call_soon(self.reset)
        return self.deadline

    @property
    def is_spent(self) -> bool:
        return self.deadline is not None and perf_counter() > self.deadline

    def reset(self) -> None:
        self.deadline = None
