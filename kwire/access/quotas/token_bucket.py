"""A token bucket, for quotas of changes: a client may make as many changes at once as the bucket has tokens."""

MS = 1000


class TokenBucket:
    """Tokens that return at `rate` per second, up to those of `burst_s` seconds. It begins full.

    As in Kafka a client that has tokens left may take any number of them. It then waits until the debt is paid.
    """

    __slots__ = ("_tokens", "_updated_at", "burst_s")

    def __init__(self, burst_s: float) -> None:
        self.burst_s = burst_s
        self._tokens = float("inf")
        self._updated_at = float("-inf")

    def take(self, count: float, rate: float, now: float) -> None:
        self._refill(rate, now)
        self._tokens -= count

    def tokens(self, rate: float, now: float) -> float:
        """Return the number of tokens; it is negative if more were taken than there were."""
        self._refill(rate, now)
        return self._tokens

    def throttle_ms(self, rate: float, now: float) -> int:
        """Return the time until the number of tokens is no longer negative."""
        tokens = self.tokens(rate, now)
        return round(-tokens / rate * MS) if tokens < 0 else 0

    def _refill(self, rate: float, now: float) -> None:
        now = max(now, self._updated_at)
        self._tokens = min(self.burst_s * rate, self._tokens + (now - self._updated_at) * rate)
        self._updated_at = now
