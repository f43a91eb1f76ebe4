"""A token bucket that limits deliveries per second."""


class RateLimit:
    """Limits the deliveries per second. The bucket holds the tokens of one second, but at least one token.

    Times are from a monotonic clock.
    """

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._size = max(per_second, 1.0)
        self._tokens = self._size
        self._filled_at: float | None = None

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until the next delivery may start; 0 if it may start now."""
        self._fill(now)
        # The tolerance is for the rounding error of many small additions.
        return 0.0 if self._tokens >= 1.0 - 1e-9 else (1.0 - self._tokens) / self.per_second

    def take(self, now: float) -> None:
        """Take a token for a delivery that starts now."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            gained = max(now - self._filled_at, 0.0) * self.per_second
            self._tokens = min(self._tokens + gained, self._size)
        self._filled_at = now
