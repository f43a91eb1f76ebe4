"""How fast events go: so many in a second at most, measured from the beginning, so that no rounding adds up."""

import time
from collections.abc import Callable

# A round of a slow replay is small enough to be over in about this time.
ROUND_SECONDS = 0.5


class Pace:
    """`rate_per_s` None: as fast as it goes."""

    def __init__(
        self,
        rate_per_s: float | None,
        wait: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate_per_s = rate_per_s
        self._wait = wait
        self._monotonic = monotonic
        self._began = monotonic()
        self._events = 0

    def round_events(self, events_max: int) -> int:
        """How many a round may have, up to `events_max`."""
        if self._rate_per_s is None:
            return events_max
        return max(1, min(events_max, int(self._rate_per_s * ROUND_SECONDS)))

    def hold(self, events: int) -> None:
        """Wait until it is time to send so many more."""
        if self._rate_per_s is None:
            return
        due = self._began + self._events / self._rate_per_s
        now = self._monotonic()
        if due > now:
            self._wait(due - now)
        elif now - due > ROUND_SECONDS:
            # What was missed while the server was slow is not made up for in one burst.
            self._began += now - due
        self._events += events
