"""Samples of the load: rates, percentiles, and a ring that does not grow."""

import pytest

from kwire.metrics import LATENCY_BOUNDS
from kwire.web.console.node_load import NodeGauges, NodeReading, Sample
from kwire.web.console.samples import INTERVAL_MS, SAMPLES_MAX, SampleRing, percentile, sample_between

NOTHING = [0] * (len(LATENCY_BOUNDS) + 1)
GAUGES = NodeGauges(2, 1, 30, 400, 600, 1000, 800, 0.01)


def reading(time_ms: int, total: int = 0, counts: list[int] = NOTHING) -> NodeReading:
    return NodeReading(time_ms, total, total, total, total, total, total, counts)


def test_a_sample_has_the_rates_between_two_readings() -> None:
    counts = [0, 0, 10, *NOTHING[3:]]
    sample = sample_between(Sample, reading(1000, 100), reading(3000, 300, counts), GAUGES)
    assert sample.time_ms == 3000
    assert sample.received_bytes == sample.http_requests == 100.0
    assert sample.lag_records == 30
    assert sample.request_p50_seconds == pytest.approx(0.000075)
    assert sample.request_p99_seconds == pytest.approx(0.0001, rel=0.02)


def test_a_count_that_falls_is_no_negative_rate() -> None:
    """The traffic of a deleted topic is no longer counted."""
    assert sample_between(Sample, reading(0, 100), reading(2000, 40), GAUGES).appended_records == 0.0


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        (NOTHING, 0.5, None),
        ([*NOTHING[1:], 7], 0.99, LATENCY_BOUNDS[-1]),
        ([4, *NOTHING[1:]], 0.5, LATENCY_BOUNDS[0] / 2),
    ],
)
def test_percentiles_are_interpolated_within_a_bucket(counts: list[int], share: float, expected: float | None) -> None:
    assert percentile(counts, share) == expected


def test_the_ring_keeps_the_newest_samples() -> None:
    ring = SampleRing(Sample)
    assert ring.newest is None
    for number in range(SAMPLES_MAX + 5):
        ring.add(sample_between(Sample, reading(number * INTERVAL_MS), reading((number + 1) * INTERVAL_MS), GAUGES))
    columns = ring.columns(0)
    assert set(columns) == set(Sample.__struct_fields__)
    assert all(len(column) == SAMPLES_MAX for column in columns.values())
    newest = (SAMPLES_MAX + 5) * INTERVAL_MS
    assert columns["time_ms"][-1] == newest
    assert ring.columns(newest - INTERVAL_MS)["time_ms"] == [newest]
    assert ring.columns(newest)["time_ms"] == []
