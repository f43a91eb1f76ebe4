"""Runs a family of works that start their own servers, in order, and collects their samples.

Every work starts its servers with its own settings, each in a new directory that is deleted afterwards. So the failure
of a work does not affect later works. The families are `log/`, `groups/`, `rooms/`, `events/`, `pipeline/`,
`abuse/`, `access/` and `cli/`.
"""

import argparse
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Generic, TypedDict, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True)
class Beside(Generic[T]):
    """The server that kwire is compared with.

    `name` is its name in samples, and `titles` are its long and its short title. `tools` returns the programs that the
    works need. Its first call downloads or builds them. `needed` describes these programs.
    """

    name: str
    titles: tuple[str, str]
    product: Callable[[Mapping[str, object]], Product]
    needed: str
    tools: Callable[[], T]
    facts: Callable[[T], dict[str, object]]


APACHE_KAFKA = Beside(
    name=KAFKA,
    titles=("Apache Kafka", "Kafka"),
    product=ApacheKafka,
    needed="Apache Kafka's jars (the first run fetches them)",
    tools=lambda: Tools(fetch_apache_kafka()),
    facts=lambda tools: machine.kafka_facts(tools.libs),
)


@dataclass(frozen=True, kw_only=True)
class FamilyOptions(ABC):
    """The options that all families have."""

    rounds: int
    works: tuple[str, ...]
    servers: tuple[str, ...]
    json_path: Path
    base_directory: Path | None
    keep: bool

    @property
    @abstractmethod
    def disk_bytes(self) -> int:
        """The disk space of the largest work. Every work deletes its files when it ends."""

    @property
    @abstractmethod
    def estimate_share(self) -> float:
        """The estimated duration of a work of this run, as a share of the duration at the usual size."""


class CommonOptions(TypedDict):
    """The values of the fields of FamilyOptions."""

    rounds: int
    works: tuple[str, ...]
    servers: tuple[str, ...]
    json_path: Path
    base_directory: Path | None
    keep: bool


F = TypeVar("F", bound=FamilyOptions)


@dataclass
class Stage(Generic[F, T]):
    options: F
    beside: Beside[T]
    tools: T
    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def server(
        self, name: str, settings: Mapping[str, object], start_timeout_seconds: float = START_TIMEOUT_SECONDS
    ) -> Iterator[RunningServer]:
        with self.folder(name) as directory:
            product = Kwire if name == KWIRE else self.beside.product
            server = RunningServer(product(settings), directory / "server", start_timeout_seconds)
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
class StagedWork(Generic[F, T]):
    """A work. `run` measures some servers in one round, and yields each sample immediately, so that a later failure
    loses none.

    If `takes_turns` is true, `run` is called once for all servers, otherwise once for each server.
    """

    name: str
    estimate_seconds: float
    run: Callable[[Stage[F, T], int, Sequence[str]], Iterator[Sample]]
    takes_turns: bool = False
    servers: tuple[str, ...] = (KAFKA, KWIRE)


def run_family(
    given: F, all_works: Sequence[StagedWork[F, T]], measures: Sequence[Measure], beside: Beside[T]
) -> list[Sample]:
    """Run the selected works one after another, and publish the table of results."""
    check_kwire(given.servers)
    samples: list[Sample] = []
    with ExitStack() as stack:
        directory = make_directory(given.base_directory, given.disk_bytes, given.keep, stack)
        say(f"looking for {beside.needed}")
        tools = beside.tools()
        facts = machine.facts(directory, beside.facts(tools))
        works = [work for work in all_works if work.name in given.works]
        try:
            _execute(Stage(given, beside, tools, directory), works, samples)
        except KeyboardInterrupt:
            samples.append(Sample("bench", given.rounds, "run", error="interrupted"))
    rows = report.rows(samples, measures, beside=beside.name)
    publish(given.rounds, facts, asdict(given), samples, rows, given.json_path, beside.titles)
    return samples


def _execute(stage: Stage[F, T], works: Sequence[StagedWork[F, T]], samples: list[Sample]) -> None:
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


def _turns(work: StagedWork[F, T], servers: Sequence[str], round_number: int) -> list[list[str]]:
    """Return the server names of each call of `run`. Every round reverses the order of the servers."""
    names = [name for name in servers if name in work.servers]
    if round_number % 2:
        names.reverse()
    return [names] if work.takes_turns else [[name] for name in names]


def _attempt(
    work: StagedWork[F, T], stage: Stage[F, T], round_number: int, names: Sequence[str], samples: list[Sample]
) -> str | None:
    try:
        for sample in work.run(stage, round_number, names):
            samples.append(sample)
    except (ChildFailed, ServerDied, WireError, OSError) as error:
        reason = str(error) or type(error).__name__
        samples.append(Sample(" and ".join(names), round_number, work.name, error=reason))
        return reason
    return None


def add_common_options(
    parser: argparse.ArgumentParser, work_names: Sequence[str], results: Path, beside: str | None = KAFKA
) -> None:
    """Add the options of every family. If `beside` is None, kwire is the only server."""
    parser.add_argument("--quick", action="store_true", help="small counts: does everything work?")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="rounds; the table shows medians (1)")
    parser.add_argument("--only", metavar="WORK,…", help=f"some of: {', '.join(work_names)}")
    if beside is None:
        parser.set_defaults(servers=(KWIRE,))
    else:
        which = parser.add_mutually_exclusive_group()
        both = (beside, KWIRE)
        which.add_argument(f"--{beside}-only", dest="servers", action="store_const", const=(beside,), default=both)
        which.add_argument("--kwire-only", dest="servers", action="store_const", const=(KWIRE,))
    parser.add_argument("--json", type=Path, default=results, metavar="FILE", help=f"raw samples ({results.name})")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the data directories are made (TMPDIR)")
    parser.add_argument("--keep", action="store_true", help="do not delete the data directories and logs")


def parse_common(
    parser: argparse.ArgumentParser, arguments: Sequence[str], work_names: Sequence[str]
) -> tuple[argparse.Namespace, CommonOptions]:
    """Parse the command line of a family. Returns all options as given, and the values of those that all families have.

    The works are in the order of the family.
    """
    given = parser.parse_args(arguments)
    works = given.only.split(",") if given.only else work_names
    if unknown := set(works) - set(work_names):
        parser.error(f"--only knows {', '.join(work_names)}; not {', '.join(sorted(unknown))}")
    return given, CommonOptions(
        rounds=given.rounds,
        works=tuple(work for work in work_names if work in works),
        servers=given.servers,
        json_path=given.json,
        base_directory=given.dir,
        keep=given.keep,
    )
