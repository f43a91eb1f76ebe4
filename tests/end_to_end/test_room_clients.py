"""The Python client and the JavaScript module against a real server: cut connections, killed servers, lost history."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.client import (
    AsyncClient,
    CaughtUp,
    Client,
    ConnectionLost,
    Event,
    Gap,
    GapFound,
    NewEvent,
    Position,
    Published,
    Refused,
    RoomNotFound,
    Subscription,
    Unreachable,
    websocket,
)
from kwire.server.http import stream_connections
from kwire.web.rooms.encodings import NDJSON_HEARTBEAT
from tests.support.cutting_proxy import cutting_proxy
from tests.support.engines import CLIENT_ENGINES, process_of
from tests.support.javascript import javascript_client
from tests.support.node import in_loop, running_node
from tests.support.room_sockets import port_of, until
from tests.support.server import HOST, KwireProcess

# No answer is waited for longer, however busy the machine is.
WAIT_S = 20.0
# How long a quiet client waits for a line before it takes the connection for silent.
SILENCE_S = 2.0
TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "lines"])


@pytest.fixture(scope="module", params=CLIENT_ENGINES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    process = process_of(request.param, request, tmp_path_factory.mktemp("rooms"))
    process.start()
    process.ready()
    yield process
    process.kill()


def client_of(url: str) -> AsyncClient:
    return AsyncClient(url, timeout_s=WAIT_S, retry_delay_s_min=0.02, retry_delay_s_max=0.2)


async def events_until(subscription: Subscription, count: int) -> list[Event]:
    return [await subscription.next_event(WAIT_S) for _ in range(count)]


@pytest.mark.proves("S0-54")
def test_a_game_lobby_is_read_from_its_beginning_with_keyword_arguments(server: KwireProcess) -> None:
    with Client(server.http_url, timeout_s=WAIT_S) as client:
        move = {"player": "player-1", "action": "attack", "target": "enemy-5"}
        client.stream.publish("game-lobby-42", "player_join", {"player": "player-1"})
        lobby = client.stream.subscribe("game-lobby-42", from_offset=0, replay=True)
        client.stream.publish("game-lobby-42", "player_move", move)
        items = [lobby.next_item(WAIT_S) for _ in range(3)]
        events = [item for item in items if isinstance(item, Event)]
        assert [(event.offset, event.type) for event in events] == [(0, "player_join"), (1, "player_move")]
        assert events[1].data == move


@pytest.mark.proves("S0-55")
@in_loop
async def test_a_monitor_subscribes_without_an_offset_and_pulls_new_events_in_a_loop(server: KwireProcess) -> None:
    async with client_of(server.http_url) as client:
        await client.stream.publish("system-events", "old", 0)
        monitor = await client.stream.subscribe("system-events")
        await asyncio.gather(*(client.stream.publish("system-events", "load", number) for number in range(5)))
        assert [event.data for event in await events_until(monitor, 5)] == [0, 1, 2, 3, 4]


@pytest.mark.proves("S0-26", "S0-27")
@in_loop
async def test_a_subscriber_whose_connections_are_cut_gets_every_event_once_and_in_order(server: KwireProcess) -> None:
    chance, count = random.Random(7), 600
    async with (
        cutting_proxy(HOST, server.http_port or 0) as proxy,
        client_of(proxy.url) as reader,
        client_of(server.http_url) as writer,
    ):
        subscription = await reader.stream.subscribe("cut")
        for number in range(0, count, 10):
            await writer.stream.publish_many("cut", [NewEvent("n", number + more) for more in range(10)])
            if chance.random() < 0.2:
                proxy.cut()
        events = await events_until(subscription, count)
        assert [(event.offset, event.data) for event in events] == [(number, number) for number in range(count)]
        assert proxy.connects > 1


@in_loop
async def test_a_server_that_is_killed_loses_nothing_acknowledged_and_its_subscribers_miss_and_repeat_nothing(
    tmp_path: Path,
) -> None:
    server = KwireProcess(tmp_path)
    server.start()
    server.ready()
    acknowledged: dict[int, int] = {}
    try:
        async with client_of(server.http_url) as client:
            subscription = await client.stream.subscribe("killed")
            writer = asyncio.create_task(publish_until_stopped(client, acknowledged))
            received: list[Event] = []
            for _ in range(2):
                received += await events_until(subscription, 50)
                server.kill()
                await asyncio.to_thread(server.restart)
            received += await events_until(subscription, 50)
            writer.cancel()
            history = await client.stream.history("killed", limit=10_000)
            while len(received) <= history.newest_offset:
                received += await events_until(subscription, 1)
            assert [event.offset for event in received] == list(range(history.newest_offset + 1))
            stored = {event.offset: event.data for event in received}
            assert {offset: stored[offset] for offset in acknowledged} == acknowledged
            assert len(set(stored.values())) == len(stored), "an event was stored twice"
    finally:
        server.kill()


async def publish_until_stopped(client: AsyncClient, acknowledged: dict[int, int]) -> None:
    """Each number once; what became of those whose answer was lost is nobody's business here."""
    number = 0
    while True:
        burst = [client.stream.publish("killed", "n", number + more) for more in range(10)]
        for more, answer in enumerate(await asyncio.gather(*burst, return_exceptions=True)):
            if isinstance(answer, Published):
                acknowledged[answer.offset] = number + more
            else:
                assert isinstance(answer, ConnectionLost | Unreachable), answer
        number += 10


