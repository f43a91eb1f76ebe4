"""Samples of the node's load for the charts of the console, in a ring of the last ten minutes.

A sample is computed from two readings of counters. The ring has a fixed size and one entry per interval, so its memory
and the size of an answer are bounded.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from kwire.metrics import LATENCY_BOUNDS

INTERVAL_MS = 2000
WINDOW_MS = 600_000
SAMPLES_MAX = WINDOW_MS // INTERVAL_MS

PerSecond = Annotated[float, msgspec.Meta(description="Per second.")]


class Reading(NamedTuple):
    """The counters of the node at one time. All of them only rise. `latency_counts` has a count per bucket of
    LATENCY_BOUNDS, and one for longer requests."""

    time_ms: int
    received_bytes: int
    sent_bytes: int
    appended_records: int
    fetched_records: int
    kafka_requests: int
    http_requests: int
    latency_counts: Sequence[int]


class Gauges(NamedTuple):
    """Values that rise and fall. None if a value is not known yet."""

    kafka_connections: int
    streams: int
    lag_records: int | None
    disk_used_bytes: int | None
    disk_free_bytes: int | None
    memory_bytes: int | None
    anonymous_memory_bytes: int | None
    stall_seconds: float


class Sample(msgspec.Struct, kw_only=True, frozen=True):
    """The load in one interval. Percentiles are null if no request was answered in the interval."""

    time_ms: int
    received_bytes: PerSecond
    sent_bytes: PerSecond
    appended_records: PerSecond
    fetched_records: PerSecond
    kafka_requests: PerSecond
    http_requests: PerSecond
    request_p50_seconds: float | None
    request_p99_seconds: float | None
    kafka_connections: int
    streams: int
    lag_records: int | None
    disk_used_bytes: int | None
    disk_free_bytes: int | None
    memory_bytes: int | None
    anonymous_memory_bytes: int | None
    stall_seconds: float


FIELDS: tuple[str, ...] = Sample.__struct_fields__
_RATES = ("received_bytes", "sent_bytes", "appended_records", "fetched_records", "kafka_requests", "http_requests")


def sample_between(before: Reading, now: Reading, gauges: Gauges) -> Sample:
    seconds = max(0.001, (now.time_ms - before.time_ms) / 1000)
    # The traffic of a deleted topic disappears from the counters.
    rates = {name: round(max(0, getattr(now, name) - getattr(before, name)) / seconds, 3) for name in _RATES}
    counts = [one - other for one, other in zip(now.latency_counts, before.latency_counts, strict=True)]
    return Sample(
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


class SampleRing:
    """The newest samples, at most SAMPLES_MAX."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    @property
    def newest(self) -> Sample | None:
        return self._samples[-1] if self._samples else None

    def columns(self, after_ms: int) -> dict[str, list[float | None]]:
        """Return the samples after a time, as one list per field."""
        taken = [one for one in self._samples if one.time_ms > after_ms]
        return {name: _column(taken, name) for name in FIELDS}


def _column(samples: Iterable[Sample], name: str) -> list[float | None]:
    return [getattr(one, name) for one in samples]
