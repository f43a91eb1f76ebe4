"""Compaction: the speed of the log cleaner on a log that was never compacted.

The topic is filled while a high `min.compaction.lag.ms` prevents compaction. Then the setting becomes 0, and the time
is measured until the folder no longer changes. For kwire, the same files are also compacted without a server.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmark.admin import Admin
from benchmark.log.compact_program import CompactedAlone
from benchmark.log.keyed_fill import Filled
from benchmark.log.options import COMPACTION
from benchmark.log.segments import SEGMENT, Segments, await_quiet
from benchmark.log.stage import LogWork, Stage
from benchmark.options import GIGABYTE
from benchmark.processes import ChildFailed, own_program
from benchmark.samples import MEGABYTE, Sample, observe
from benchmark.servers import KWIRE, RunningServer
from benchmark.works import KIBIBYTE, Outcome

TOPIC = "compacted"
SETTINGS: dict[str, object] = {"log.cleaner.backoff.ms": 100}
LAG = "min.compaction.lag.ms"
LONG_LAG_MS = 24 * 60 * 60 * 1000
SEGMENT_BYTES_MAX = 64 << 20
SEGMENT_BYTES_MIN = 1 << 20
SEGMENTS = 16
# The folder counts as unchanged after this time, which is longer than the cleaner's backoff and its check of the log.
QUIET_SECONDS = 4.0
TIMEOUT_SECONDS = 900


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    for name in names:
        with stage.server(name, SETTINGS) as server, stage.folder("alone") as alone:
            folder = server.directory / "data" / f"{TOPIC}-0"
            _fill(stage, server)
            os.sync()
            await_quiet(folder, QUIET_SECONDS, TIMEOUT_SECONDS)
            before = Segments.of(folder)
            _link_closed(folder, alone, before)
            sample = observe(server, round_number, COMPACTION, partial(_clean, server, folder, before))
            if name == KWIRE:
                sample.figures["alone_mb_per_s"] = _clean_alone(stage, alone, before)
            yield sample


def _fill(stage: Stage, server: RunningServer) -> None:
    sizes = stage.options.sizes
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": _segment_bytes(stage),
        "min.cleanable.dirty.ratio": 0.01,
        LAG: LONG_LAG_MS,
    }
    with Admin(server.address) as admin:
        admin.make_topic(TOPIC, 1, configs)
    records, port = int(sizes.compact_gb * GIGABYTE / KIBIBYTE), server.address[1]
    filling = own_program("log.keyed_fill", port=port, topic=TOPIC, records=records, keys=sizes.keys)
    with filling as program:
        filled = Filled(**json.loads(program.finish(TIMEOUT_SECONDS)))
    if filled.records < records:
        raise ChildFailed(f"keyed_fill: only {filled.records} of {records} records")


def _segment_bytes(stage: Stage) -> int:
    """Return a segment size that gives about SEGMENTS segments, within the minimum and the maximum."""
    share = int(stage.options.sizes.compact_gb * GIGABYTE) // SEGMENTS
    return max(SEGMENT_BYTES_MIN, min(share, SEGMENT_BYTES_MAX))


def _link_closed(folder: Path, alone: Path, segments: Segments) -> None:
    """Create hard links to the closed segments, before the server replaces them."""
    for base in segments.closed:
        name = f"{base:020d}{SEGMENT}"
        os.link(folder / name, alone / name)


def _clean(server: RunningServer, folder: Path, before: Segments) -> Outcome:
    began = time.perf_counter()
    with Admin(server.address) as admin:
        admin.set_topic_config(TOPIC, LAG, 0)
    seconds = await_quiet(folder, QUIET_SECONDS, TIMEOUT_SECONDS, before) - began
    after = Segments.of(folder)
    figures = {
        "mb_per_s": before.closed_bytes / MEGABYTE / seconds,
        "clean_seconds": seconds,
        "dirty_mb": before.closed_bytes / MEGABYTE,
        "kept_mb": after.closed_bytes / MEGABYTE,
    }
    return Outcome(figures, gigabytes=before.closed_bytes / GIGABYTE)


def _clean_alone(stage: Stage, directory: Path, segments: Segments) -> float:
    options = {"directory": directory, "end_offset": segments.active, "segment_bytes": _segment_bytes(stage)}
    os.sync()
    with own_program("log.compact_program", **options) as program:
        done = CompactedAlone(**json.loads(program.finish(TIMEOUT_SECONDS)))
    return done.dirty_bytes / MEGABYTE / done.seconds


WORK = LogWork(COMPACTION, 120, run)
