"""Backoff: growing pauses between attempts, up to a maximum."""

from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.05
MAX_SECONDS: Final = 2.0
# The shares by which a pause may be shorter or longer, so that many clients do not return at the same moment.
JITTER: Final = 0.25

# Returns a random number from 0 to 1.
Random = Callable[[], float]


class Backoff:
    """The pauses of one operation. `reset` after a success."""

    __slots__ = ("_attempts", "_random", "first_seconds", "max_seconds")

    def __init__(self, random: Random, first_seconds: float = FIRST_SECONDS, max_seconds: float = MAX_SECONDS) -> None:
        self._random = random
        self.first_seconds = first_seconds
        self.max_seconds = max_seconds
        self._attempts = 0

    def next_seconds(self) -> float:
        """Return the pause before the next attempt."""
        pause = min(self.max_seconds, self.first_seconds * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return pause * (1 - JITTER + 2 * JITTER * self._random())

    def reset(self) -> None:
        self._attempts = 0
