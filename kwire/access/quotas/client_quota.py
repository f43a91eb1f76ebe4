"""The quotas of one client: a user and a client id. Code that serves the client charges what it uses."""

from collections.abc import Callable
from typing import NamedTuple

from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.meters import Meter
from kwire.errors import ErrorCode, KafkaError

MS = 1000
# The unit of `request_percentage`: 100 is the whole time of one thread. kwire handles requests in one thread.
PERCENT = 100.0
# The largest throttle time that a response can have.
THROTTLE_MS_MAX = 2**31 - 1


class Exceeded(NamedTuple):
    """A refusal because of a quota: how much is allowed, and after how many milliseconds a retry may succeed."""

    kind: QuotaKind
    limit: float
    retry_after_ms: int

    @property
    def retry_after_s(self) -> int:
        """The time in whole seconds, rounded up, as Retry-After has it."""
        return max(1, -(-self.retry_after_ms // MS))


class Allowance(NamedTuple):
    """What a client may still use: the quota of a window, and how much of it is left.

    The unit is a byte, a millisecond of handling requests, or a partition that is created or deleted.
    """

    kind: QuotaKind
    quota: int
    window_s: int
    remaining: int
    reset_s: int


class MutationQuota:
    """The quota of changes for one request. Partitions that are created or deleted count as one change each.

    If it is strict, a change is refused while no tokens are left. Otherwise every change is accepted, and the client
    has to wait afterwards.
    """

    __slots__ = ("_decided_at", "_is_strict", "_meter", "_now", "_throttle_ms")

    def __init__(self, meter: Meter | None, now: Callable[[], float], *, is_strict: bool) -> None:
        self._meter = meter
        self._now = now
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._decided_at = 0.0

    def take(self, count: int) -> None:
        """Count changes. Raises KafkaError THROTTLING_QUOTA_EXCEEDED if they are refused."""
        meter = self._meter
        if meter is None:
            return
        now = self._now()
        meter.used_at = now
        if not self._is_strict:
            meter.bucket.take(count, meter.limit, now)
            meter.window.add(count, now)
        throttle_ms = meter.bucket.throttle_ms(meter.limit, now)
        if throttle_ms:
            self._throttle_ms, self._decided_at = throttle_ms, now
            if self._is_strict:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded; try again later."
                )
        elif self._is_strict:
            meter.bucket.take(count, meter.limit, now)
            meter.window.add(count, now)

    @property
    def throttle_ms(self) -> int:
        """The milliseconds that the client still has to wait, because of what this request has counted."""
        if not self._throttle_ms or self._meter is None:
            return 0
        left_ms = max(0, self._throttle_ms - round((self._now() - self._decided_at) * MS))
        if left_ms:
            self._meter.note_throttle(left_ms)
        return min(left_ms, THROTTLE_MS_MAX)


def unlimited_mutations() -> MutationQuota:
    return MutationQuota(None, lambda: 0.0, is_strict=False)


class ClientQuota:
    """The meters of one client; None where it has no quota."""

    __slots__ = ("_now", "consume", "mutation", "produce", "request")

    def __init__(
        self,
        now: Callable[[], float],
        produce: Meter | None = None,
        consume: Meter | None = None,
        request: Meter | None = None,
        mutation: Meter | None = None,
    ) -> None:
        self._now = now
        self.produce = produce
        self.consume = consume
        self.request = request
        self.mutation = mutation

    def produced(self, size_bytes: int) -> int:
        """Charge a Produce request. Returns its throttle time."""
        meter = self.produce
        return 0 if meter is None else self._noted(meter, meter.charge(size_bytes, self._now()))

    def fetched(self, size_bytes: int) -> int:
        """Charge a Fetch response, unless it has to be replaced with an empty one. Returns its throttle time."""
        meter = self.consume
        return 0 if meter is None else self._noted(meter, meter.offer(size_bytes, self._now()))

    def fetch_bytes_max(self, size_bytes: int) -> int:
        """Return the size up to which a Fetch response is not above the quota in an empty window."""
        meter = self.consume
        return size_bytes if meter is None else int(min(size_bytes, meter.capacity))

    def handled(self, seconds: float) -> int:
        """Charge the time of handling a request. Returns its throttle time, at most the length of one sample."""
        meter = self.request
        if meter is None:
            return 0
        throttle_ms = meter.charge(seconds * PERCENT, self._now())
        return self._noted(meter, min(throttle_ms, round(meter.window.sample_s * MS)))

    def mutations(self, *, is_strict: bool) -> MutationQuota:
        """Return the quota of changes for one request."""
        return MutationQuota(self.mutation, self._now, is_strict=is_strict)

    # --- clients that are refused instead of throttled: those of HTTP

    def exceeded(self, kind: QuotaKind) -> Exceeded | None:
        """Return why a request must be refused now; None if it may be served."""
        meter = self._meter(kind)
        if meter is None:
            return None
        now = self._now()
        throttle_ms = _wait_ms(meter, now)
        if not throttle_ms:
            return None
        meter.note_throttle(throttle_ms)
        return Exceeded(kind, meter.limit, throttle_ms)

    def add(self, kind: QuotaKind, value: float) -> None:
        """Charge a request that was served: bytes, or the seconds of handling it."""
        meter = self._meter(kind)
        if meter is not None:
            meter.add(value * PERCENT if kind is QuotaKind.REQUEST else value, self._now())

    def allowance(self, kind: QuotaKind) -> Allowance | None:
        """Return what the client may still use; None if it has no quota of this kind."""
        meter = self._meter(kind)
        if meter is None:
            return None
        now = self._now()
        throttle_ms = _wait_ms(meter, now)
        if kind is QuotaKind.MUTATION:
            burst_s = meter.bucket.burst_s
            quota, left, window_s = meter.limit * burst_s, meter.bucket.tokens(meter.limit, now), round(burst_s) or 1
        else:
            quota, left = meter.capacity, meter.capacity - meter.window.total(now)
            window_s = round((meter.window.sample_count - 1) * meter.window.sample_s) or 1
        if kind is QuotaKind.REQUEST:
            # Milliseconds of handling, because a second of a small percentage would be 0.
            quota, left = quota / PERCENT * MS, left / PERCENT * MS
        reset_s = -(-throttle_ms // MS) if throttle_ms else window_s
        return Allowance(kind, int(quota), window_s, max(0, int(left)), reset_s)

    def _meter(self, kind: QuotaKind) -> Meter | None:
        match kind:
            case QuotaKind.PRODUCE:
                return self.produce
            case QuotaKind.CONSUME:
                return self.consume
            case QuotaKind.REQUEST:
                return self.request
            case QuotaKind.MUTATION:
                return self.mutation
        raise ValueError(f"{kind} is not a quota of a client")

    def _noted(self, meter: Meter, throttle_ms: int) -> int:
        if not throttle_ms:
            return 0
        throttle_ms = min(throttle_ms, THROTTLE_MS_MAX)
        meter.note_throttle(throttle_ms)
        return throttle_ms


def _wait_ms(meter: Meter, now: float) -> int:
    """Return the milliseconds after which a client that is above its quota may send its next request."""
    if meter.key.kind is QuotaKind.MUTATION:
        return meter.bucket.throttle_ms(meter.limit, now)
    throttle_ms = meter.excess_ms(now)
    # As on the Kafka port, a client waits for at most one sample because of the time of its requests.
    return min(throttle_ms, round(meter.window.sample_s * MS)) if meter.key.kind is QuotaKind.REQUEST else throttle_ms
