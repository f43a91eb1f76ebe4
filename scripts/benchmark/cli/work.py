"""The works: the same file and the same topics for both programs, which take turns at one kwire server."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmark import family
from benchmark.cli import programs
from benchmark.cli.options import CONSUME, KCAT, PRODUCE, START_UP, VALUE_BYTES, Options
from benchmark.samples import WARM_UP_ROUND, Sample
from benchmark.servers import KWIRE, RunningServer

Stage = family.Stage[Options, str]
SETTINGS = {"kwire.log.sync": "os", "num.partitions": 1}
START_UPS_PER_TURN = 5
# The help of kcat ends with exit code 1 in some versions.
HELP_CODES = (0, 1)

Act = Callable[[Stage, RunningServer, Path, str, int], dict[str, float]]


def produce(stage: Stage, server: RunningServer, file: Path, program: str, number: int) -> dict[str, float]:
    topic = f"{program}-{number}"
    done = programs.run(programs.produce_command(program, stage.tools, server.bootstrap, topic, file))
    return _figures(stage, done)


def consume(stage: Stage, server: RunningServer, file: Path, program: str, number: int) -> dict[str, float]:
    """Read the topic that kcat has written, so that both read the same batches."""
    topic = f"{KCAT}-read"
    if number == 0 and program == KCAT:
        programs.run(programs.produce_command(KCAT, stage.tools, server.bootstrap, topic, file))
    return _figures(stage, programs.run(programs.consume_command(program, stage.tools, server.bootstrap, topic)))


def start_up(stage: Stage, server: RunningServer, file: Path, program: str, number: int) -> dict[str, float]:
    helps = [
        programs.run(programs.help_command(program, stage.tools), codes=HELP_CODES) for _ in range(START_UPS_PER_TURN)
    ]
    lists = [
        programs.run(programs.list_command(program, stage.tools, server.bootstrap)) for _ in range(START_UPS_PER_TURN)
    ]
    return {
        "help_ms": min(one.seconds for one in helps) * 1000,
        "list_ms": min(one.seconds for one in lists) * 1000,
    }


def in_turns(name: str, act: Act) -> Callable[[Stage, int, Sequence[str]], Iterator[Sample]]:
    def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
        """Let the programs take turns. Every turn reverses the order. The first is the warm-up."""
        with stage.server(KWIRE, SETTINGS) as server:
            file = _file(server.directory, stage.options.records)
            for number in range(1 + stage.options.turns):
                for program in programs.PROGRAMS if number % 2 == 0 else programs.PROGRAMS[::-1]:
                    figures = act(stage, server, file, program, number)
                    server.check_alive()
                    yield Sample(program, WARM_UP_ROUND if number == 0 else round_number, name, figures)

    return run


WORKS = tuple(
    family.StagedWork[Options, str](name, estimate, in_turns(name, act), takes_turns=True, servers=programs.PROGRAMS)
    for name, estimate, act in ((PRODUCE, 25, produce), (CONSUME, 25, consume), (START_UP, 10, start_up))
)


def _file(directory: Path, records: int) -> Path:
    """Write a file with lines of VALUE_BYTES. They differ, and their order can be checked."""
    path = directory / "lines.txt"
    rng = random.Random(1)
    text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10_000))
    with path.open("w") as file:
        for number in range(records):
            start = rng.randrange(len(text) - VALUE_BYTES)
            file.write(f"{number:010d}{text[start : start + VALUE_BYTES - 10]}\n")
    return path


def _figures(stage: Stage, done: programs.Run) -> dict[str, float]:
    return {
        "records_per_s": stage.options.records / done.seconds,
        "seconds": done.seconds,
        "client_cpu_s": done.cpu_seconds,
    }
