"""The publish rates of keys: a token bucket for each key that has a rate."""


class RateExceeded(Exception):
    """The key has published more events in the last second than it may. `wait_s` is the time until it may again."""

    def __init__(self, rate: int, wait_s: float) -> None:
        super().__init__(f"the key may publish {rate} events per second; try again in {wait_s:.3f} s")
        self.rate = rate
        self.wait_s = wait_s


class _Bucket:
    __slots__ = ("filled_at", "rate", "tokens")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self.tokens = float(rate)
        self.filled_at = now

    def fill(self, now: float) -> None:
        self.tokens = min(self.tokens + max(now - self.filled_at, 0.0) * self.rate, float(self.rate))
        self.filled_at = max(now, self.filled_at)


class PublishRates:
    """Limits the events per second of keys. A key and its aliases share a bucket, which holds the tokens of a second.

    A client that has a token may take any number of them, because the events of one request cannot be divided. It then
    waits until the debt is paid. There are at most as many buckets as keys with a rate.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, usage_id: str, rate: int, now: float, count: int = 1) -> None:
        """Take tokens. Raises RateExceeded, and takes nothing, if there is none. `now` is monotonic."""
        bucket = self._buckets.get(usage_id)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[usage_id] = _Bucket(rate, now)
        bucket.fill(now)
        # The tolerance is for the rounding error of many small additions.
        if bucket.tokens < 1.0 - 1e-9:
            self.refused += 1
            raise RateExceeded(rate, (1.0 - bucket.tokens) / rate)
        bucket.tokens -= count

    def give_back(self, usage_id: str, count: int) -> None:
        """Return tokens for events that were not published. The key may have no rate."""
        bucket = self._buckets.get(usage_id)
        if bucket is not None:
            bucket.tokens = min(bucket.tokens + count, float(bucket.rate))

    def debt_s(self, usage_id: str, now: float) -> float:
        """Return the seconds until the tokens that were taken beyond those of the bucket have returned."""
        bucket = self._buckets.get(usage_id)
        if bucket is None:
            return 0.0
        bucket.fill(now)
        return max(-bucket.tokens, 0.0) / bucket.rate

    def forget(self, changed: frozenset[str]) -> None:
        """Remove the buckets of keys that were changed. A listener of `Keys`. The next request makes a full one."""
        for usage_id in changed & self._buckets.keys():
            del self._buckets[usage_id]
