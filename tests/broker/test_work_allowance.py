"""What requests may do in one iteration of the event loop, together."""

import asyncio

from kwire.concurrency.work_allowance import LIGHT_WEIGHT_MAX, WEIGHT_PER_ITERATION, WorkAllowance
from tests.support.node import in_loop


@in_loop
async def test_what_was_done_in_an_iteration_is_taken_from_the_others_and_light_requests_always_fit() -> None:
    allowance = WorkAllowance()
    assert allowance.left == WEIGHT_PER_ITERATION
    allowance.note(LIGHT_WEIGHT_MAX - 1)
    assert allowance.left == WEIGHT_PER_ITERATION, "what is light is not counted"
    allowance.note(WEIGHT_PER_ITERATION // 2)
    assert allowance.left == WEIGHT_PER_ITERATION // 2
    allowance.note(2 * WEIGHT_PER_ITERATION)
    assert allowance.left == LIGHT_WEIGHT_MAX
    await asyncio.sleep(0)
    assert allowance.left == WEIGHT_PER_ITERATION
