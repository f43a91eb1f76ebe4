"""WorkAllowance: limits the work that requests do in one iteration of the event loop.

`chunking.py` schedules the rest of the work as chunks. Work is measured by its weight instead of its time, so a request
is divided into the same chunks on a busy machine as on an idle one. A weight of 1 stands for one byte that is received,
checked and written, which takes about a nanosecond.
"""

import asyncio

# The total weight of the work that all requests may do in one iteration. It takes about five milliseconds.
WEIGHT_PER_ITERATION = 4 * 1024 * 1024
# Requests with a lower weight are handled at once, and their weight is not added to the total.
LIGHT_WEIGHT_MAX = 256 * 1024


class WorkAllowance:
    """The work budget of one iteration of the event loop.

    A request may do work up to the weight `left`, and then calls `note` with the weight of the work that it has done.
    """

    def __init__(self, weight_per_iteration: int = WEIGHT_PER_ITERATION) -> None:
        self._weight_per_iteration = weight_per_iteration
        self._used = 0
        self.left = weight_per_iteration

    def note(self, weight: int) -> None:
        """Record that work of this weight was done in this iteration."""
        if weight < LIGHT_WEIGHT_MAX:
            return
        if not self._used:
            asyncio.get_running_loop().call_soon(self._renew)
        self._used += weight
        self.left = max(self._weight_per_iteration - self._used, LIGHT_WEIGHT_MAX)

    def _renew(self) -> None:
        self._used = 0
        self.left = self._weight_per_iteration
