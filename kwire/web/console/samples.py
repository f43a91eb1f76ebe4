"""Samples of the load of a process for the charts of the console, in a ring of the last ten minutes.

A sample is computed from two readings of counters. The ring has a fixed size and one entry per interval, so its memory
and the size of an answer are bounded.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec

from kwire.metrics import LATENCY_BOUNDS

INTERVAL_MS = 2000
WINDOW_MS = 600_000
SAMPLES_MAX = WINDOW_MS // INTERVAL_MS

PerSecond = Annotated[float, msgspec.Meta(description="Per second.")]


class Reading(Protocol):
    """The counters of a process at one time, a NamedTuple. All of them only rise. `latency_counts` has a count per
    bucket of LATENCY_BOUNDS, and one for longer requests."""

    @property
    def time_ms(self) -> int: ...

    @property
    def latency_counts(self) -> Sequence[int]: ...

    def _asdict(self) -> dict[str, Any]: ...


class Gauges(Protocol):
    """Values that rise and fall, a NamedTuple. None if a value is not known yet."""

    def _asdict(self) -> dict[str, Any]: ...


class LoadSample(msgspec.Struct, kw_only=True, frozen=True):
    """The load in one interval. Percentiles are null if no request was answered in the interval.

    A subclass has a field for each other counter of a reading, which is its rate, and for each gauge.
    """

    time_ms: int
    request_p50_seconds: float | None
    request_p99_seconds: float | None
    http_requests: PerSecond
    streams: int
    memory_bytes: int | None
    anonymous_memory_bytes: int | None
    stall_seconds: float


AnySample = TypeVar("AnySample", bound=LoadSample)


def sample_between(kind: type[AnySample], before: Reading, now: Reading, gauges: Gauges) -> AnySample:
    seconds = max(0.001, (now.time_ms - before.time_ms) / 1000)
    earlier, counters = before._asdict(), now._asdict()
    del counters["time_ms"], counters["latency_counts"]
    # The traffic of a deleted topic disappears from the counters.
    rates = {name: round(max(0, value - earlier[name]) / seconds, 3) for name, value in counters.items()}
    counts = [one - other for one, other in zip(now.latency_counts, before.latency_counts, strict=True)]
    return kind(
        time_ms=now.time_ms,
        request_p50_seconds=percentile(counts, 0.50),
        request_p99_seconds=percentile(counts, 0.99),
        **rates,
        **gauges._asdict(),
    )


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the time within which this share of the requests was answered, interpolated within its bucket."""
    wanted = sum(counts) * share
    if not wanted:
        return None
    passed, lower = 0, 0.0
    for count, upper in zip(counts, LATENCY_BOUNDS, strict=False):
        if passed + count >= wanted:
            return lower + (upper - lower) * (wanted - passed) / count
        passed, lower = passed + count, upper
    return LATENCY_BOUNDS[-1]


class SampleRing(Generic[AnySample]):
    """The newest samples of a kind, at most SAMPLES_MAX."""

    def __init__(self, kind: type[AnySample]) -> None:
        self.kind = kind
        self._samples: deque[AnySample] = deque(maxlen=SAMPLES_MAX)

    def add(self, sample: AnySample) -> None:
        self._samples.append(sample)

    @property
    def newest(self) -> AnySample | None:
        return self._samples[-1] if self._samples else None

    def columns(self, after_ms: int) -> dict[str, list[float | None]]:
        """Return the samples after a time, as one list per field."""
        taken = [one for one in self._samples if one.time_ms > after_ms]
        return {name: _column(taken, name) for name in self.kind.__struct_fields__}


def _column(samples: Iterable[LoadSample], name: str) -> list[float | None]:
    return [getattr(one, name) for one in samples]
