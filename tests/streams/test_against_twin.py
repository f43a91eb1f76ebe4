"""A log of this process, or a remote one, beside its twin in memory: after the same random steps both show the same."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.errors import OffsetOutOfRange
from kwire.streams.log import StreamLog
from tests.support.effort import examples
from tests.support.remote_worlds import RemoteKwireWorld
from tests.support.stream_worlds import NOW_MS, Appends, LocalWorld, MemoryWorld, StreamWorld, read_values

VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=6)
PRODUCERS = st.integers(1, 3)
# Milliseconds after NOW_MS; times need not rise.
TIMES = st.integers(0, 20)
STEPS = st.one_of(
    st.tuples(st.just("append"), VALUES, TIMES),
    st.tuples(st.just("send"), PRODUCERS, VALUES, TIMES),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
)
Step = tuple[object, ...]
NAMES = (f"t{number}" for number in count())


class _Side:
    """One of the two, and what has become of its appends."""

    def __init__(self, world: StreamWorld, log: StreamLog) -> None:
        self.world = world
        self.log = log
        self.appends = Appends()
        self.rises = 0
        # Producers whose transaction is open: a marker without one is the coordinator's affair, not the log's.
        self._open: set[int] = set()
        self._seen_end = 0
        log.watch(self._rose)

    def _rose(self, log: StreamLog) -> None:
        if log.committed_end > self._seen_end:
            self._seen_end = log.committed_end
            self.rises += 1

    async def do(self, step: Step) -> None:
        match step:
            case ("append", list() as values, int() as at):
                self.appends.send(self.log, *values, at_ms=NOW_MS + at)
            case ("send", int() as producer, list() as values, int() as at):
                self._open.add(producer)
                await self.world.send(self.log, producer, *values, at_ms=NOW_MS + at)
            case ("end", int() as producer, bool() as is_commit) if producer in self._open:
                self._open.discard(producer)
                await self.world.end(self.log, producer, is_commit=is_commit)
            case ("delete", int() as offset):
                bounds = self.log.bounds()
                await self.world.delete_before(self.log, max(bounds.start, min(offset, bounds.committed_end)))
            case ("hold",):
                self.world.hold()
            case ("release",):
                self.world.release()
        await self.world.settle()

    async def shown(self, offset: int, max_bytes: int, at: int) -> tuple[object, ...]:
        try:
            values: object = await read_values(self.log, offset, max_bytes)
        except OffsetOutOfRange as error:
            values = error.oldest
        bounds = self.log.bounds()
        assert bounds.committed_end == self.log.committed_end
        assert bounds.start == self.log.start_offset
        return (
            bounds[:2],
            values,
            await read_values(self.log, bounds.start),
            await self.log.offset_for_time(NOW_MS + at),
            list(self.appends),
        )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


async def _compare(side: _Side, twin: _Side, steps: Sequence[Step], offset: int, max_bytes: int, at: int) -> None:
    for number, step in enumerate([*steps, ("release",)]):
        await side.do(step)
        await twin.do(step)
        if number % 4 == 0 or number == len(steps):
            assert await side.shown(offset, max_bytes, at) == await twin.shown(offset, max_bytes, at), step
            if side.world.sees_uncommitted:
                assert (side.log.bounds(), side.rises) == (twin.log.bounds(), twin.rises), step


CASES = {
    "steps": st.lists(STEPS, max_size=25),
    "offset": st.integers(0, 40),
    "max_bytes": st.sampled_from([1, 150, 400, 10_000]),
    "at": st.integers(0, 21),
}


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**CASES)
def test_both_show_the_same(directory: Path, steps: list[Step], offset: int, max_bytes: int, at: int) -> None:
    _run(LocalWorld, directory, steps, offset, max_bytes, at)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**CASES)
def test_a_remote_log_shows_the_same(directory: Path, steps: list[Step], offset: int, max_bytes: int, at: int) -> None:
    _run(RemoteKwireWorld, directory, steps, offset, max_bytes, at)


def _run(
    make: Callable[[Path], StreamWorld],
    directory: Path,
    steps: list[Step],
    offset: int,
    max_bytes: int,
    at: int,
) -> None:
    own = directory / next(NAMES)
    own.mkdir()

    async def run() -> None:
        worlds = make(own), MemoryWorld(directory)
        for world in worlds:
            await world.start()
        try:
            side, twin = [_Side(world, await world.create()) for world in worlds]
            await side.world.settle()
            await _compare(side, twin, steps, offset, max_bytes, at)
        finally:
            for world in worlds:
                await world.stop()

    asyncio.run(run())
