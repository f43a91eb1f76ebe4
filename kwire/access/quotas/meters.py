"""The meters: what the clients with quotas have used recently. Their number is bounded."""

from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.rate_window import RateWindow
from kwire.access.quotas.token_bucket import TokenBucket

# The maximum number of meters. Client ids are chosen by clients, and with a default quota each of them has a meter.
METERS_MAX = 10_000
# When the maximum is reached, this many meters are dropped: those that were not used for the longest time.
DROPPED_AT_ONCE = METERS_MAX // 10
# A meter that was not used for this time is dropped, at the next creation of a meter after IDLE_CHECK_S.
IDLE_S = 3600.0
IDLE_CHECK_S = 60.0


class QuotaWindow(NamedTuple):
    """The windows of the settings: the number of samples and the length of each."""

    sample_count: int = 11
    sample_s: float = 1.0
    mutation_sample_count: int = 11
    mutation_sample_s: float = 1.0


class MeterKey(NamedTuple):
    """What a meter counts, and for whom: "" in `user` or `client_id` is any. `ip` is set for connections."""

    kind: QuotaKind
    user: str = ""
    client_id: str = ""
    ip: str = ""


class Meter:
    """The use of one quota by the clients that share it. Its limit changes with the quota."""

    __slots__ = ("bucket", "key", "limit", "revision", "throttle_count", "throttled_ms", "used_at", "window")

    def __init__(self, key: MeterKey, limit: float, window: QuotaWindow) -> None:
        self.key = key
        self.limit = limit
        self.revision = 0
        # Changes have a bucket for the decision. Their window is only for metrics.
        self.window = RateWindow(window.sample_count, window.sample_s)
        self.bucket = TokenBucket(window.mutation_sample_count * window.mutation_sample_s)
        self.used_at = float("-inf")
        self.throttled_ms = 0
        self.throttle_count = 0

    def add(self, value: float, now: float) -> None:
        """Count a value without a decision."""
        self.used_at = now
        self.window.add(value, now)

    def charge(self, value: float, now: float) -> int:
        """Count a value. Returns the milliseconds that the client has to wait now."""
        self.used_at = now
        self.window.add(value, now)
        return self.window.throttle_ms(self.limit, now)

    def offer(self, value: float, now: float) -> int:
        """Count a value unless it exceeds the quota. Returns 0, or the milliseconds that the client has to wait."""
        self.used_at = now
        return self.window.offer(value, self.limit, now)

    def excess_ms(self, now: float) -> int:
        """Return the milliseconds that the client has to wait now."""
        return self.window.throttle_ms(self.limit, now)

    def note_throttle(self, throttle_ms: int) -> None:
        self.throttle_count += 1
        self.throttled_ms += throttle_ms

    @property
    def capacity(self) -> float:
        """The largest value that is not above the quota in an empty window."""
        return self.limit * (self.window.sample_count - 1) * self.window.sample_s


class Meters:
    """All meters, by what they count and for whom."""

    def __init__(self, window: QuotaWindow, on_drop: Callable[[], None], meters_max: int = METERS_MAX) -> None:
        """`on_drop` is called when meters were dropped: nobody may use a dropped meter any longer."""
        self._window = window
        self._on_drop = on_drop
        self._meters_max = meters_max
        self._meters: dict[MeterKey, Meter] = {}
        self._checked_at = float("-inf")
        # The revision of the quotas. A meter has the revision at which its limit was last looked up.
        self.revision = 1

    def __len__(self) -> int:
        return len(self._meters)

    def get(self, key: MeterKey, limit: float, now: float) -> Meter:
        """Return the meter, with this limit. It is created if it does not exist."""
        meter = self._meters.get(key)
        if meter is None:
            self._make_room(now)
            meter = self._meters[key] = Meter(key, limit, self._window)
            meter.used_at = now
        meter.limit, meter.revision = limit, self.revision
        return meter

    def recent(self, count: int) -> Iterator[Meter]:
        """Yield up to `count` meters, the most recently used first. Meters of removed quotas are left out."""
        current = (one for one in self._meters.values() if one.revision == self.revision)
        return islice(sorted(current, key=attrgetter("used_at"), reverse=True), count)

    def _make_room(self, now: float) -> None:
        is_full = len(self._meters) >= self._meters_max
        if not is_full and now - self._checked_at < IDLE_CHECK_S:
            return
        self._checked_at = now
        dropped = [key for key, meter in self._meters.items() if meter.used_at < now - IDLE_S]
        if is_full and not dropped:
            oldest = sorted(self._meters.values(), key=attrgetter("used_at"))
            dropped = [meter.key for meter in oldest[: max(1, self._meters_max * DROPPED_AT_ONCE // METERS_MAX)]]
        for key in dropped:
            del self._meters[key]
        if dropped:
            self._on_drop()
