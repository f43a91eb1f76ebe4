"""The async client against rooms in memory that fail in chosen ways."""

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from kwire.client import (
    AnswerTimeout,
    AsyncClient,
    CaughtUp,
    ClientClosed,
    Event,
    Gap,
    GapFound,
    Item,
    NewEvent,
    OffsetOutOfRange,
    Position,
    PublishUncertain,
    RoomNotFound,
    Subscription,
    Unreachable,
    websocket,
)
from kwire.client.http import Http
from kwire.client.subscription import QUEUE_ITEMS_MAX
from tests.support.fake_rooms import FakeRooms, fake_rooms
from tests.support.node import in_loop

WAIT_S = 10.0


@asynccontextmanager
async def connected(timeout_s: float = WAIT_S) -> AsyncIterator[tuple[FakeRooms, AsyncClient]]:
    async with (
        fake_rooms() as (rooms, url),
        AsyncClient(url, timeout_s=timeout_s, retry_delay_s_min=0.01, retry_delay_s_max=0.05) as client,
    ):
        yield rooms, client


async def take(subscription: Subscription, count: int) -> list[Item]:
    return [await subscription.next_item(WAIT_S) for _ in range(count)]


async def numbers(subscription: Subscription, count: int) -> list[int]:
    return [(await subscription.next_event(WAIT_S)).data for _ in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


async def is_cut(rooms: FakeRooms) -> None:
    """Cut, and wait until the server knows."""
    rooms.cut()
    await until(lambda: not rooms.connections)


@in_loop
async def test_publish_answers_where_the_event_is() -> None:
    async with connected() as (rooms, client):
        first = await client.stream.publish("r", "message", {"text": "Hello"}, metadata={"v": "1"})
        second = await client.stream.publish("r", "message", None)
        assert (first.event_id, first.offset, second.offset) == ("evt_0", 0, 1)
        assert rooms.rooms["r"].events[0]["metadata"] == {"v": "1"}


@in_loop
async def test_many_publishes_at_once_share_one_connection_and_keep_their_answers() -> None:
    async with connected() as (rooms, client):
        answers = await asyncio.gather(*(client.stream.publish("r", "n", number) for number in range(300)))
        assert [rooms.rooms["r"].events[answer.offset]["data"] for answer in answers] == list(range(300))
        assert rooms.connects == 1


@in_loop
async def test_publish_many_answers_for_each_event() -> None:
    async with connected() as (rooms, client):
        rooms.publish("a/b", 0)
        answers = await client.stream.publish_many("a/b", [NewEvent("n", 1), NewEvent("n", 2)])
        assert [(answer.offset, answer.event_id) for answer in answers] == [(1, "evt_1"), (2, "evt_2")]
        assert await client.stream.publish_many("a/b", []) == ()


@in_loop
async def test_a_lost_answer_is_uncertain_and_nothing_is_sent_twice() -> None:
    async with connected() as (rooms, client):
        rooms.answers_lost = 1
        with pytest.raises(PublishUncertain):
            await client.stream.publish("r", "n", 1)
        await client.stream.publish("r", "n", 2)
        assert [event["data"] for event in rooms.rooms["r"].events.values()] == [1, 2]


@asynccontextmanager
async def deaf_server(*, reads: bool) -> AsyncIterator[tuple[list[str], str]]:
    """Takes commands and answers none; or does not even take them. What it was sent, and its address."""
    heard: list[str] = []
    is_over = asyncio.Event()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoclose=False)
        await socket.prepare(request)
        if not reads:
            assert request.transport is not None
            request.transport.pause_reading()
            await is_over.wait()
            request.transport.abort()
        async for message in socket:
            heard.append(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/ws", serve)
    async with TestServer(app) as server:
        try:
            yield heard, str(server.make_url("/"))
        finally:
            is_over.set()


@in_loop
async def test_what_was_not_sent_in_time_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "UNANSWERED_MAX", 1)
    async with deaf_server(reads=True) as (heard, url), AsyncClient(url, timeout_s=1.5) as client:
        first = asyncio.create_task(client.stream.publish("r", "n", 0))
        await until(lambda: len(heard) == 1)
        # The others give up long before the first one does, whose end makes room for the next.
        client.stream._timeout_s = 0.1
        calls = (client.stream.publish("r", "n", number) for number in range(1, 3))
        outcomes = await asyncio.gather(*calls, first, return_exceptions=True)
        assert [type(one) for one in outcomes] == [Unreachable, Unreachable, AnswerTimeout]
        assert len(heard) == 1


