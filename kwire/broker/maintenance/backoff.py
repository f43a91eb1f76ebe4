"""The pause before work that has failed is tried again: longer each time, up to a bound."""


class Backoff:
    """`seconds` is the pause in force. Times are those of a clock that only goes forward."""

    def __init__(self, first_seconds: float, seconds_max: float) -> None:
        self._first_seconds = first_seconds
        self._seconds_max = seconds_max
        self._over_at = 0.0
        self.seconds = 0.0

    def begin(self, now: float) -> None:
        """The work has failed. Further failures before the pause is over do not make it longer."""
        if now >= self._over_at:
            self.seconds = min(self.seconds * 2, self._seconds_max) or self._first_seconds
            self._over_at = now + self.seconds

    def is_over(self, now: float) -> bool:
        return now >= self._over_at

    def reset(self) -> None:
        """It has worked: the next pause is the first one again."""
        self.seconds = 0.0
        self._over_at = 0.0
