"""The WebSocket of rooms: commands, and the order of answers and events."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.support.engines import Engine
from tests.support.node import in_uvloop
from tests.support.room_sockets import (
    command_text,
    objects,
    port_of,
    raw_socket,
    room_socket,
    text,
)


@pytest.mark.proves("S0-9", "S0-10", "S0-11", "S0-12", "S0-13", "S0-14")
@in_uvloop
async def test_one_socket_publishes_subscribes_reads_history_and_unsubscribes(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        facts = await socket.result("stream.subscribe", room="chat-room-1", from_offset=0)
        assert (facts["room"], facts["oldest_offset"], facts["newest_offset"]) == ("chat-room-1", 0, -1)
        assert facts["recovered"] is True
        assert facts["epoch"]
        assert await socket.next() == {"control": "caught_up", "room": "chat-room-1", "offset": -1}
        answer = await socket.result(
            "stream.publish", room="chat-room-1", event_type="message", data={"a": [1, None]}, metadata={"v": "1"}
        )
        assert set(answer) == {"event_id", "offset", "subscribers_notified"}
        assert answer["event_id"].startswith("evt_")
        assert (answer["offset"], answer["subscribers_notified"]) == (0, 1)
        event = await socket.next()
        assert list(event) == ["room", "event_id", "offset", "type", "data", "timestamp", "metadata"]
        assert event["timestamp"].endswith("Z")
        assert {**event, "timestamp": ""} == {
            "room": "chat-room-1",
            "event_id": answer["event_id"],
            "offset": 0,
            "type": "message",
            "data": {"a": [1, None]},
            "timestamp": "",
            "metadata": {"v": "1"},
        }
        history = await socket.result("stream.history", room="chat-room-1")
        assert (history["events"], history["oldest_offset"], history["newest_offset"]) == ([event], 0, 0)
        assert await socket.result("stream.unsubscribe", room="chat-room-1") == {"success": True}
        assert await socket.result("stream.unsubscribe", room="chat-room-1") == {"success": False}
        answer = await socket.result("stream.publish", room="chat-room-1", event_type="message", data=None)
        assert (answer["offset"], answer["subscribers_notified"]) == (1, 0)
        assert socket.unread == []


@pytest.mark.parametrize("request_id", ["a", 7, 1.5, [1, {"x": None}], {"k": "v"}, "ü\\u0000", True])
@in_uvloop
async def test_a_request_id_comes_back_as_it_was(engine: Engine, request_id: object) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await socket.connection.send(command_text("stream.publish", request_id, room="r", event_type="t", data=1))
        assert (await socket.receive())["request_id"] == request_id
        await socket.connection.send(command_text("stream.history", request_id, room="nobody"))
        assert (await socket.receive())["request_id"] == request_id
        await socket.connection.send(command_text("stream.publish", room="r", event_type="t", data=1))
        assert set(await socket.receive()) == {"result"}


@pytest.mark.proves("S0-26", "S0-29", "S0-32")
@in_uvloop
async def test_an_answer_comes_before_the_events_it_causes_also_when_all_is_sent_at_once(engine: Engine) -> None:
    """In one write: subscribe to a room that is not there, publish to it and to another one, and ask for history."""
    async with engine.server() as node:
        burst = text("stream.subscribe", "s", room="new", from_offset=0)
        burst += b"".join(text("stream.publish", n, room="new", event_type="t", data=n) for n in range(20))
        burst += text("stream.publish", "other", room="other", event_type="t", data=0)
        burst += text("stream.history", "h", room="new", limit=1000)
        async with raw_socket(port_of(node), burst) as socket:
            found = await objects(socket, 1 + 1 + 20 + 20 + 1 + 1)
        assert found[0]["request_id"] == "s"
        answered: set[int] = set()
        events = []
        for one in found:
            if isinstance(one.get("request_id"), int):
                assert one["result"]["offset"] == one["request_id"]
                answered.add(one["request_id"])
            elif "offset" in one and "control" not in one:
                assert one["data"] in answered
                events.append(one["offset"])
        assert events == list(range(20))
        (history,) = (one["result"] for one in found if one.get("request_id") == "h")
        assert [one["offset"] for one in history["events"]] == list(range(20))


@in_uvloop
async def test_thousands_of_publishes_in_one_go_are_answered_in_order_and_stored_in_order(engine: Engine) -> None:
    count = 5000
    async with engine.server() as node:
        burst = b"".join(text("stream.publish", n, room="busy", event_type="t", data=n) for n in range(count))
        async with raw_socket(port_of(node), burst) as socket:
            found = await objects(socket, count)
        assert [(one["request_id"], one["result"]["offset"]) for one in found] == [(n, n) for n in range(count)]


@pytest.mark.proves("S0-14", "S0-28")
@in_uvloop
async def test_a_connection_has_many_rooms(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        names = [f"room-{n}" for n in range(50)]
        for room in names:
            await socket.result("stream.subscribe", room=room)
        for room in names:
            await socket.result("stream.publish", room=room, event_type="t", data=room)
        events = await socket.events(50)
        assert sorted(one["room"] for one in events) == sorted(names)
        assert all(one["data"] == one["room"] and one["offset"] == 0 for one in events)


@pytest.mark.proves("S0-48")
@in_uvloop
async def test_many_subscribers_see_what_several_publishers_publish_in_the_same_order(engine: Engine) -> None:
    readers, publishers, each = 50, 4, 50
    async with engine.server() as node, asyncio.TaskGroup() as tasks:
        port, is_open = port_of(node), asyncio.Barrier(readers + publishers)

        async def read() -> list[tuple[int, Any]]:
            async with room_socket(port) as socket:
                await socket.result("stream.subscribe", room="lobby", from_offset=0)
                await is_open.wait()
                return [(one["offset"], one["data"]) for one in await socket.events(publishers * each)]

        async def publish(name: int) -> None:
            async with room_socket(port) as socket:
                await is_open.wait()
                for number in range(each):
                    answer = await socket.result("stream.publish", room="lobby", event_type="t", data=[name, number])
                    assert answer["subscribers_notified"] == readers

        reading = [tasks.create_task(read()) for _ in range(readers)]
        publishing = [tasks.create_task(publish(name)) for name in range(publishers)]
        await asyncio.gather(*publishing)
        seen = await asyncio.gather(*reading)
        assert [offset for offset, _ in seen[0]] == list(range(publishers * each))
        assert all(one == seen[0] for one in seen)
        for name in range(publishers):
            assert [data[1] for _, data in seen[0] if data[0] == name] == list(range(each))


@pytest.mark.proves("S0-34", "S0-36", "S0-37")
@in_uvloop
async def test_errors_have_stable_codes_and_say_what_a_program_needs(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        error = await socket.error("stream.history", room="nobody")
        assert (error["code"], error["room"]) == ("RoomNotFound", "nobody")
        assert (await socket.error("stream.unsubscribe", room="nobody"))["code"] == "RoomNotFound"
        for name in ("__consumer_offsets", "__x", ""):
            error = await socket.error("stream.publish", room=name, event_type="t", data=1)
            assert error["code"] in ("InvalidName", "InvalidCommand")
        for number in range(20):
            await socket.result("stream.publish", room="ring", event_type="t", data=number)
        await engine.delete_before(node, "ring", 15)
        for command in ("stream.subscribe", "stream.history"):
            error = await socket.error(command, room="ring", from_offset=1)
            assert error["code"] == "OffsetOutOfRange"
            assert (error["requested"], error["oldest"], error["newest"]) == (1, 15, 19)
        await socket.result("stream.subscribe", room="ring")
        error = await socket.error("stream.subscribe", room="ring")
        assert error["code"] == "SubscriptionFailed"
        assert "reason" in error


@in_uvloop
async def test_a_room_is_not_made_where_that_is_forbidden(engine: Engine) -> None:
    async with engine.server("kwire.rooms.auto.create=false") as node, room_socket(port_of(node)) as socket:
        assert (await socket.error("stream.publish", room="r", event_type="t", data=1))["code"] == "RoomNotFound"
        assert (await socket.error("stream.subscribe", room="r"))["code"] == "RoomNotFound"


@pytest.mark.proves("S0-9", "S0-11", "S0-13")
@in_uvloop
async def test_frames_are_these_bytes(engine: Engine) -> None:
    async with engine.server() as node:
        commands = text("stream.subscribe", "s", room="r") + text(
            "stream.publish", 7, room="r", event_type="said", data={"b": 1, "a": [1.50, None]}, metadata={"v": "1"}
        )
        async with raw_socket(port_of(node), commands) as socket:
            frames = [await socket.frame() for _ in range(4)]
            socket.writer.write(text("stream.unsubscribe", room="r") + text("stream.history", [1], room="other"))
            frames += [await socket.frame() for _ in range(2)]
        assert {opcode for opcode, _ in frames} == {1}
        subscribed, mark, answer, event, success, error = (payload.decode() for _, payload in frames)
        assert re.fullmatch(
            r'\{"request_id":"s","result":\{"room":"r","subscription_id":"sub_\d+","epoch":"[^"]+","oldest_offset":0,'
            r'"newest_offset":-1,"next_offset":0,"recovered":true\}\}',
            subscribed,
        )
        assert mark == '{"control":"caught_up","room":"r","offset":-1}'
        event_id = json.loads(answer)["result"]["event_id"]
        assert answer == (
            f'{{"request_id":7,"result":{{"event_id":"{event_id}","offset":0,"subscribers_notified":1}}}}'
        )
        assert re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME", event) == (
            f'{{"room":"r","event_id":"{event_id}","offset":0,"type":"said","data":{{"b":1,"a":[1.5,null]}},'
            '"timestamp":"TIME","metadata":{"v":"1"}}'
        )
        assert success == '{"result":{"success":true}}'
        assert error.startswith('{"request_id":[1],"error":{"code":"RoomNotFound","message":"')
        assert error.endswith('","room":"other"}}')


@in_uvloop
async def test_a_room_that_was_deleted_and_made_again_is_another_one_on_the_same_socket(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        epochs = set()
        for _ in range(5):
            facts = await socket.result("stream.subscribe", room="r", from_offset=0)
            assert (facts["next_offset"], facts["newest_offset"]) == (0, -1)
            epochs.add(facts["epoch"])
            assert (await socket.result("stream.publish", room="r", event_type="t", data=1))["offset"] == 0
            await engine.delete_room(node, "r")
            # Whoever has been told that it is gone can make it anew at once, and so can who has not heard it yet.
            events, mark = await socket.until("closed")
            assert [one["offset"] for one in events] in ([], [0])
            assert (mark["room"], mark["code"]) == ("r", "RoomNotFound")
        assert len(epochs) == 5
        facts = await socket.result("stream.subscribe", room="r", from_offset=1, epoch=min(epochs))
        assert (facts["recovered"], facts["next_offset"]) == (False, 0)


@in_uvloop
async def test_nothing_of_a_room_comes_behind_the_answer_to_unsubscribe(engine: Engine) -> None:
    """In the middle of history, of which there is more than can be sent at once."""
    async with engine.server() as node:
        burst = b"".join(text("stream.publish", room="r", event_type="t", data="x" * 1000) for _ in range(2000))
        async with raw_socket(port_of(node), burst) as raw:
            await objects(raw, 2000)
            raw.writer.write(text("stream.subscribe", 1, room="r", from_offset=0))
            await objects(raw, 10)
            raw.writer.write(text("stream.unsubscribe", 2, room="r"))
            before = 0
            while (await objects(raw, 1))[0].get("request_id") != 2:
                before += 1
            assert before < 1990
            raw.writer.write(text("stream.publish", 3, room="r", event_type="t", data=1))
            (answer,) = await objects(raw, 1)
            assert (answer["request_id"], answer["result"]["subscribers_notified"]) == (3, 0)
            # And again from the beginning.
            raw.writer.write(text("stream.subscribe", 4, room="r", from_offset=0))
            found = await objects(raw, 2003)
            assert [one["offset"] for one in found if "data" in one] == list(range(2001))


@in_uvloop
async def test_thousands_of_subscribes_and_unsubscribes_leave_nothing_behind(engine: Engine) -> None:
    count = 2000
    both = text("stream.subscribe", 1, room="r", from_offset=0) + text("stream.unsubscribe", 2, room="r")
    async with engine.server() as node, raw_socket(port_of(node), both * count) as raw:
        found = await objects(raw, 3 * count)
        assert [one.get("request_id") for one in found] == [1, None, 2] * count
        assert not any("error" in one for one in found)
        assert len(node._subscriptions) == node._subscriptions.feed_count == 0


@pytest.mark.proves("S0-28")
@in_uvloop
async def test_what_is_published_to_many_rooms_at_once_reaches_who_listens_to_all_of_them(engine: Engine) -> None:
    names = [f"room-{n}" for n in range(100)]
    async with engine.server() as node:
        subscribe = b"".join(text("stream.subscribe", room, room=room) for room in names)
        publish = b"".join(
            text("stream.publish", room=room, event_type="t", data=number) for number in range(5) for room in names
        )
        async with raw_socket(port_of(node), subscribe) as reader, raw_socket(port_of(node)) as writer:
            await objects(reader, 2 * len(names))
            writer.writer.write(publish)
            found = await objects(reader, 5 * len(names))
            for room in names:
                mine = [(one["offset"], one["data"]) for one in found if one["room"] == room]
                assert mine == [(n, n) for n in range(5)]


@in_uvloop
async def test_history_of_any_length_is_sent_as_fast_as_it_is_taken(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        for start in range(0, 3000, 500):
            burst = [
                command_text("stream.publish", room="r", event_type="t", data=[start + n, "x" * 500])
                for n in range(500)
            ]
            for message in burst:
                await socket.connection.send(message)
            for _ in burst:
                await socket.receive()
        await socket.result("stream.subscribe", room="r", from_offset=0)
        events, mark = await socket.until("caught_up")
        assert [one["data"][0] for one in events] == list(range(3000))
        assert mark["offset"] == 2999
