"""Turns by network: a failing member does not end them, and they yield to work of the kernel."""

import asyncio
import os
from collections.abc import Callable

import pytest

from kwire.concurrency.chunking import yield_processor_while
from kwire.server.network_turns import NetworkTurns
from tests.support.node import in_loop

MEMBERS = 3
WAIT_SECONDS = 5.0


@in_loop
async def test_each_turn_offers_the_processor_while_the_kernel_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a sync would wait for the next timer tick as long as clients that are not logged in wait."""
    served: list[int] = []
    served_at_offers: list[int] = []
    monkeypatch.setattr(os, "sched_yield", lambda: served_at_offers.append(len(served)))
    monkeypatch.setattr("kwire.concurrency.chunking.OFFER_PAUSE", 0)
    is_syncing = True
    yield_processor_while(lambda: is_syncing)
    turns: NetworkTurns[int] = NetworkTurns(asyncio.get_running_loop().call_soon, served.append, count_max=1)

    async def serve(members: range) -> None:
        for member in members:
            turns.add("10.0.0.1", member)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(served) < members.stop:
                await asyncio.sleep(0)

    await serve(range(MEMBERS))
    assert served_at_offers == [0, 1, 2]
    is_syncing = False
    await serve(range(MEMBERS, 2 * MEMBERS))
    assert len(served_at_offers) <= MEMBERS + 1


@in_loop
async def test_a_member_that_fails_does_not_end_the_turns_of_the_others() -> None:
    scheduled: list[Callable[[], None]] = []
    served: list[int] = []

    def serve(member: int) -> None:
        served.append(member)
        if member == 1:
            raise ValueError("the first one fails")

    turns: NetworkTurns[int] = NetworkTurns(scheduled.append, serve, 1)
    turns.add("192.0.2.1", 1)
    turns.add("192.0.2.2", 2)
    with pytest.raises(ValueError, match="the first one"):
        scheduled.pop()()
    scheduled.pop()()
    assert served == [1, 2]
