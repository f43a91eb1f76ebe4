"""Exponential backoff: the pause before failed work is tried again, doubled each time up to a bound."""


class Backoff:
    """An exponential backoff. `seconds` is the current pause. Times are from a monotonic clock."""

    def __init__(self, first_seconds: float, seconds_max: float) -> None:
        self._first_seconds = first_seconds
        self._seconds_max = seconds_max
        self._over_at = 0.0
        self.seconds = 0.0

    def begin(self, now: float) -> None:
        """Start a pause, because the work has failed. Further failures during the pause do not extend it."""
        if now >= self._over_at:
            self.seconds = min(self.seconds * 2, self._seconds_max) or self._first_seconds
            self._over_at = now + self.seconds

    def is_over(self, now: float) -> bool:
        return now >= self._over_at

    def reset(self) -> None:
        """End the pause, because the work has succeeded. The next pause is `first_seconds` long again."""
        self.seconds = 0.0
        self._over_at = 0.0
