"""How programs read: `async for`, `async with` and `await` on a subscription, and the same without an event loop."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.client import AsyncClient, CaughtUp, Client, ClientClosed, Event, Gap, GapFound, Position, StoredEvent
from tests.client.test_async_client import connected, until
from tests.client.test_event_store import connected as connected_to_store
from tests.client.test_event_store import made
from tests.client.test_sync_client import rooms_in_a_thread
from tests.support.fake_rooms import FakeRooms
from tests.support.node import in_loop
from tests.support.server import wait_until

WAIT_S = 10.0


def published(rooms: FakeRooms, count: int) -> None:
    for number in range(count):
        rooms.publish("r", number)


@in_loop
async def test_a_loop_yields_events_and_leaving_it_ends_the_subscription() -> None:
    async with connected() as (rooms, client):
        published(rooms, 3)
        seen: list[Event] = []
        async for event in client.stream.subscribe("r", from_offset=0):
            seen.append(event)
            if len(seen) == 3:
                break
        assert [event.data for event in seen] == [0, 1, 2]
        await until(lambda: rooms.unsubscribes == ["r"])


@in_loop
async def test_an_exception_in_a_loop_ends_the_subscription() -> None:
    async with connected() as (rooms, client):
        published(rooms, 1)
        try:
            async for _ in client.stream.subscribe("r", from_offset=0):
                raise KeyError
        except KeyError:
            pass
        await until(lambda: rooms.unsubscribes == ["r"])


@in_loop
async def test_async_with_opens_and_closes_and_loops_continue_each_other() -> None:
    async with connected() as (rooms, client):
        async with client.stream.subscribe("r") as subscription:
            # It has begun, so it yields what is published from here on.
            published(rooms, 4)
            async for event in subscription:
                if event.data == 1:
                    break
            assert (await subscription.next_event(WAIT_S)).data == 2
            async for event in subscription:
                assert event.data == 3
                break
        assert subscription.is_over
        assert [event async for event in subscription] == []
        await until(lambda: rooms.unsubscribes == ["r"])


@in_loop
async def test_items_are_events_and_what_is_between_them() -> None:
    async with connected() as (rooms, client):
        published(rooms, 2)
        seen: list[object] = []
        async for item in client.stream.subscribe("r", from_offset=0).items():
            seen.append(item.data if isinstance(item, Event) else item)
            if isinstance(item, CaughtUp):
                break
        assert seen == [0, 1, CaughtUp("r", 1)]
        gc.collect()
        await until(lambda: rooms.unsubscribes == ["r"])


@in_loop
async def test_a_gap_is_raised_in_a_loop_and_the_next_loop_continues_after_it() -> None:
    async with connected() as (rooms, client):
        published(rooms, 6)
        first = await client.stream.subscribe("r", from_offset=0)
        assert (await first.next_event(WAIT_S)).data == 0
        position = first.position
        await first.close()
        rooms.trim("r", 4)
        resumed = client.stream.subscribe("r", resume=position)
        assert resumed.position == position
        with pytest.raises(GapFound) as found:
            async for _ in resumed:
                pass
        assert found.value.gap == Gap("r", 1, 3, "retention")
        assert [(await resumed.next_event(WAIT_S)).data, (await resumed.next_event(WAIT_S)).data] == [4, 5]


@in_loop
async def test_a_subscription_that_was_not_opened_in_time_is_opened_by_the_next_call() -> None:
    async with connected() as (rooms, client):
        published(rooms, 1)
        rooms.refuses_to_connect = True
        subscription = client.stream.subscribe("r", from_offset=0)
        with pytest.raises(TimeoutError):
            await subscription.next_event(0.05)
        rooms.refuses_to_connect = False
        assert (await subscription.next_event(WAIT_S)).data == 0


@in_loop
async def test_a_subscription_that_is_closed_before_its_first_use_sends_nothing() -> None:
    async with connected() as (rooms, client):
        subscription = client.stream.subscribe("r")
        await subscription.close()
        assert [event async for event in subscription] == []
        with pytest.raises(ClientClosed):
            await subscription
        assert rooms.subscribes == []


@in_loop
async def test_two_tasks_open_one_subscription_once() -> None:
    async with connected() as (rooms, client):
        subscription = client.stream.subscribe("r")
        await asyncio.gather(subscription.open(), subscription.open())
        assert len(rooms.subscribes) == 1


@in_loop
async def test_the_event_store_is_followed_in_the_same_ways(tmp_path: Path) -> None:
    async with connected_to_store(tmp_path) as (http, _, client):
        await client.events.publish_many(made("a", 0, 1, 2))
        seen: list[StoredEvent] = []
        async for event in client.events.subscribe_stream("a", from_version=0):
            seen.append(event)
            if len(seen) == 3:
                break
        assert [event.payload for event in seen] == [0, 1, 2]
        await until(lambda: not len(http.node._subscriptions))
        async with client.events.subscribe_all(from_position="oldest") as everything:
            assert len(http.node._subscriptions) == 1
            assert [(await everything.next_event(WAIT_S)).payload for _ in range(3)] == [0, 1, 2]
            assert everything.position is not None
            resume = Position(*everything.position)
        await until(lambda: not len(http.node._subscriptions))
        await client.events.publish_many(made("a", 3))
        resumed = await client.events.subscribe_all(resume=resume)
        assert (await anext(resumed)).payload == 3


def test_a_program_without_an_event_loop_reads_alike() -> None:
    with rooms_in_a_thread() as (rooms, url, _), Client(url) as client:
        for number in range(3):
            client.stream.publish("r", "n", number)
        for event in client.stream.subscribe("r", from_offset=0):
            if event.data == 1:
                break
        wait_until(lambda: rooms.unsubscribes == ["r"], "the subscription is closed")
        with client.stream.subscribe("r", from_offset=0) as subscription:
            seen = [item for _, item in zip(range(4), subscription.items(), strict=False)]
            assert [item.data for item in seen if isinstance(item, Event)] == [0, 1, 2]
            assert CaughtUp("r", 2) in seen
        wait_until(lambda: rooms.unsubscribes == ["r", "r"], "the subscription is closed")
        assert list(subscription) == []


def test_a_dropped_subscription_of_a_closed_client_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    held: list[object] = []
    drop: Callable[[], None] = held.clear

    async def leave_open(url: str) -> None:
        async with AsyncClient(url) as client:
            held.append(await client.stream.subscribe("r"))

    with rooms_in_a_thread() as (_, url, _):
        asyncio.run(leave_open(url))
        drop()
    gc.collect()
    assert caplog.records == []
