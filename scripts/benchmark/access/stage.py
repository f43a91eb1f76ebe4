"""Starts the servers of this family, and lets them take turns at works of the main benchmark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmark import family
from benchmark.access.options import CONNECTIONS, GENERATORS, Options
from benchmark.options import WARM_UP_SHARE, Sizes
from benchmark.samples import WARM_UP_ROUND, Sample, measure_work
from benchmark.servers import Product, RunningServer
from benchmark.tools import Tools
from benchmark.works import ROUND_WORKS, Turn

Stage = family.Stage[Options, Tools]
AccessWork = family.StagedWork[Options, Tools]
WORKS = {work.name: work for work in ROUND_WORKS}


@dataclass(frozen=True)
class Contender:
    """A server that takes turns with others, the properties file of its clients, and the works that it does.

    `works` maps names of works of the main benchmark to their names in samples.
    """

    server: RunningServer
    command_config: Path | None
    works: dict[str, str]


@contextmanager
def running(stage: Stage, product: Product) -> Iterator[RunningServer]:
    with stage.folder(product.name) as directory:
        server = RunningServer(product, directory / "server")
        try:
            yield server
        finally:
            server.stop()


def take_turns(stage: Stage, round_number: int, contenders: Sequence[Contender]) -> Iterator[Sample]:
    """Let the servers do their works in turn. Every turn reverses the order. The first is the warm-up."""
    sizes = stage.options.sizes
    for number in range(1 + stage.options.turns):
        order = contenders if number % 2 else contenders[::-1]
        is_warm_up = number == 0
        turns = [
            (one, _turn(stage, one, number, sizes.scaled(WARM_UP_SHARE) if is_warm_up else sizes)) for one in order
        ]
        for work in contenders[0].works:
            for one, turn in turns:
                sample = measure_work(WORKS[work], turn)
                one.server.check_alive()
                yield replace(sample, round=WARM_UP_ROUND if is_warm_up else round_number, work=one.works[work])
        for _, turn in turns:
            turn.clear()


def _turn(stage: Stage, contender: Contender, number: int, sizes: Sizes) -> Turn:
    tools = replace(stage.tools, command_config=contender.command_config)
    return Turn(
        server=contender.server,
        tools=tools,
        sizes=sizes,
        round=number,
        connections=CONNECTIONS,
        generators=GENERATORS,
        cold_gb=0.0,
    )
