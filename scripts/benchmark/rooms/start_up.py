"""Measures the time from the start of a server in an empty directory until it accepts connections."""

from collections.abc import Iterator, Sequence

from benchmark.rooms.options import START_UP
from benchmark.rooms.stage import BOTH, RoomWork, Stage, servers
from benchmark.samples import Sample

STARTS = 5


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    for _ in range(STARTS):
        for name in names:
            with servers(stage, [name]) as (server,):
                figures = {"port_ms": server.start_up.port_seconds * 1000}
            yield Sample(name, round_number, START_UP, figures)


WORK = RoomWork(START_UP, 10, run, takes_turns=True, servers=BOTH)
