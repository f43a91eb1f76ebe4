"""Latencies in microseconds, in an HdrHistogram: three significant digits from 1 us to 2 minutes."""

from collections import Counter
from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

LOWEST_US = 1
HIGHEST_US = 120_000_000
SIGNIFICANT_DIGITS = 3
PERCENTILES = {"p50_us": 50.0, "p99_us": 99.0, "p999_us": 99.9}


class Latencies:
    def __init__(self) -> None:
        self._histogram = HdrHistogram(LOWEST_US, HIGHEST_US, SIGNIFICANT_DIGITS)

    @classmethod
    def of(cls, samples_ns: Iterable[int]) -> "Latencies":
        """Return the histogram of the samples. This is slow, so a measuring loop calls it only at its end."""
        latencies = cls()
        for value_us, count in Counter(sample // 1000 for sample in samples_ns).items():
            latencies._histogram.record_value(max(LOWEST_US, min(value_us, HIGHEST_US)), count)
        return latencies

    @classmethod
    def decode(cls, encoded: str) -> "Latencies":
        latencies = cls()
        latencies._histogram.decode_and_add(encoded.encode())
        return latencies

    def encode(self) -> str:
        """Return the portable HdrHistogram V2 text, which other tools can plot and merge."""
        encoded: bytes = self._histogram.encode()
        return encoded.decode()

    def add(self, other: "Latencies") -> None:
        self._histogram.add(other._histogram)

    def figures(self) -> dict[str, float]:
        if not self._histogram.get_total_count():
            return {}
        figures = {name: float(self._histogram.get_value_at_percentile(at)) for name, at in PERCENTILES.items()}
        figures["avg_us"] = float(self._histogram.get_mean_value())
        figures["max_us"] = float(self._histogram.get_max_value())
        return figures
