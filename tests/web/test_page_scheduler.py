"""A few parts of pages are read in each turn of the loop, in the order in which they were asked for."""

import asyncio

from kwire.web.page_turns import PARTS_PER_TURN, PageTurns
from tests.support.node import in_loop

READERS = 10 * PARTS_PER_TURN


@in_loop
async def test_readers_go_on_in_order_a_few_in_each_turn_of_the_loop() -> None:
    turns = PageTurns()
    done: list[int] = []

    async def read(number: int) -> None:
        await turns.next()
        done.append(number)

    tasks = [asyncio.ensure_future(read(number)) for number in range(READERS)]
    seen = 0
    while len(done) < READERS:
        await asyncio.sleep(0)
        assert len(done) - seen <= PARTS_PER_TURN
        seen = len(done)
    assert done == list(range(READERS))
    await asyncio.gather(*tasks)


@in_loop
async def test_a_single_reader_does_not_wait_and_those_who_leave_are_passed_over() -> None:
    turns = PageTurns()
    for _ in range(PARTS_PER_TURN):
        waits = turns.next()
        # It ends without giving the loop its turn.
        try:
            waits.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waited")
    gone, last = asyncio.ensure_future(turns.next()), asyncio.ensure_future(turns.next())
    gone.cancel()
    await last
    assert gone.cancelled()
