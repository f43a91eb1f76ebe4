"""A bound on deliveries per second: a bucket of tokens that fills with time."""


class RateLimit:
    """One second's worth may go at once, and at least one delivery. Times are those of a clock that never goes back."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._size = max(per_second, 1.0)
        self._tokens = self._size
        self._filled_at: float | None = None

    def wait_seconds(self, now: float) -> float:
        """How long until one more may go; 0 if it may go now."""
        self._fill(now)
        # A sum of many small parts may miss the whole by a hair.
        return 0.0 if self._tokens >= 1.0 - 1e-9 else (1.0 - self._tokens) / self.per_second

    def take(self, now: float) -> None:
        """One goes."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            gained = max(now - self._filled_at, 0.0) * self.per_second
            self._tokens = min(self._tokens + gained, self._size)
        self._filled_at = now
