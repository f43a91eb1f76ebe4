"""The clock that code of the server gets as an argument. Tests pass a clock with virtual time.

`now_ms` is the wall-clock time, for stored values (timestamps, retention). `monotonic` never decreases, and is for
durations and timeouts.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The interface of a clock."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970. The time can jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary fixed time. The value never decreases."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Not a method that calls it: each request reads the time several times.
    monotonic = staticmethod(time.monotonic)
