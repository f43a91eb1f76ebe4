"""Samples: the figures of a work, together with the CPU time, memory and stalls of the server."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmark import options, procfs
from benchmark.servers import Product, RunningServer
from benchmark.stalls import LoopHealth, loop_health
from benchmark.works import Outcome, Turn, Work

MEMORY = "memory"
MEGABYTE = 1_000_000
WARM_UP_ROUND = 0


@dataclass
class Sample:
    server: str
    round: int
    work: str
    figures: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Reading:
    """The CPU time and the loop figures of a server at one time."""

    at: float
    cpu_seconds: float
    loop: LoopHealth

    @classmethod
    def take(cls, server: RunningServer) -> "Reading":
        return cls(time.perf_counter(), procfs.cpu_seconds(server.pid), loop_health(server))


def measure_work(work: Work, turn: Turn) -> Sample:
    work.prepare(turn)
    return observe(turn.server, turn.round, work.name, lambda: work.run(turn))


def observe(server: RunningServer, round_number: int, work: str, run: Callable[[], Outcome]) -> Sample:
    """Run a work, and return its figures with those of the server."""
    os.sync()  # So that this work does not have to write back dirty pages of the previous work.
    before = Reading.take(server)
    outcome = run()
    after = Reading.take(server)
    cpu_seconds = after.cpu_seconds - before.cpu_seconds
    figures = outcome.figures | after.loop.figures_since(before.loop)
    figures["seconds"] = after.at - before.at
    figures["cpu_s"] = cpu_seconds
    figures["memory_mb"] = anonymous_mb(server)
    if outcome.gigabytes:
        figures["cpu_s_per_gb"] = cpu_seconds / outcome.gigabytes
    if outcome.requests:
        figures["cpu_us_per_request"] = cpu_seconds / outcome.requests * 1e6
    return Sample(server.product.name, round_number, work, figures, outcome.histograms)


def measure_start_up(product: Product, directory: Path, round_number: int) -> Sample:
    """Measure the start of a second server of this product in an empty directory. The server is stopped immediately."""
    server = RunningServer(product, directory)
    server.stop()
    figures = {"port_ms": server.start_up.port_seconds * 1000}
    if server.start_up.ready_seconds is not None:
        figures["ready_ms"] = server.start_up.ready_seconds * 1000
    return Sample(product.name, round_number, options.START_UP, figures)


def measure_memory(server: RunningServer, idle_mb: float, round_number: int) -> Sample:
    figures = {"idle_mb": idle_mb, "after_mb": anonymous_mb(server)}
    return Sample(server.product.name, round_number, MEMORY, figures)


def anonymous_mb(server: RunningServer) -> float:
    return procfs.anonymous_bytes(server.pid) / MEGABYTE
