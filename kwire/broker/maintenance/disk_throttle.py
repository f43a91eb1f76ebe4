"""A throttle for the disk throughput of background work, so that requests of clients are not delayed."""

import time

# Shorter pauses are added up to a longer one, because each sleep has a fixed cost.
PAUSE_SECONDS_MIN = 0.01
# A longer pause is divided into several sleeps.
PAUSE_SECONDS_MAX = 1.0


class DiskThrottle:
    """A callable that limits a rate in bytes per second. It can be pickled, so a worker process can use it.

    Call it with the number of bytes that were read or written. It sleeps if they exceed the rate.
    """

    def __init__(self, bytes_per_second_max: float) -> None:
        self._bytes_per_second_max = bytes_per_second_max
        self._owed_seconds = 0.0
        self._last: float | None = None

    def __call__(self, size_bytes: int) -> None:
        now = time.monotonic()
        if self._last is not None:
            self._owed_seconds = max(0.0, self._owed_seconds - (now - self._last))
        self._last = now
        self._owed_seconds += size_bytes / self._bytes_per_second_max
        while self._owed_seconds >= PAUSE_SECONDS_MIN:
            pause = min(self._owed_seconds, PAUSE_SECONDS_MAX)
            time.sleep(pause)
            self._owed_seconds -= pause
            self._last += pause
