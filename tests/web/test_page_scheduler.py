"""One part of a page is read in each turn of all long computations, in the order in which they were asked for."""

import asyncio
from itertools import pairwise

import pytest

from kwire.concurrency.chunking import ITERATIONS_BETWEEN, schedule_chunk
from kwire.web.answers.page_scheduler import PageScheduler
from tests.support.node import in_loop

READERS = 10


@in_loop
async def test_readers_go_on_in_order_one_in_each_turn() -> None:
    turns = PageScheduler()
    done: list[int] = []

    async def read(number: int) -> None:
        await turns.next()
        done.append(number)

    tasks = [asyncio.ensure_future(read(number)) for number in range(READERS)]
    seen_in: list[int] = []
    iteration = 0
    while len(done) < READERS:
        await asyncio.sleep(0)
        iteration += 1
        assert len(done) - len(seen_in) <= 1
        if len(done) > len(seen_in):
            seen_in.append(iteration)
    # The first one is not kept waiting.
    assert all(later - earlier > ITERATIONS_BETWEEN for earlier, later in pairwise(seen_in[1:]))
    assert done == list(range(READERS))
    await asyncio.gather(*tasks)


@in_loop
async def test_a_single_reader_does_not_wait_and_those_who_leave_are_passed_over() -> None:
    turns = PageScheduler()
    # It ends without giving the loop its turn.
    with pytest.raises(StopIteration):
        turns.next().send(None)
    gone, last = asyncio.ensure_future(turns.next()), asyncio.ensure_future(turns.next())
    gone.cancel()
    await last
    assert gone.cancelled()


@in_loop
async def test_parts_share_their_turn_with_other_long_computations() -> None:
    turns = PageScheduler()
    ran: list[str] = []

    async def read() -> None:
        await turns.next()
        ran.append("part")

    tasks = [asyncio.ensure_future(read()) for _ in range(3)]
    await asyncio.sleep(0)
    schedule_chunk(lambda: ran.append("chunk"))
    await asyncio.gather(*tasks)
    assert ran == ["part", "part", "chunk", "part"]
