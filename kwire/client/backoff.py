"""Exponential backoff with jitter: the delays between attempts to connect or to repeat a request."""

import random

DELAY_S_MIN = 0.1
DELAY_S_MAX = 5.0
# After a connection that lasted at least this long, the delays start again at the minimum.
GOOD_AFTER_S = DELAY_S_MAX


class Backoff:
    """Computes the delay before each attempt. The delays grow up to a maximum."""

    def __init__(
        self, delay_s_min: float = DELAY_S_MIN, delay_s_max: float = DELAY_S_MAX, rng: random.Random | None = None
    ) -> None:
        self._delay_s_min = delay_s_min
        self._delay_s_max = delay_s_max
        self._rng = rng or random.Random()
        self._bound_s = delay_s_min

    def next_delay_s(self) -> float:
        """Return a random delay between half of the current bound and the bound.

        Then double the bound for the next call, up to the maximum delay.
        """
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._delay_s_max)
        return self._rng.uniform(bound_s / 2, bound_s)

    def connection_ended(self, seconds: float) -> None:
        """Reset the delays if the ended connection lasted at least GOOD_AFTER_S. It lasted `seconds`."""
        if seconds >= GOOD_AFTER_S:
            self.reset()

    def reset(self) -> None:
        self._bound_s = self._delay_s_min
