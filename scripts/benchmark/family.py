"""A family of works that start servers of their own: where each is played, in which order, and what came of it.

Every work gets the servers it needs with the settings it needs, each in a directory that goes with it, so the failure
of one says nothing about the next. `log/` and `groups/` are such families.
"""

import argparse
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Generic, TypeVar

from benchmark import machine, report
from benchmark.house import check_kwire, make_directory, publish, say
from benchmark.measures import Measure
from benchmark.processes import ChildFailed
from benchmark.progress import Progress
from benchmark.samples import Sample
from benchmark.servers import (
    KAFKA,
    KWIRE,
    START_TIMEOUT_SECONDS,
    ApacheKafka,
    Kwire,
    Product,
    RunningServer,
    ServerDied,
    fetch_apache_kafka,
)
from benchmark.tools import Tools
from benchmark.wire import WireError

PRODUCTS: dict[str, Callable[[Mapping[str, object]], Product]] = {KAFKA: ApacheKafka, KWIRE: Kwire}


@dataclass(frozen=True, kw_only=True)
class FamilyOptions(ABC):
    """What a run of any family is asked to do."""

    rounds: int
    works: tuple[str, ...]
    servers: tuple[str, ...]
    json_path: Path
    base_directory: Path | None
    keep: bool

    @property
    @abstractmethod
    def disk_bytes(self) -> int:
        """What the largest work needs: each one cleans up behind itself."""

    @property
    @abstractmethod
    def estimate_share(self) -> float:
        """How long a work of this run takes, beside one of the usual size."""


F = TypeVar("F", bound=FamilyOptions)


@dataclass
class Stage(Generic[F]):
    options: F
    tools: Tools
    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def server(
        self, name: str, settings: Mapping[str, object], start_timeout_seconds: float = START_TIMEOUT_SECONDS
    ) -> Iterator[RunningServer]:
        with self.folder(name) as directory:
            server = RunningServer(PRODUCTS[name](settings), directory / "server", start_timeout_seconds)
            try:
                yield server
            finally:
                server.stop()

    @contextmanager
    def folder(self, label: str) -> Iterator[Path]:
        directory = self.directory / f"{label}-{next(self._numbers)}"
        directory.mkdir()
        try:
            yield directory
        finally:
            if not self.options.keep:
                shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class StagedWork(Generic[F]):
    """`run`, for some servers in one round, gives each sample as soon as it is there: a failure takes none with it.

    Where the servers take turns it is called once for all of them, otherwise once for each.
    """

    name: str
    estimate_seconds: float
    run: Callable[[Stage[F], int, Sequence[str]], Iterator[Sample]]
    takes_turns: bool = False
    servers: tuple[str, ...] = (KAFKA, KWIRE)


def run_family(given: F, all_works: Sequence[StagedWork[F]], measures: Sequence[Measure]) -> list[Sample]:
    """The works one after another, and the table of what they found."""
    check_kwire(given.servers)
    samples: list[Sample] = []
    with ExitStack() as stack:
        directory = make_directory(given.base_directory, given.disk_bytes, given.keep, stack)
        say("looking for Apache Kafka's jars (the first run fetches them)")
        tools = Tools(fetch_apache_kafka())
        facts = machine.facts(tools.libs, directory)
        works = [work for work in all_works if work.name in given.works]
        try:
            _execute(Stage(given, tools, directory), works, samples)
        except KeyboardInterrupt:
            samples.append(Sample("bench", given.rounds, "run", error="interrupted"))
    publish(given.rounds, facts, asdict(given), samples, report.rows(samples, measures), given.json_path)
    return samples


def _execute(stage: Stage[F], works: Sequence[StagedWork[F]], samples: list[Sample]) -> None:
    given = stage.options
    share = given.estimate_share
    steps = [
        (work, number, names)
        for number in range(1, given.rounds + 1)
        for work in works
        for names in _turns(work, given.servers, number)
    ]
    progress = Progress(len(steps), sum(work.estimate_seconds for work in works) * given.rounds * share)
    with closing(progress):
        for work, number, names in steps:
            title = f"{work.name} · {' and '.join(names)} · round {number}/{given.rounds}"
            part = len(names) / len(set(given.servers) & set(work.servers))
            with progress.step(title, work.estimate_seconds * share * part):
                error = _attempt(work, stage, number, names, samples)
            if error:
                progress.note(f"{title} failed: {error}")


def _turns(work: StagedWork[F], servers: Sequence[str], round_number: int) -> list[list[str]]:
    """Who goes first changes with the round."""
    names = [name for name in servers if name in work.servers]
    if round_number % 2:
        names.reverse()
    return [names] if work.takes_turns else [[name] for name in names]


def _attempt(
    work: StagedWork[F], stage: Stage[F], round_number: int, names: Sequence[str], samples: list[Sample]
) -> str | None:
    try:
        for sample in work.run(stage, round_number, names):
            samples.append(sample)
    except (ChildFailed, ServerDied, WireError, OSError) as error:
        reason = str(error) or type(error).__name__
        samples.append(Sample(" and ".join(names), round_number, work.name, error=reason))
        return reason
    return None


def add_common_options(parser: argparse.ArgumentParser, work_names: Sequence[str], results: Path) -> None:
    """What every family is told: how much, which works, which servers, and where things go."""
    parser.add_argument("--quick", action="store_true", help="small counts: does everything work?")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="of everything; the table shows medians (1)")
    parser.add_argument("--only", metavar="WORK,…", help=f"some of: {', '.join(work_names)}")
    which = parser.add_mutually_exclusive_group()
    both = (KAFKA, KWIRE)
    which.add_argument("--kafka-only", dest="servers", action="store_const", const=(KAFKA,), default=both)
    which.add_argument("--kwire-only", dest="servers", action="store_const", const=(KWIRE,))
    parser.add_argument("--json", type=Path, default=results, metavar="FILE", help=f"raw samples ({results.name})")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the data directories are made (TMPDIR)")
    parser.add_argument("--keep", action="store_true", help="leave the data directories and logs behind")