@in_loop
async def test_a_call_ends_in_time_though_the_server_reads_nothing() -> None:
    async with deaf_server(reads=False) as (_, url), AsyncClient(url, timeout_s=1.0) as client:
        calls = [asyncio.create_task(client.stream.publish("r", "n", "x" * 200_000)) for _ in range(100)]
        await asyncio.wait(calls, timeout=0.5)
        # Who gives up by himself takes nobody with him.
        calls[-1].cancel()
        async with asyncio.timeout(WAIT_S):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in outcomes] == [AnswerTimeout] * 99 + [asyncio.CancelledError]


@in_loop
async def test_history_comes_before_caught_up_and_live_events_after() -> None:
    async with connected() as (rooms, client):
        for number in range(3):
            rooms.publish("r", number)
        subscription = await client.stream.subscribe("r", from_offset=0, replay=True)
        items = await take(subscription, 4)
        rooms.publish("r", 3)
        items += await take(subscription, 1)
        kinds = [item.data if isinstance(item, Event) else item for item in items]
        assert kinds == [0, 1, 2, CaughtUp("r", 2), 3]


@in_loop
async def test_a_subscription_goes_on_without_gap_or_duplicate_however_often_it_is_cut() -> None:
    async with connected() as (rooms, client):
        subscription = await client.stream.subscribe("r")
        for number in range(200):
            rooms.publish("r", number)
            if number % 20 == 10:
                await is_cut(rooms)
            if number % 7 == 0:
                await asyncio.sleep(0.002)
        assert await numbers(subscription, 200) == list(range(200))
        assert rooms.connects > 1


@in_loop
async def test_events_published_while_the_connection_was_down_are_not_missed_by_a_reader_of_new_events() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", "before")
        subscription = await client.stream.subscribe("r")
        await is_cut(rooms)
        rooms.publish("r", "meanwhile")
        assert (await subscription.next_event(WAIT_S)).data == "meanwhile"


@in_loop
async def test_retention_while_away_is_a_typed_gap() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", 0)
        subscription = await client.stream.subscribe("r", from_offset=0)
        assert await numbers(subscription, 1) == [0]
        rooms.refuses_to_connect = True
        await is_cut(rooms)
        for number in range(1, 10):
            rooms.publish("r", number)
        rooms.trim("r", 5)
        rooms.refuses_to_connect = False
        assert await numbers_with_gap(subscription) == (Gap("r", 1, 4, "retention"), 5)


async def numbers_with_gap(subscription: Subscription) -> tuple[Gap, int]:
    with pytest.raises(GapFound) as found:
        await subscription.next_event(WAIT_S)
    return found.value.gap, (await subscription.next_event(WAIT_S)).data


@in_loop
async def test_a_room_made_anew_is_a_typed_gap_and_is_read_from_its_beginning() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", "old")
        subscription = await client.stream.subscribe("r", from_offset=0)
        assert (await subscription.next_event(WAIT_S)).data == "old"
        rooms.recreate("r")
        rooms.publish("r", "new")
        await is_cut(rooms)
        with pytest.raises(GapFound) as found:
            await subscription.next_event(WAIT_S)
        assert found.value.gap == Gap("r", 1, None, "room_recreated")
        event = await subscription.next_event(WAIT_S)
        assert (event.data, event.offset) == ("new", 0)


