"""Prometheus' text format for families with many series, and histograms of latencies.

The text is written in chunks: with prometheus_client, ten thousand samples would block the event loop for too long.
"""

import asyncio
from collections.abc import Iterable
from typing import Literal, NamedTuple

from prometheus_client.core import HistogramMetricFamily

from kwire.metrics import LATENCY_BOUNDS, Latency

# Writing a sample takes about one microsecond.
SAMPLES_PER_CHUNK = 1000

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_BUCKETS = (*map(str, LATENCY_BOUNDS), "+Inf")


class Sample(NamedTuple):
    """The value of one series. `labels` is the result of `label_text`."""

    labels: str
    value: float


def label_text(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


async def family_text(
    name: str, help_text: str, samples: Iterable[Sample], kind: Literal["gauge", "counter"] = "gauge"
) -> str:
    """Return the text of a family; "" if there are no samples. The name of a counter ends in _total."""
    lines: list[str] = []
    for number, sample in enumerate(samples, start=1):
        lines.append(f"{name}{sample.labels} {float(sample.value)!r}\n")
        if number % SAMPLES_PER_CHUNK == 0:
            await asyncio.sleep(0)
    if not lines:
        return ""
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{''.join(lines)}"


def add_latency(family: HistogramMetricFamily, labels: list[str], latency: Latency) -> None:
    """Add the series of a latency to a histogram."""
    buckets, total = [], 0
    for bound, count in zip(_BUCKETS, latency.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, latency.seconds)
