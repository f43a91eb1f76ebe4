"""The rule of `max_events` for one key: a count, and the time at which the limit was reached. It has no I/O.

When the count reaches the limit, that moment is recorded. The first event 24 hours or more later sets the count and the
recorded moment back, and is accepted. Until then events are refused. A key that stays below its limit is never set
back: the limit is not a rolling window.

Events that are published together are counted together, or refused together. If they do not fit, the limit counts as
reached at that moment, as long as no smaller number of events is accepted. Otherwise a client that publishes ten events
at a time could stay below its limit, and be refused, for ever.

The stored count is at least the real one. It is raised in blocks, before the events of the block are accepted. So after
a crash the count is too high by at most one block, and never too low.

The 24 hours are measured with the monotonic clock, so setting the machine's clock has no effect while the server runs.
After a start, the time since the recorded moment is that of the wall clock, but not less than 0: if that moment lies in
the future, the 24 hours begin at the start.
"""

from typing import Any, NamedTuple

DAY_SECONDS = 24 * 3600.0
# Differences of monotonic times are rounded, and an event at the announced time must be accepted.
ROUNDING_SECONDS = 1e-6
# Events are counted in blocks of a hundredth of the limit, but not more than this.
BLOCK_EVENTS_MAX = 1000
BLOCKS_PER_LIMIT = 100


class CountNow(NamedTuple):
    """Both clocks at the same moment."""

    monotonic: float
    wall_ms: int


def block_events(limit: int) -> int:
    return max(1, min(BLOCK_EVENTS_MAX, limit // BLOCKS_PER_LIMIT))


class EventCount:
    """The events that a key and its aliases have published since the count was set back.

    `used` contains events that are being published. `stored` is the count in the metadata store.
    """

    __slots__ = ("_hit_at", "_hit_ms", "_limit", "is_changed", "stored", "used")

    def __init__(self) -> None:
        self.used = self.stored = 0
        self._limit = 0
        # The moment at which the limit was reached: stored in wall time, measured in monotonic time.
        self._hit_ms: int | None = None
        self._hit_at: float | None = None
        # Whether something besides the count must be stored.
        self.is_changed = False

    @classmethod
    def loaded(cls, value: Any, now: CountNow) -> "EventCount":
        """Return the count of an entry in the metadata store."""
        count = cls()
        count.used = count.stored = value["events"]
        hit_ms = value.get("limit_hit_ms")
        if hit_ms is not None:
            elapsed = min(max((now.wall_ms - hit_ms) / 1000, 0.0), DAY_SECONDS)
            count._hit_ms, count._hit_at = min(hit_ms, now.wall_ms), now.monotonic - elapsed
            # A moment in the future would be found again at each start, and the wait would never end.
            count.is_changed = hit_ms > now.wall_ms
        return count

    def reset_ms(self, now: CountNow) -> int:
        """Return the wall time from which on an event sets the count back. Only for a count at its limit."""
        assert self._hit_at is not None
        return now.wall_ms + round(max(self._hit_at + DAY_SECONDS - now.monotonic, 0.0) * 1000)

    def take(self, limit: int, now: CountNow, count: int = 1) -> bool:
        """Count events, at most `limit`, or return False if they are refused. Publish them when `is_stored`."""
        self._limit = limit
        is_full = self.used + count > limit
        if is_full and self._hit_at is not None and now.monotonic - self._hit_at >= DAY_SECONDS - ROUNDING_SECONDS:
            # The stored count belongs to the time before. Nothing is accepted before the new one is stored.
            self.used = self.stored = 0
            self._set_hit(None)
            is_full = count > limit
        if is_full:
            if self._hit_at is None:
                self._set_hit(now)
            return False
        self.used += count
        if self.used == limit:
            self._set_hit(now)
        elif self._hit_at is not None:
            # The limit was raised, or more events than these were refused before.
            self._set_hit(None)
        return True

    def give_back(self, count: int = 1) -> None:
        """Uncount events that were not published."""
        if self.used and count:
            self.used = max(self.used - count, 0)
            if self.used < self._limit and self._hit_at is not None:
                self._set_hit(None)

    @property
    def is_stored(self) -> bool:
        return self.used <= self.stored and not self.is_changed

    @property
    def wants_block(self) -> bool:
        """Whether the next block should be stored now, so that no event has to wait for it."""
        return self.stored < self._limit and (self.stored - self.used) * 2 <= block_events(self._limit)

    def value(self, *, is_exact: bool = False) -> dict[str, Any]:
        """Return the value to store: the count with a block, but not more than the limit."""
        events = self.used
        if not is_exact:
            events = max(self.used, min(self.used + block_events(self._limit), self._limit))
        value: dict[str, Any] = {"events": events}
        if self._hit_ms is not None:
            value["limit_hit_ms"] = self._hit_ms
        return value

    def note_stored(self, value: Any) -> None:
        self.stored = value["events"]
        self.is_changed = value.get("limit_hit_ms") != self._hit_ms

    def _set_hit(self, now: CountNow | None) -> None:
        self._hit_ms, self._hit_at = (None, None) if now is None else (now.wall_ms, now.monotonic)
        self.is_changed = True