@in_loop
async def test_a_server_that_lost_its_newest_events_is_told_and_what_it_stores_next_is_read() -> None:
    async with connected() as (rooms, client):
        for number in range(5):
            rooms.publish("r", number)
        subscription = await client.stream.subscribe("r", from_offset=0)
        assert await numbers(subscription, 5) == [0, 1, 2, 3, 4]
        rooms.shorten("r", 2)
        await is_cut(rooms)
        with pytest.raises(GapFound) as found:
            await subscription.next_event(WAIT_S)
        assert found.value.gap == Gap("r", 2, 4, "log_shortened")
        rooms.publish("r", "other")
        event = await subscription.next_event(WAIT_S)
        assert (event.offset, event.data) == (2, "other")


@in_loop
async def test_a_stored_position_resumes_in_another_client() -> None:
    async with connected() as (rooms, client):
        for number in range(6):
            rooms.publish("r", number)
        async with client.stream.subscribe("r", from_offset=0) as subscription:
            assert await numbers(subscription, 3) == [0, 1, 2]
            position = subscription.position
        assert position == Position("epoch-1", 3)
        again = await client.stream.subscribe("r", resume=position)
        assert await numbers(again, 3) == [3, 4, 5]


@in_loop
async def test_an_offset_that_is_gone_is_an_error_for_who_asked_for_it() -> None:
    async with connected() as (rooms, client):
        for number in range(6):
            rooms.publish("r", number)
        rooms.trim("r", 4)
        with pytest.raises(OffsetOutOfRange) as refused:
            await client.stream.subscribe("r", from_offset=2)
        assert (refused.value.requested, refused.value.oldest, refused.value.newest) == (2, 4, 5)


@in_loop
async def test_a_deleted_room_ends_the_subscription() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", 0)
        subscription = await client.stream.subscribe("r", from_offset=0)
        assert await numbers(subscription, 1) == [0]
        await rooms.tell({"control": "closed", "room": "r", "code": "RoomNotFound", "reason": "deleted", "offset": 0})
        with pytest.raises(RoomNotFound):
            await subscription.next_event(WAIT_S)


@in_loop
async def test_a_reader_cut_for_lagging_resumes_by_itself() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", 0)
        subscription = await client.stream.subscribe("r", from_offset=0)
        assert await numbers(subscription, 1) == [0]
        for connection in rooms.connections:
            connection.readers.clear()
        await rooms.tell({"control": "closed", "room": "r", "code": "SubscriptionLagged", "reason": "", "offset": 0})
        rooms.publish("r", 1)
        assert await numbers(subscription, 1) == [1]
        assert rooms.connects == 1


@in_loop
async def test_a_refusal_that_passes_is_asked_again() -> None:
    async with connected() as (rooms, client):
        subscription = await client.stream.subscribe("r")
        await is_cut(rooms)
        rooms.refusals = [{"code": "TooManySubscribers", "message": "later"}] * 3
        rooms.publish("r", 1)
        assert await numbers(subscription, 1) == [1]


@in_loop
async def test_marks_of_the_server_reach_the_user_and_checkpoints_move_the_position() -> None:
    async with connected() as (rooms, client):
        subscription = await client.stream.subscribe("r", types={"wanted"})
        assert rooms.subscribes[0]["types"] == ["wanted"]
        assert await take(subscription, 1) == [CaughtUp("r", -1)]
        await rooms.tell({"control": "checkpoint", "room": "r", "offset": 41})
        await rooms.tell(
            {"control": "gap", "room": "r", "offset": 50, "from_offset": 42, "to_offset": 50, "reason": "x"}
        )
        assert await take(subscription, 1) == [Gap("r", 42, 50, "x")]
        assert subscription.position == Position("epoch-1", 51)


@in_loop
async def test_a_slow_reader_neither_fills_memory_nor_holds_up_other_rooms_nor_misses_anything() -> None:
    count = QUEUE_ITEMS_MAX * 4
    async with connected() as (rooms, client):
        slow = await client.stream.subscribe("slow", from_offset=0)
        quick = await client.stream.subscribe("quick", from_offset=0)
        for number in range(count):
            rooms.publish("slow", number)
        rooms.publish("quick", "hello")
        assert (await quick.next_event(WAIT_S)).data == "hello"
        assert slow._queue is not None
        assert len(slow._queue) <= QUEUE_ITEMS_MAX
        await until(lambda: "slow" in rooms.unsubscribes)
        assert await numbers(slow, count) == list(range(count))
        assert rooms.connects == 1


