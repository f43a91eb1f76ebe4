"""The average rate over a sliding window of samples, computed as Kafka computes it.

A sample begins with the first value after the previous sample has lasted `sample_s`. The window has up to
`sample_count` samples and a further one that overlaps its begin. A sample is dropped when its last value is as old as
the whole window. The rate is the sum of all samples, divided by the age of the oldest one; while samples are missing,
each counts as if it had lasted its whole time, so that a client may use its whole quota immediately.
"""

from collections import deque

MS = 1000


class _Sample:
    __slots__ = ("last", "start", "value")

    def __init__(self, start: float) -> None:
        self.start = self.last = start
        self.value = 0.0


class RateWindow:
    """The values of one window. Times are in seconds, and one that lies before the previous one counts as this one."""

    __slots__ = ("_now", "_samples", "_total", "sample_count", "sample_s")

    def __init__(self, sample_count: int, sample_s: float) -> None:
        self.sample_count = sample_count
        self.sample_s = sample_s
        self._samples: deque[_Sample] = deque()
        self._total = 0.0
        self._now = float("-inf")

    def add(self, value: float, now: float) -> None:
        """Count a value, which is not negative."""
        sample = self._current(now)
        sample.value += value
        self._total += value

    def rate(self, now: float) -> float:
        """Return the average per second."""
        return self.total(now) / self.window_s(now)

    def total(self, now: float) -> float:
        """Return the sum of the values in the window."""
        self._drop_old(now)
        return self._total

    def window_s(self, now: float) -> float:
        """Return the time over which the rate is an average."""
        now = self._drop_old(now)
        elapsed = now - self._samples[0].start if self._samples else 0.0
        missing = self.sample_count - 1 - int(elapsed / self.sample_s)
        if missing > 0:
            elapsed += missing * self.sample_s
        return max(elapsed, 1 / MS)

    def throttle_ms(self, limit: float, now: float) -> int:
        """Return the time without values after which the rate would be at the limit; 0 if it is not above it."""
        return self._throttle_ms(self.total(now), limit, now)

    def offer(self, value: float, limit: float, now: float) -> int:
        """Count a value unless the rate would exceed the limit. Returns 0, or the time after which it may be retried.

        An empty window accepts every value. In Kafka it does not, so a value that is larger than the quota of a whole
        window can never be sent.
        """
        if self.total(now) > 0 and (throttle_ms := self._throttle_ms(self._total + value, limit, now)):
            return throttle_ms
        self.add(value, now)
        return 0

    def _throttle_ms(self, total: float, limit: float, now: float) -> int:
        window_s = self.window_s(now)
        excess = total / window_s - limit
        return round(excess / limit * window_s * MS) if excess > 0 else 0

    def _current(self, now: float) -> _Sample:
        now = self._drop_old(now)
        samples = self._samples
        if not samples or now - samples[-1].start >= self.sample_s:
            samples.append(_Sample(now))
            if len(samples) > self.sample_count + 1:
                self._drop_first()
        sample = samples[-1]
        sample.last = now
        return sample

    def _drop_old(self, now: float) -> float:
        """Drop the samples whose last value is too old. Returns the time, which never decreases."""
        if now < self._now:
            now = self._now
        self._now = now
        samples, oldest = self._samples, now - self.sample_count * self.sample_s
        while samples and samples[0].last <= oldest:
            self._drop_first()
        return now

    def _drop_first(self) -> None:
        dropped = self._samples.popleft()
        # The sum of fractions is not exact: it must not become negative, and it starts again with an empty window.
        self._total = max(0.0, self._total - dropped.value) if self._samples else 0.0
