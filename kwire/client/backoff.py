"""How long to wait before the next try: longer each time, never beyond a bound, never in step with other clients."""

import random

DELAY_S_MIN = 0.1
DELAY_S_MAX = 5.0
# A connection that lived this long was a good one: the next loss starts again with a short wait.
GOOD_AFTER_S = DELAY_S_MAX


class Backoff:
    def __init__(
        self, delay_s_min: float = DELAY_S_MIN, delay_s_max: float = DELAY_S_MAX, chance: random.Random | None = None
    ) -> None:
        self._delay_s_min = delay_s_min
        self._delay_s_max = delay_s_max
        self._chance = chance or random.Random()
        self._bound_s = delay_s_min

    def next_delay_s(self) -> float:
        """Between half the bound and the bound; the bound doubles with each call."""
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._delay_s_max)
        return self._chance.uniform(bound_s / 2, bound_s)

    def lived(self, seconds: float) -> None:
        """A connection has ended after so long."""
        if seconds >= GOOD_AFTER_S:
            self.reset()

    def reset(self) -> None:
        self._bound_s = self._delay_s_min