@in_loop
async def test_a_connection_that_fell_silent_is_noticed(server: KwireProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "HEARTBEAT_S", 0.2)
    async with (
        cutting_proxy(HOST, server.http_port or 0) as proxy,
        client_of(proxy.url) as reader,
        client_of(server.http_url) as writer,
    ):
        subscription = await reader.stream.subscribe("silent")
        proxy.silence()
        connects = proxy.connects
        await writer.stream.publish("silent", "n", 1)
        assert (await subscription.next_event(WAIT_S)).data == 1
        # On a busy machine a connection that is only slow may be taken for silent as well.
        assert proxy.connects > connects


@in_loop
async def test_a_large_event_takes_a_request_of_its_own_and_too_large_a_one_is_refused(server: KwireProcess) -> None:
    async with client_of(server.http_url) as client:
        subscription = await client.stream.subscribe("large")
        text = "x" * 600_000
        assert (await client.stream.publish("large", "n", text, event_id="mine", key="k")).event_id == "mine"
        event = await subscription.next_event(WAIT_S)
        assert (event.event_id, event.data) == ("mine", text)
        with pytest.raises(Refused) as refused:
            await client.stream.publish("large", "n", "x" * 5_000_000)
        assert refused.value.code == "EventTooLarge"


@in_loop
async def test_a_room_made_anew_is_told_as_a_gap(server: KwireProcess) -> None:
    async with (
        cutting_proxy(HOST, server.http_port or 0) as proxy,
        client_of(proxy.url) as reader,
        client_of(server.http_url) as writer,
    ):
        await writer.stream.publish("anew", "n", "old")
        subscription = await reader.stream.subscribe("anew", from_offset=0)
        assert (await subscription.next_event(WAIT_S)).data == "old"
        proxy.is_down = True
        proxy.cut()
        await writer.rooms.delete("anew")
        await writer.stream.publish("anew", "n", "new")
        proxy.is_down = False
        with pytest.raises(GapFound) as found:
            await subscription.next_event(WAIT_S)
        assert found.value.gap == Gap("anew", 1, None, "room_recreated")
        event = await subscription.next_event(WAIT_S)
        assert (event.offset, event.data) == (0, "new")


@in_loop
async def test_events_lost_to_retention_are_told_as_a_gap(server: KwireProcess) -> None:
    async with client_of(server.http_url) as client:
        await client.rooms.create("ring", retention_mode="count", max_events=10)
        await client.stream.publish("ring", "n", 0)
        subscription = await client.stream.subscribe("ring", from_offset=0)
        assert (await subscription.next_event(WAIT_S)).data == 0
        position = subscription.position
        assert position is not None
        await subscription.close()
        await client.stream.publish_many("ring", [NewEvent("n", number) for number in range(1, 101)])
        oldest = 91
        async with asyncio.timeout(WAIT_S):
            while (await client.rooms.get("ring")).oldest_offset < oldest:
                await asyncio.sleep(0.05)
        resumed = await client.stream.subscribe("ring", resume=position)
        gap = await resumed.next_item(WAIT_S)
        assert gap == Gap("ring", 1, oldest - 1, "retention")
        assert (await resumed.next_event(WAIT_S)).offset == oldest


@in_loop
async def test_a_deleted_room_ends_its_subscriptions(server: KwireProcess) -> None:
    async with client_of(server.http_url) as client:
        subscription = await client.stream.subscribe("doomed")
        assert isinstance(await subscription.next_item(WAIT_S), CaughtUp)
        await client.rooms.delete("doomed")
        with pytest.raises(RoomNotFound):
            await subscription.next_item(WAIT_S)


@in_loop
async def test_rooms_are_listed_made_looked_at_and_deleted(server: KwireProcess) -> None:
    async with client_of(server.http_url) as client:
        for name in ("list/ä", "list/b", "list/c"):
            await client.rooms.create(name, retention_hours=1)
        assert sorted([name async for name in client.rooms.list("list/")]) == ["list/b", "list/c", "list/ä"]
        await client.stream.publish("list/ä", "n", None)
        subscription = await client.stream.subscribe("list/ä")
        room = await client.rooms.get("list/ä")
        assert (room.oldest_offset, room.newest_offset, room.subscribers) == (0, 0, 1)
        assert subscription.position == Position(room.epoch, 1)
        assert (await client.stream.event("list/ä", 0)).data is None
        await client.rooms.delete("list/b")
        with pytest.raises(RoomNotFound):
            await client.rooms.get("list/b")


@in_loop
async def test_a_filtered_reader_resumes_behind_what_was_filtered(server: KwireProcess) -> None:
    async with client_of(server.http_url) as client:
        await client.stream.publish_many("mixed", [NewEvent("noise", number) for number in range(100)])
        subscription = await client.stream.subscribe("mixed", from_offset=0, types={"signal"})
        assert await subscription.next_item(WAIT_S) == CaughtUp("mixed", 99)
        assert subscription.position is not None
        assert subscription.position.next_offset == 100


