"""The clock: the one door to the time of day.

Everything that needs the time receives a clock, so tests run in virtual time. ``now_ms`` is wall time, for what is
written down (timestamps, retention); ``monotonic`` never goes back, for how long something took or may take.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the server asks about time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes; it can jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; it only grows."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
