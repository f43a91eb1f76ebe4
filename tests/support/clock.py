"""A clock that moves only when a test says so."""


class ManualClock:
    """Stands in for the machine's clock; ``advance`` moves wall time and monotonic time together."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, milliseconds: int) -> None:
        assert milliseconds >= 0, "time does not run backwards; use set_wall for a clock that jumps"
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def set_wall(self, now_ms: int) -> None:
        """Wall time jumps, as when an operator sets it; monotonic time does not notice."""
        self._now_ms = now_ms
