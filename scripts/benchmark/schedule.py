"""The order of the steps of a run. Both servers keep running. At every work they take turns, in alternating order.

The first round is a warm-up with smaller works, because Java compiles hot code only after it has run for some time. The
cold read is last, because it removes pages from the page cache that the rounds need.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark import options as names
from benchmark.options import WARM_UP_SHARE, Options
from benchmark.processes import ChildFailed
from benchmark.progress import Progress
from benchmark.samples import (
    MEMORY,
    WARM_UP_ROUND,
    Sample,
    measure_memory,
    measure_start_up,
    measure_work,
)
from benchmark.servers import RunningServer
from benchmark.tools import Tools
from benchmark.works import COLD_WORK, ROUND_WORKS, Turn, Work

START_UP_ESTIMATE_SECONDS = 8.0
CLEAR_ESTIMATE_SECONDS = 3.0
QUICK_SHARE = 0.2  # With --quick, a work mostly consists of the start of its tool.
COLD_FULL_GB = 5.0


@dataclass(frozen=True)
class Step:
    """A step that returns a sample, or (if `work` is None) a clean-up without a result."""

    server: RunningServer
    round: int
    work: str | None
    estimate_seconds: float
    action: Callable[[], Sample | None]

    @property
    def title(self) -> str:
        return f"{self.work or 'clearing up'} · {self.server.product.title}"


@dataclass(frozen=True)
class Schedule:
    options: Options
    servers: Sequence[RunningServer]
    idle_mb: dict[str, float]
    tools: Tools
    directory: Path

    def steps(self) -> list[Step]:
        return [*self._rounds(), *self._memory(), *self._cold()]

    def _rounds(self) -> Iterator[Step]:
        works = [work for work in ROUND_WORKS if work.name in self.options.works]
        for round_number in range(WARM_UP_ROUND, self.options.rounds + 1):
            turns = [self._turn(server, round_number) for server in self.servers]
            if round_number % 2:
                turns.reverse()
            yield from self._load(works, turns)
            if round_number != WARM_UP_ROUND and names.START_UP in self.options.works:
                yield from (self._start_up(turn) for turn in turns)

    def _load(self, works: Sequence[Work], turns: Sequence[Turn]) -> Iterator[Step]:
        for work in works:
            yield from (self._work(work, turn, self._share(turn)) for turn in turns)
        if works:
            yield from (self._clear(turn) for turn in turns)

    def _cold(self) -> Iterator[Step]:
        if self.options.cold_gb:
            share = self.options.cold_gb / COLD_FULL_GB
            turns = [self._turn(server, self.options.rounds) for server in self.servers]
            yield from (self._work(COLD_WORK, turn, share) for turn in turns)

    def _memory(self) -> Iterator[Step]:
        """Measure memory after the last round, and before the cold read, which is not part of the load."""
        for server in self.servers:
            idle_mb, last = self.idle_mb[server.product.name], self.options.rounds
            yield Step(server, last, MEMORY, 0.0, partial(measure_memory, server, idle_mb, last))

    def _work(self, work: Work, turn: Turn, share: float) -> Step:
        return Step(
            turn.server, turn.round, work.name, work.estimate_seconds * share, partial(measure_work, work, turn)
        )

    def _clear(self, turn: Turn) -> Step:
        return Step(turn.server, turn.round, None, CLEAR_ESTIMATE_SECONDS, turn.clear)

    def _start_up(self, turn: Turn) -> Step:
        product = turn.server.product
        directory = self.directory / f"start-up-{turn.round}" / product.name
        action = partial(measure_start_up, product, directory, turn.round)
        return Step(turn.server, turn.round, names.START_UP, START_UP_ESTIMATE_SECONDS, action)

    def _turn(self, server: RunningServer, round_number: int) -> Turn:
        sizes = self.options.sizes
        return Turn(
            server=server,
            tools=self.tools,
            sizes=sizes.scaled(WARM_UP_SHARE) if round_number == WARM_UP_ROUND else sizes,
            round=round_number,
            connections=self.options.connections,
            generators=self.options.generators,
            cold_gb=self.options.cold_gb,
        )

    def _share(self, turn: Turn) -> float:
        share = QUICK_SHARE if self.options.sizes == names.QUICK else 1.0
        return share * (WARM_UP_SHARE if turn.round == WARM_UP_ROUND else 1.0)


def execute(steps: Sequence[Step], rounds: int, samples: list[Sample]) -> None:
    """Run the steps in order, and append each sample to `samples`, so that an interrupted run keeps its samples."""
    progress = Progress(len(steps), sum(step.estimate_seconds for step in steps))
    with closing(progress):
        for step in steps:
            where = "warm-up" if step.round == WARM_UP_ROUND else f"round {step.round}/{rounds}"
            with progress.step(f"{step.title} · {where}", step.estimate_seconds):
                sample = _attempt(step)
            step.server.check_alive()
            if sample is not None:
                samples.append(sample)
                if sample.error:
                    progress.note(f"{step.title} failed: {sample.error}")


def _attempt(step: Step) -> Sample | None:
    try:
        return step.action()
    except ChildFailed as error:
        return Sample(step.server.product.name, step.round, step.work or "clear", error=str(error))
