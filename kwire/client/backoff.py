"""Exponential backoff with jitter. It computes the delay before the next attempt, up to a maximum."""

import random

DELAY_S_MIN = 0.1
DELAY_S_MAX = 5.0
# After a connection that lasted at least this long, the delays start again at the minimum.
GOOD_AFTER_S = DELAY_S_MAX


class Backoff:
    """Computes the delays between attempts."""

    def __init__(
        self, delay_s_min: float = DELAY_S_MIN, delay_s_max: float = DELAY_S_MAX, rng: random.Random | None = None
    ) -> None:
        self._delay_s_min = delay_s_min
        self._delay_s_max = delay_s_max
        self._rng = rng or random.Random()
        self._bound_s = delay_s_min

    def next_delay_s(self) -> float:
        """Return a random delay between half the bound and the bound, and double the bound, up to the maximum."""
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._delay_s_max)
        return self._rng.uniform(bound_s / 2, bound_s)

    def connection_ended(self, seconds: float) -> None:
        """Reset the delay if the connection that ended had lasted at least GOOD_AFTER_S."""
        if seconds >= GOOD_AFTER_S:
            self.reset()

    def reset(self) -> None:
        self._bound_s = self._delay_s_min
