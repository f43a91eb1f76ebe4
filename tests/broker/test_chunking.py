"""Cooperative chunking: one chunk runs per loop iteration, and no element is lost."""

import asyncio
import inspect
import os
from collections.abc import Generator

import pytest

from kwire.concurrency import chunking
from kwire.concurrency.chunking import (
    ELEMENTS_PER_CHUNK,
    OFFER_PAUSE,
    eager,
    run_chunks,
    schedule_chunk,
    spread,
    spread_nested,
    yield_processor_while,
    yield_to_loop,
)
from tests.support.node import in_loop, in_uvloop


class Iterations:
    """Counts the iterations of the loop while it is used."""

    def __init__(self) -> None:
        self.count = 0
        self._is_over = False

    def __enter__(self) -> "Iterations":
        self._next()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True

    def _next(self) -> None:
        self.count += 1
        if not self._is_over:
            asyncio.get_running_loop().call_soon(self._next)


@in_uvloop
async def test_chunks_of_many_computations_run_one_in_each_iteration() -> None:
    ran: list[tuple[int, int]] = []

    def steps(name: int) -> Generator[None, None, int]:
        for _ in range(5):
            ran.append((iterations.count, name))
            yield
        return name

    with Iterations() as iterations:
        results = await asyncio.gather(*(run_chunks(steps(name)) for name in range(10)))
    assert results == list(range(10))
    assert len({iteration for iteration, _ in ran}) == len(ran) == 50
    # And each gets its turn before any gets another.
    assert [name for _, name in ran] == list(range(10)) * 5


@in_loop
async def test_callback_that_fails_does_not_stop_those_after_it() -> None:
    done = asyncio.get_running_loop().create_future()
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: problems.append(about["exception"]))

    def fail() -> None:
        raise RuntimeError("planted")

    schedule_chunk(fail)
    schedule_chunk(lambda: done.set_result(None))
    await asyncio.wait_for(done, 10)
    assert [str(one) for one in problems] == ["planted"]


@in_loop
async def test_computation_that_is_cancelled_does_not_hold_the_others_up() -> None:
    waiting = [asyncio.ensure_future(yield_to_loop()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait_for(asyncio.gather(*waiting[1:]), 10)


@in_loop
async def test_spread_waits_after_each_portion() -> None:
    with Iterations() as iterations:
        assert [one async for one in spread(range(10), 3)] == list(range(10))
    assert iterations.count > 3
    with Iterations() as iterations:
        assert [one async for one in spread(range(10), 3, weigh=lambda _: 3)] == list(range(10))
    assert iterations.count > 9


@in_loop
async def test_parents_without_children_count() -> None:
    parents: list[list[int]] = [[]] * (3 * ELEMENTS_PER_CHUNK) + [[1, 2]]
    with Iterations() as iterations:
        found = [child async for _, child in spread_nested(parents, lambda parent: parent)]
    assert found == [1, 2]
    assert iterations.count > 3


@in_loop
async def test_coroutine_that_need_not_wait_is_answered_at_once() -> None:
    async def answer() -> int:
        return sum([one async for one in spread(range(10))])

    assert eager(answer()) == 45


@in_loop
async def test_coroutine_that_waits_goes_on_where_it_stopped() -> None:
    async def answer() -> list[int]:
        first = [one async for one in spread(range(10), 3)]
        await asyncio.sleep(0.001)
        return first

    waiting = eager(answer())
    assert inspect.isawaitable(waiting)
    assert await asyncio.ensure_future(waiting) == list(range(10))


@in_loop
async def test_error_and_cancellation_reach_a_coroutine_that_waits() -> None:
    seen: list[str] = []

    async def fail() -> None:
        await yield_to_loop()
        raise ValueError("planted")

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    failing, waiting = eager(fail()), eager(wait())
    assert inspect.isawaitable(failing)
    assert inspect.isawaitable(waiting)
    with pytest.raises(ValueError, match="planted"):
        await failing
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


class Processor:
    """Stands for the system: others take the processor for `taken_seconds` each time it is offered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offers = 0
        self.taken_seconds = 0.0
        self.now = 1000.0
        monkeypatch.setattr(os, "sched_yield", self._yield)
        monkeypatch.setattr(chunking, "perf_counter", lambda: self.now)

    def _yield(self) -> None:
        self.offers += 1
        self.now += self.taken_seconds


@in_loop
async def test_the_processor_is_offered_before_each_chunk_while_the_kernel_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processor = Processor(monkeypatch)
    kernel_works = True
    yield_processor_while(lambda: kernel_works)
    for _ in range(3):
        await yield_to_loop()
    assert processor.offers == 3
    kernel_works = False
    await yield_to_loop()
    assert processor.offers == 3


@in_loop
async def test_others_that_take_the_processor_for_long_are_offered_it_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Processor(monkeypatch)
    processor.taken_seconds = 0.004
    yield_processor_while(lambda: True)
    for _ in range(10):
        await yield_to_loop()
    assert processor.offers == 1
    processor.now += 2 * OFFER_PAUSE * processor.taken_seconds
    await yield_to_loop()
    assert processor.offers == 2