@pytest.mark.needs_node
@pytest.mark.proves("S0-53")
@TRANSPORTS
@in_loop
async def test_a_chat_member_gets_the_last_messages_and_publishes_in_javascript(
    server: KwireProcess, transport: str
) -> None:
    room = f"chat-room-{transport}"
    async with client_of(server.http_url) as other, javascript_client(server.http_url, transport) as client:
        await other.stream.publish_many(room, [NewEvent("message", number) for number in range(60)])
        await client.call("subscribe", room=room, options={"fromOffset": -50, "replay": True})
        stored = await client.call("publish", room=room, type="message", data={"user": "alice", "text": "Hello!"})
        assert stored["offset"] == 60
        assert await client.data(51) == [*range(10, 60), {"user": "alice", "text": "Hello!"}]
        assert room in await client.call("rooms", prefix="chat-room-")


@pytest.mark.needs_node
@TRANSPORTS
@in_loop
async def test_javascript_misses_and_repeats_nothing_over_cuts(server: KwireProcess, transport: str) -> None:
    room, count, chance = f"cut-{transport}", 400, random.Random(11)
    async with (
        cutting_proxy(HOST, server.http_port or 0) as proxy,
        javascript_client(proxy.url, transport) as reader,
        client_of(server.http_url) as writer,
    ):
        await reader.call("subscribe", room=room)
        for number in range(0, count, 10):
            await writer.stream.publish_many(room, [NewEvent("n", number + more) for more in range(10)])
            if chance.random() < 0.2:
                proxy.cut()
        events = await reader.call("events", count=count)
        assert [(event["offset"], event["data"]) for event in events] == [(number, number) for number in range(count)]


@pytest.mark.needs_node
@in_loop
async def test_javascript_notices_a_connection_that_fell_silent(server: KwireProcess) -> None:
    async with (
        cutting_proxy(HOST, server.http_port or 0) as proxy,
        javascript_client(proxy.url, "websocket", quietMs=200) as reader,
        client_of(server.http_url) as writer,
    ):
        await reader.call("subscribe", room="silent-js")
        proxy.silence()
        await writer.stream.publish("silent-js", "n", 1)
        assert await reader.data(1) == [1]


@pytest.mark.needs_node
@in_loop
async def test_javascript_tells_a_quiet_stream_of_lines_from_a_silent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's empty lines say that it lives; without them the stream is opened anew."""
    # One is due after a twentieth of the time that this client bears silence: a busy machine may be late with it.
    monkeypatch.setattr(stream_connections, "SWEEP_SECONDS", SILENCE_S / 20)
    interval = f"kwire.websocket.ping.interval.ms={SILENCE_S / 20 * 1000:.0f}"
    async with running_node(tmp_path, interval) as node:
        port = port_of(node)
        async with (
            cutting_proxy(HOST, port) as proxy,
            # The client waits twice as long for a line.
            javascript_client(proxy.url, "lines", quietMs=SILENCE_S / 2 * 1000) as reader,
            client_of(f"http://{HOST}:{port}") as writer,
        ):
            await reader.call("subscribe", room="silent-js")
            metrics = node.http._stream_connections.metrics  # type: ignore[union-attr]
            began, sent_bytes = time.monotonic(), metrics.sent_bytes
            await until(lambda: metrics.sent_bytes >= sent_bytes + 30 * len(NDJSON_HEARTBEAT))
            assert time.monotonic() - began > SILENCE_S
            assert proxy.connects == 1
            proxy.silence()
            await writer.stream.publish("silent-js", "n", 1)
            assert await reader.data(1) == [1]
            assert proxy.connects > 1  # Node may open one to spare


@pytest.mark.needs_node
@TRANSPORTS
@in_loop
async def test_a_large_event_of_javascript_takes_a_request_of_its_own(server: KwireProcess, transport: str) -> None:
    async with javascript_client(server.http_url, transport) as client:
        room, text = f"large-{transport}", "x" * 600_000
        await client.call("subscribe", room=room)
        stored = await client.call("publish", room=room, type="n", data=text, options={"eventId": "mine", "key": "k"})
        assert stored["eventId"] == "mine"
        assert await client.data(1) == [text]


@pytest.mark.needs_node
@TRANSPORTS
@in_loop
async def test_javascript_goes_on_after_the_server_was_killed(tmp_path: Path, transport: str) -> None:
    server = KwireProcess(tmp_path)
    server.start()
    server.ready()
    try:
        async with javascript_client(server.http_url, transport) as client:
            await client.call("subscribe", room="killed")
            for number in range(3):
                await client.call("publish", room="killed", type="n", data=number)
            server.kill()
            await asyncio.to_thread(server.restart)
            await client.call("publish", room="killed", type="n", data=3)
            events = await client.call("events", count=4)
            assert [(event["offset"], event["data"]) for event in events] == [(n, n) for n in range(4)]
    finally:
        server.kill()
