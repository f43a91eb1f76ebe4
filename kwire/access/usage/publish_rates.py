"""The publish rates of keys: a token bucket for each key that has a rate."""


class _Bucket:
    __slots__ = ("filled_at", "rate", "tokens")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self.tokens = float(rate)
        self.filled_at = now


class PublishRates:
    """Limits the requests per second of keys. A key and its aliases share a bucket, which holds the tokens of a second.

    There are at most as many buckets as keys with a rate.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, usage_id: str, rate: int, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one. `now` is monotonic."""
        bucket = self._buckets.get(usage_id)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[usage_id] = _Bucket(rate, now)
        bucket.tokens = min(bucket.tokens + max(now - bucket.filled_at, 0.0) * rate, float(rate))
        bucket.filled_at = now
        # The tolerance is for the rounding error of many small additions.
        if bucket.tokens >= 1.0 - 1e-9:
            bucket.tokens -= 1.0
            return 0.0
        return (1.0 - bucket.tokens) / rate

    def forget(self, changed: frozenset[str]) -> None:
        """Remove the buckets of keys that were changed. A listener of `Keys`. The next request makes a full one."""
        for usage_id in changed & self._buckets.keys():
            del self._buckets[usage_id]
