"""The rows of the table. A row has a work, one of its figures, a unit, and the target (bar) for kwire."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmark import options
from benchmark.samples import MEMORY
from benchmark.servers import KWIRE


@dataclass(frozen=True)
class Bar:
    """A limit for kwire's figure divided by Kafka's, or for kwire's figure itself."""

    limit: float
    at_least: bool = False
    absolute: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}" + ("" if self.absolute else "x")


@dataclass(frozen=True)
class Measure:
    title: str
    unit: str
    work: str
    figure: str
    bar: Bar | None = None
    is_compared: bool = True
    # If set, the figure of the other server is from this work instead of `work`.
    beside_work: str | None = None
    # If set, the other server of this row. Otherwise all rows have the same other server.
    beside: str | None = None

    def work_of(self, server: str) -> str:
        return self.beside_work if self.beside_work and server != KWIRE else self.work


def without_relative_bars(measures: Sequence[Measure]) -> list[Measure]:
    """Return the measures for a comparison with another server than Apache Kafka: bars that are ratios do not apply."""
    return [replace(one, bar=one.bar if one.bar and one.bar.absolute else None) for one in measures]


CPU = Bar(0.6)
LATENCY = Bar(0.8)
STALL_MS = Bar(50, absolute=True)
NO_STALLS = Bar(0, absolute=True)

# Works of a fixed size: both servers do the same amount of work, however long it takes.
FIXED_WORKS = (options.PRODUCE, options.CONSUME, options.PRODUCE_SMALL, options.END_TO_END)

MEASURES = (
    Measure("produce 1 KiB, acks=all, 6 partitions", "MB/s", options.PRODUCE, "mb_per_s", Bar(1.0, at_least=True)),
    Measure("- latency p99", "ms", options.PRODUCE, "p99_ms"),
    Measure("- server CPU", "s/GB", options.PRODUCE, "cpu_s_per_gb", CPU),
    Measure("consume", "MB/s", options.CONSUME, "mb_per_s", Bar(1.0, at_least=True)),
    Measure("- without the group's join", "MB/s", options.CONSUME, "fetch_mb_per_s"),
    Measure("- server CPU", "s/GB", options.CONSUME, "cpu_s_per_gb", CPU),
    Measure(
        "produce 100 B, client defaults", "records/s", options.PRODUCE_SMALL, "records_per_s", Bar(1.1, at_least=True)
    ),
    Measure("- latency p99", "ms", options.PRODUCE_SMALL, "p99_ms"),
    Measure("- server CPU", "s/GB", options.PRODUCE_SMALL, "cpu_s_per_gb", CPU),
    Measure("end to end, Kafka's tool, average", "ms", options.END_TO_END, "avg_ms", LATENCY),
    Measure("- p99", "ms", options.END_TO_END, "p99_ms"),
    Measure("- server CPU", "us/record", options.END_TO_END, "cpu_us_per_request", CPU),
    Measure("small requests", "requests/s", options.SMALL_REQUESTS, "requests_per_s", Bar(1.5, at_least=True)),
    Measure("- p50", "us", options.SMALL_REQUESTS, "p50_us"),
    Measure("- p99", "us", options.SMALL_REQUESTS, "p99_us"),
    Measure("- p99.9", "us", options.SMALL_REQUESTS, "p999_us"),
    Measure("- server CPU", "us/request", options.SMALL_REQUESTS, "cpu_us_per_request", CPU),
    Measure("end to end, raw sockets, average", "us", options.LATENCY, "avg_us", LATENCY),
    Measure("- p50", "us", options.LATENCY, "p50_us"),
    Measure("- p99", "us", options.LATENCY, "p99_us"),
    Measure("- p99.9", "us", options.LATENCY, "p999_us"),
    Measure("- server CPU", "us/record", options.LATENCY, "cpu_us_per_request", CPU),
    Measure("start-up to open port", "ms", options.START_UP, "port_ms", Bar(0.2)),
    Measure("- to the ready line", "ms", options.START_UP, "ready_ms"),
    Measure("anonymous memory, idle", "MB", MEMORY, "idle_mb"),
    Measure("- after the load", "MB", MEMORY, "after_mb", Bar(0.2)),
    Measure("cold read, one consumer", "MB/s", options.COLD_READ, "mb_per_s"),
    Measure("- in page cache before", "share", options.COLD_READ, "resident_share_before", is_compared=False),
    Measure("- others' end to end p99", "us", options.COLD_READ, "probe_p99_us"),
    Measure("- others' end to end max", "us", options.COLD_READ, "probe_max_us"),
    Measure("- server CPU", "s/GB", options.COLD_READ, "cpu_s_per_gb"),
    Measure("- stalls over 50 ms meanwhile", "", options.COLD_READ, "stalls", NO_STALLS),
)
ANY_WORK = "any"
STALL_MEASURES = (
    Measure("longest event-loop stall", "ms", ANY_WORK, "stall_ms_max", STALL_MS),
    Measure("- longest wait for a CPU", "ms", ANY_WORK, "queue_wait_ms_max"),
    Measure("- stalls over 50 ms", "", ANY_WORK, "stalls", NO_STALLS),
)
