"""Repeats what may succeed later, with growing pauses, up to a deadline."""

import random
import time
from collections.abc import Callable

PAUSE_FIRST_SECONDS = 0.1
PAUSE_MAX_SECONDS = 1.0


class Retries:
    """The pauses of one operation. `pause` returns False when the deadline has passed."""

    def __init__(
        self,
        timeout_seconds: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._monotonic = monotonic
        self._deadline = monotonic() + timeout_seconds
        self._pause_seconds = PAUSE_FIRST_SECONDS

    def pause(self) -> bool:
        """Wait before the next attempt, and return True; return False at once if no time is left for one."""
        left = self._deadline - self._monotonic()
        if left <= 0:
            return False
        # A fifth more or less, so that many clients do not all come back at the same moment.
        self._sleep(min(self._pause_seconds * random.uniform(0.8, 1.2), left))
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_MAX_SECONDS)
        return True
