"""One webhook does not slow down the others, and all of them do not block the event loop."""

import asyncio

import pytest

from kwire.streams.webhooks.delivery.dispatcher import LANES_PER_ITERATION
from kwire.streams.webhooks.delivery.sender import Request, Response
from kwire.streams.webhooks.delivery.work_budget import WorkBudget
from tests.support.event_store import draft
from tests.support.hooked_node import hooked, until
from tests.support.node import QuietNode, in_loop


async def prepare(node: QuietNode, *topics: str) -> None:
    await node.event_store.open()
    for name in topics:
        await node.create_event_topic(name)


@pytest.mark.proves("S2-4")
@in_loop
async def test_a_receiver_that_hangs_holds_up_nobody_else(node: QuietNode) -> None:
    names = [f"t{number}" for number in range(6)]
    await prepare(node, *names)
    async with hooked(node, connections_max=8, connections_per_host_max=4) as one:
        hanging = asyncio.Event()
        well: list[str] = []

        async def send(request: Request) -> Response:
            if "hanging" in request.url:
                one.receiver.requests.append(request)
                await hanging.wait()
            else:
                well.append(request.headers["webhook-id"])
            return Response(200)

        one.webhooks._workers._send = send
        # More than the total connections: those that wait for that host do not occupy slots of others.
        stuck = [
            await one.register(*names, url=f"https://hanging.example/{number}", mode="parallel", parallel=5)
            for number in range(10)
        ]
        await one.register(*names)
        # Publishing does not wait either.
        await node.event_store.publish([draft(name) for name in names for _ in range(3)])
        await until(lambda: len(well) == 18)
        assert len(one.receiver.requests) == 4
        hanging.set()
        await until(lambda: all(consumer.delivered_count == 18 for consumer in stuck))


@in_loop
async def test_many_webhooks_of_one_topic_all_hear_of_an_event(node: QuietNode) -> None:
    await prepare(node, "orders")
    async with hooked(node, dispatch_interval_ms=3_600_000) as one:
        count = LANES_PER_ITERATION + 20
        for _ in range(count):
            await one.register()
        await node.event_store.publish([draft("orders")])
        await one.receiver.has(count)
        assert len(one.receiver.requests) == count


@in_loop
async def test_work_beyond_what_a_turn_has_waits_for_the_next_in_order() -> None:
    budget, done = WorkBudget(3), []

    async def work(number: int) -> None:
        await budget.wait(1)
        done.append(number)

    tasks = [asyncio.ensure_future(work(number)) for number in range(10)]
    await asyncio.sleep(0)
    assert done == [0, 1, 2]
    tasks[4].cancel()
    async with asyncio.timeout(10):
        await asyncio.wait(tasks)
    assert done == [0, 1, 2, 3, 5, 6, 7, 8, 9]


@in_loop
async def test_work_heavier_than_a_turn_is_a_turn_of_its_own() -> None:
    budget = WorkBudget(3)
    async with asyncio.timeout(10):
        await budget.wait(100)
        await budget.wait(100)