@in_loop
async def test_two_readers_of_one_room_in_one_client_both_get_everything() -> None:
    async with connected() as (rooms, client):
        readers = [await client.stream.subscribe("r", from_offset=0) for _ in range(2)]
        for number in range(5):
            rooms.publish("r", number)
        assert [await numbers(reader, 5) for reader in readers] == [[0, 1, 2, 3, 4]] * 2


@in_loop
async def test_a_closed_subscription_ends_its_loop_and_its_room_can_be_read_anew() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", 1)
        subscription = await client.stream.subscribe("r", from_offset=0)
        assert await numbers(subscription, 1) == [1]
        await subscription.close()
        assert [event async for event in subscription] == []
        with pytest.raises(ClientClosed):
            await subscription.next_item()
        again = await client.stream.subscribe("r", from_offset=0)
        assert await numbers(again, 1) == [1]
        assert rooms.connects == 1


@in_loop
async def test_history_is_read_in_pages() -> None:
    async with connected() as (rooms, client):
        for number in range(5):
            rooms.publish("r", number)
        page = await client.stream.history("r", from_offset=1, limit=2)
        assert [event.data for event in page.events] == [1, 2]
        assert (page.oldest_offset, page.newest_offset) == (0, 4)


@in_loop
async def test_history_is_asked_again_after_a_loss() -> None:
    async with connected() as (rooms, client):
        rooms.publish("r", 1)
        await client.stream.history("r")
        rooms.cut()
        assert len((await client.stream.history("r")).events) == 1


@in_loop
async def test_nobody_there_is_said_within_the_timeout() -> None:
    async with AsyncClient("http://127.0.0.1:9", timeout_s=0.2) as client:
        with pytest.raises(Unreachable):
            await client.stream.publish("r", "n", 1)
        with pytest.raises(Unreachable):
            await client.stream.publish_many("r", [NewEvent("n", 1)])
        with pytest.raises(Unreachable):
            await client.stream.subscribe("r")
        with pytest.raises(Unreachable):
            await client.rooms.get("r")


@in_loop
async def test_a_frame_that_is_nonsense_costs_the_connection_and_nothing_else() -> None:
    async with connected() as (rooms, client):
        subscription = await client.stream.subscribe("r")
        for connection in rooms.connections:
            await connection.socket.send_str("no json")
        rooms.publish("r", 1)
        assert await numbers(subscription, 1) == [1]


@pytest.mark.parametrize("method", ["GET", "POST"])
@in_loop
async def test_an_http_request_without_an_answer_in_time_is_an_answer_timeout(method: str) -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(WAIT_S)
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/slow", hang)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        url = str(server.make_url("/")).rstrip("/")
        with pytest.raises(AnswerTimeout, match=r"within 0\.05 s"):
            await Http(session, url, 0.05).call(method, "/slow")


def test_the_message_of_a_gap_fits_rooms_and_topics() -> None:
    missing = 'subscription to "orders": the events from 5 to 9 are no longer available (retention)'
    assert str(GapFound(Gap("orders", 5, 9, "retention"))) == missing
    recreated = 'subscription to "r": the events from 5 on are no longer available (room_recreated)'
    assert str(GapFound(Gap("r", 5, None, "room_recreated"))) == recreated


def connections_to(url: str) -> list[socket.socket]:
    """The open sockets of this process that are connected to a server."""
    address, found = (URL(url).host, URL(url).port), []
    for one in gc.get_objects():
        if isinstance(one, socket.socket) and one.fileno() >= 0:
            with suppress(OSError):  # a socket that listens has no peer
                if one.getpeername() == address:
                    found.append(one)
    return found


@in_loop
async def test_a_closed_client_leaves_no_tls_connection_open() -> None:
    authority, server = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with fake_rooms(server) as (_, url):
        client = AsyncClient(url, timeout_s=WAIT_S, ssl_context=trusting)
        await client.stream.history("quiet")
        assert connections_to(url)
        await client.close()
        # Nobody has to run the event loop any longer.
        assert not connections_to(url)
