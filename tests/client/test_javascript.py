"""The JavaScript module in Node against rooms in memory, over a WebSocket and over streaming answers of lines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.fake_rooms import FakeRooms, fake_rooms
from tests.support.javascript import JavaScriptClient, JavaScriptError, javascript_client
from tests.support.node import in_loop

WAIT_S = 10.0

pytestmark = [pytest.mark.needs_node, pytest.mark.parametrize("transport", ["websocket", "lines"])]


@asynccontextmanager
async def connected(transport: str, **options: int) -> AsyncIterator[tuple[FakeRooms, JavaScriptClient]]:
    async with fake_rooms() as (rooms, url), javascript_client(url, transport, **options) as client:
        yield rooms, client


async def is_cut(rooms: FakeRooms) -> None:
    rooms.cut()
    await until(lambda: not rooms.connections)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


@in_loop
async def test_what_is_published_is_read_with_history_first_and_live_after(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        stored = await client.call("publish", room="r", type="message", data={"user": "alice", "text": "Hello!"})
        assert stored == {"eventId": "evt_0", "offset": 0, "subscribersNotified": 0}
        await client.call("subscribe", room="r", options={"fromOffset": -50, "replay": True})
        items = await client.call("next", count=2)
        assert items[0]["data"] == {"user": "alice", "text": "Hello!"}
        assert items[1] == {"kind": "caught_up", "room": "r", "offset": 0}
        answers = await client.call("publishMany", room="r", events=[{"type": "n", "data": n} for n in range(3)])
        assert [answer["offset"] for answer in answers] == [1, 2, 3]
        assert await client.data(3) == [0, 1, 2]
        page = await client.call("history", room="r", options={"fromOffset": 1, "limit": 2})
        assert [event["data"] for event in page["events"]] == [0, 1]
        assert (page["oldestOffset"], page["newestOffset"]) == (0, 3)
        assert rooms.subscribes[0]["from_offset"] == -50


@in_loop
async def test_a_subscription_goes_on_without_gap_or_duplicate_however_often_it_is_cut(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        await client.call("subscribe", room="r")
        for number in range(100):
            rooms.publish("r", number)
            if number % 20 == 10:
                await is_cut(rooms)
            if number % 7 == 0:
                await asyncio.sleep(0.005)
        assert await client.data(100) == list(range(100))
        assert rooms.connects > 1


@in_loop
async def test_retention_while_away_is_a_typed_gap(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        rooms.publish("r", 0)
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        assert await client.data(1) == [0]
        rooms.refuses_to_connect = True
        await is_cut(rooms)
        for number in range(1, 10):
            rooms.publish("r", number)
        rooms.trim("r", 5)
        rooms.refuses_to_connect = False
        with pytest.raises(JavaScriptError) as found:
            await client.call("events", count=1)
        gap = {"kind": "gap", "room": "r", "fromOffset": 1, "toOffset": 4, "reason": "retention"}
        assert (found.value.code, found.value.details["gap"]) == ("GapFound", gap)
        assert await client.data(5) == [5, 6, 7, 8, 9]


@in_loop
async def test_a_room_made_anew_is_a_typed_gap(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        rooms.publish("r", "old")
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        assert await client.data(1) == ["old"]
        rooms.recreate("r")
        rooms.publish("r", "new")
        await is_cut(rooms)
        with pytest.raises(JavaScriptError) as found:
            await client.call("events", count=1)
        assert found.value.details["gap"]["reason"] == "room_recreated"
        assert await client.data(1) == ["new"]


@in_loop
async def test_a_server_that_lost_its_newest_events_is_told(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        for number in range(5):
            rooms.publish("r", number)
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        assert await client.data(5) == [0, 1, 2, 3, 4]
        rooms.shorten("r", 2)
        await is_cut(rooms)
        with pytest.raises(JavaScriptError) as found:
            await client.call("events", count=1)
        gap = found.value.details["gap"]
        assert (gap["fromOffset"], gap["toOffset"], gap["reason"]) == (2, 4, "log_shortened")
        rooms.publish("r", "other")
        assert await client.data(1) == ["other"]


@in_loop
async def test_a_gap_at_offset_zero_shows_though_zero_is_never_refused(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        rooms.refuses_to_connect = True
        await is_cut(rooms)
        for number in range(6):
            rooms.publish("r", number)
        rooms.trim("r", 4)
        rooms.refuses_to_connect = False
        with pytest.raises(JavaScriptError) as found:
            await client.call("events", count=1)
        gap = {"kind": "gap", "room": "r", "fromOffset": 0, "toOffset": 3, "reason": "retention"}
        assert found.value.details["gap"] == gap
        assert await client.data(2) == [4, 5]


@in_loop
async def test_an_event_that_comes_twice_is_handed_out_once(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        event = rooms.publish("r", "first")
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        assert await client.data(1) == ["first"]
        await rooms.tell(event)
        rooms.publish("r", "second")
        assert await client.data(1) == ["second"]


@in_loop
async def test_a_stored_position_resumes_another_subscription(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        for number in range(6):
            rooms.publish("r", number)
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        assert await client.call("looped", count=3) == [0, 1, 2]
        position = await client.call("position")
        assert position == {"epoch": "epoch-1", "nextOffset": 3}
        await client.call("subscribe", room="r", options={"resume": position})
        assert await client.data(3) == [3, 4, 5]


@in_loop
async def test_errors_have_the_servers_code_and_details(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        for number in range(6):
            rooms.publish("r", number)
        rooms.trim("r", 4)
        with pytest.raises(JavaScriptError) as refused:
            await client.call("subscribe", room="r", options={"fromOffset": 2})
        assert refused.value.code == "OffsetOutOfRange"
        assert refused.value.details == {"requested": 2, "oldest": 4, "newest": 5}
        rooms.answers_lost = 1
        with pytest.raises(JavaScriptError) as uncertain:
            await client.call("publish", room="r", type="n", data=6)
        assert uncertain.value.code == "PublishUncertain"
        assert rooms.rooms["r"].newest == 6


@in_loop
async def test_a_deleted_room_ends_the_subscription_and_a_lagging_one_resumes(transport: str) -> None:
    async with connected(transport) as (rooms, client):
        rooms.publish("r", 0)
        await client.call("subscribe", room="r", options={"fromOffset": 0})
        assert await client.data(1) == [0]
        for connection in rooms.connections:
            connection.readers.clear()
        await rooms.tell({"control": "closed", "room": "r", "code": "SubscriptionLagged", "reason": "", "offset": 0})
        rooms.publish("r", 1)
        assert await client.data(1) == [1]
        await rooms.tell({"control": "closed", "room": "r", "code": "RoomNotFound", "reason": "deleted", "offset": 1})
        with pytest.raises(JavaScriptError) as ended:
            await client.call("events", count=1)
        assert ended.value.code == "RoomNotFound"


@in_loop
async def test_a_slow_reader_misses_nothing_and_holds_up_nobody(transport: str) -> None:
    count = 3_000
    async with connected(transport, queueItemsMax=500) as (rooms, client):
        await client.call("subscribe", room="slow", options={"fromOffset": 0})
        await client.call("subscribe", subscription="quick", room="quick", options={"fromOffset": 0})
        for number in range(count):
            rooms.publish("slow", number)
        rooms.publish("quick", "hello")
        assert await client.data(1, subscription="quick") == ["hello"]
        assert await client.data(count) == list(range(count))
