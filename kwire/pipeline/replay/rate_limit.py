"""Limits the rate of sent events. The rate is measured from the start, so that rounding errors do not accumulate."""

import time
from collections.abc import Callable

# Events are sent in rounds. With a rate limit, a round has at most as many events as may be sent in this time.
ROUND_SECONDS = 0.5


class RateLimiter:
    """Delays rounds so that at most `rate_per_s` events are sent per second. None disables the limit."""

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
        """Return the maximum number of events in a round. It is at least 1 and at most `events_max`."""
        if self._rate_per_s is None:
            return events_max
        return max(1, min(events_max, int(self._rate_per_s * ROUND_SECONDS)))

    def wait_to_send(self, events: int) -> None:
        """Wait until a round of this many events may be sent."""
        if self._rate_per_s is None:
            return
        due = self._began + self._events / self._rate_per_s
        now = self._monotonic()
        if due > now:
            self._wait(due - now)
        elif now - due > ROUND_SECONDS:
            # The server was slower than the limit. Move the start of the measurement, so that no burst of events
            # follows.
            self._began += now - due
        self._events += events
