"""How fast work on files may go, so that what clients wait for has the disk."""

import time

# Shorter waits are saved up: they would cost more than they give.
PAUSE_SECONDS_MIN = 0.01
# No single wait is longer: who works at a pace still looks at the world now and then.
PAUSE_SECONDS_MAX = 1.0


class Pace:
    """Told of bytes read or written, it sleeps whenever they came faster than allowed. Goes to a worker by pickling."""

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
