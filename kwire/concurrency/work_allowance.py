"""The work that requests may do in one iteration of the event loop before the rest of them waits for a turn.

Work is weighed, not timed: the same request is cut into the same pieces on a busy machine. A weight of 1 stands for a
byte that is received, checked and written, about a nanosecond. Turns are those of `chunking.py`.
"""

import asyncio

# What requests of some weight may do in an iteration, all of them together: about five milliseconds.
WEIGHT_PER_ITERATION = 4 * 1024 * 1024
# Requests of less weight than this are handled whole, and are not counted.
LIGHT_WEIGHT_MAX = 256 * 1024


class WorkAllowance:
    """`left` is the weight that a request may reach in this iteration; it notes what it did. Used from the loop."""

    def __init__(self, weight_per_iteration: int = WEIGHT_PER_ITERATION) -> None:
        self._weight_per_iteration = weight_per_iteration
        self._used = 0
        self.left = weight_per_iteration

    def note(self, weight: int) -> None:
        """Work of this weight was done in this iteration."""
        if weight < LIGHT_WEIGHT_MAX:
            return
        if not self._used:
            asyncio.get_running_loop().call_soon(self._renew)
        self._used += weight
        self.left = max(self._weight_per_iteration - self._used, LIGHT_WEIGHT_MAX)

    def _renew(self) -> None:
        self._used = 0
        self.left = self._weight_per_iteration
