"""Upkeep: how segment rolls, retention and compaction of other topics affect the latency of small requests.

Two probers, one for each promise, send a record every few milliseconds, in three phases. First the server is idle. Then
two producers send at a fixed rate to topics without maintenance. Last, the producers' topics have small segments, and
retention and compaction run all the time. A run in which nothing was deleted or compacted fails.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmark.admin import EARLIEST, Admin
from benchmark.log.keyed_fill import Filled
from benchmark.log.options import UPKEEP, Sizes
from benchmark.log.promises import PROMISES
from benchmark.log.segments import Segments
from benchmark.log.stage import LogWork, Stage
from benchmark.prober import Probes
from benchmark.processes import Child, ChildFailed, own_program
from benchmark.samples import MEGABYTE, Sample, observe
from benchmark.servers import KAFKA, RunningServer
from benchmark.works import GRACE_SECONDS, KIBIBYTE, SMALL, Outcome, probe_figures

SEGMENT_BYTES = 1 << 20
RETAINED_BYTES = 4 << 20
KEYS = 10_000
PROBE_GAP_MS = 5
WARM_UP_SECONDS = 2.0
UNDER_WAY_SECONDS = 5.0  # After this time there is something to delete and to compact.

SETTINGS: dict[str, object] = {
    "log.retention.check.interval.ms": 1000,
    "log.cleaner.backoff.ms": 100,
    "log.segment.delete.delay.ms": 1000,
}
KAFKA_SETTINGS: dict[str, object] = {"log.initial.task.delay.ms": 1000}  # The default is 30 s.
RETAINED: dict[str, object] = {
    "segment.bytes": SEGMENT_BYTES,
    "retention.bytes": RETAINED_BYTES,
    "cleanup.policy": "delete",
}
COMPACTED: dict[str, object] = {
    "segment.bytes": SEGMENT_BYTES,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
}
PLAIN: dict[str, object] = {}


@dataclass(frozen=True)
class Phase:
    """A phase. During it, producers send to `topics`, which have these settings."""

    name: str
    topics: Mapping[str, Mapping[str, object]]


IDLE = Phase("idle", {})
BESIDE_LOAD = Phase("beside load", {"plain-1": PLAIN, "plain-2": PLAIN})
BUSY = Phase("busy", {"retained": RETAINED, "compacted": COMPACTED})
PHASES = (IDLE, BESIDE_LOAD, BUSY)


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    for name in names:
        settings = SETTINGS | (KAFKA_SETTINGS if name == KAFKA else {})
        with stage.server(name, settings) as server:
            yield _measure(server, stage.options.sizes, round_number)


def _measure(server: RunningServer, sizes: Sizes, round_number: int) -> Sample:
    _make_topics(server)
    with ExitStack() as stack:
        _probe(server, WARM_UP_SECONDS, stack)
    figures: dict[str, float] = {}
    histograms: dict[str, str] = {}
    for phase in PHASES:
        found, sample = _play(server, phase, sizes, round_number)
        figures |= {f"{phase.name} {name}": value for name, value in sample.figures.items()} | found
        histograms |= {f"{phase.name} {name}": value for name, value in sample.histograms.items()}
    for promise in PROMISES:
        for figure in ("ack_p50_us", "ack_p99_us"):
            busy, *others = (figures[f"{one.name} {promise.name} {figure}"] for one in (BUSY, IDLE, BESIDE_LOAD))
            for other, value in zip((IDLE, BESIDE_LOAD), others, strict=True):
                figures[f"{promise.name} {figure} of {other.name}"] = busy / value
    return Sample(server.product.name, round_number, UPKEEP, figures, histograms)


def _make_topics(server: RunningServer) -> None:
    with Admin(server.address) as admin:
        for phase in PHASES:
            for topic, configs in phase.topics.items():
                admin.make_topic(topic, 1, configs)
        for promise in PROMISES:
            admin.make_topic(_probed(promise.name), 1, promise.configs[server.product.name])


def _probed(promise_name: str) -> str:
    return f"probed-{promise_name}"


def _play(server: RunningServer, phase: Phase, sizes: Sizes, round_number: int) -> tuple[dict[str, float], Sample]:
    """Run a phase. Return the figures of deletion and compaction, and the sample of the probers and the server."""
    with ExitStack() as stack:
        fillers = {topic: stack.enter_context(_filler(server, topic, sizes.upkeep_mb)) for topic in phase.topics}
        if fillers:
            time.sleep(UNDER_WAY_SECONDS)
        sample = observe(server, round_number, UPKEEP, lambda: _probe(server, sizes.upkeep_seconds, stack))
        filled = {topic: Filled(**json.loads(filler.finish(GRACE_SECONDS))) for topic, filler in fillers.items()}
    return (_check_upkeep(server, filled) if phase is BUSY else {}), sample


def _filler(server: RunningServer, topic: str, mb_per_second: float) -> Child:
    return own_program(
        "log.keyed_fill",
        port=server.address[1],
        topic=topic,
        keys=KEYS,
        record_size=KIBIBYTE,
        bytes_per_second=int(mb_per_second * MEGABYTE),
        stop_with_stdin=True,
    )


def _probe(server: RunningServer, seconds: float, stack: ExitStack) -> Outcome:
    probers = {
        promise.name: stack.enter_context(
            own_program(
                "prober",
                port=server.address[1],
                topic=_probed(promise.name),
                gap_ms=PROBE_GAP_MS,
                value_size=SMALL,
                stop_with_stdin=True,
            )
        )
        for promise in PROMISES
    }
    time.sleep(seconds)
    outcome = Outcome({})
    for name, prober in probers.items():
        probes = Probes(**json.loads(prober.finish(GRACE_SECONDS)))
        outcome.figures |= {f"{name} {figure}": value for figure, value in probe_figures(probes).items()}
        outcome.histograms |= {f"{name} acknowledged": probes.acknowledged, f"{name} end_to_end": probes.end_to_end}
        outcome.requests += probes.records
    return outcome


def _check_upkeep(server: RunningServer, filled: Mapping[str, Filled]) -> dict[str, float]:
    with Admin(server.address) as admin:
        (deleted_records,) = admin.offsets("retained", 1, EARLIEST)
    left = Segments.of(server.directory / "data" / "compacted-0")
    compacted_bytes = filled["compacted"].size_bytes - sum(size for size, _ in left.files.values())
    if deleted_records <= 0 or compacted_bytes <= 0:
        raise ChildFailed(f"{server.product.title}: nothing was deleted or nothing compacted, so nothing was measured")
    return {
        "filled_mb": sum(one.size_bytes for one in filled.values()) / MEGABYTE,
        "deleted_mb": deleted_records * KIBIBYTE / MEGABYTE,
        "compacted_away_mb": compacted_bytes / MEGABYTE,
    }


WORK = LogWork(UPKEEP, 180, run)
