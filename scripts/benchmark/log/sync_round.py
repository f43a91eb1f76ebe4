"""Sync rounds: the time to sync 1, 6, 100 and 1,000 partitions, each with one new record of 1 KiB."""

import json
from collections.abc import Iterator, Sequence

from benchmark.histogram import Latencies
from benchmark.log.options import SYNC_ROUND
from benchmark.log.stage import LogWork, Stage
from benchmark.log.sync_program import SyncRounds
from benchmark.processes import own_program
from benchmark.samples import Sample
from benchmark.servers import KWIRE

DIRTY_PARTITIONS = (1, 6, 100, 1000)
GRACE_SECONDS = 300


def name_of(partitions: int) -> str:
    return f"{SYNC_ROUND}, {partitions}"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    """Measure kwire. `names` contains no other server."""
    seconds = stage.options.sizes.sync_seconds
    for partitions in DIRTY_PARTITIONS:
        with (
            stage.folder(f"sync-{partitions}") as directory,
            own_program("log.sync_program", directory=directory, logs=partitions, seconds=seconds) as program,
        ):
            rounds = SyncRounds(**json.loads(program.finish(seconds + GRACE_SECONDS)))
        latencies = Latencies.decode(rounds.latencies).figures()
        figures = {f"{name.removesuffix('_us')}_ms": value / 1000 for name, value in latencies.items()}
        figures |= {"first_ms": rounds.first_ms, "begin_ms": rounds.begin_ms}
        figures |= {"rounds": rounds.rounds, "files": rounds.files}
        yield Sample(names[0], round_number, name_of(partitions), figures, {"round": rounds.latencies})


WORK = LogWork(SYNC_ROUND, 70, run, servers=(KWIRE,))
