"""GET /rooms/{room}/subscribe: a WebSocket, Server-Sent Events or lines of JSON; resuming, marks, refusals, the end."""

import asyncio
import json

import pytest

from tests.support.engines import Engine
from tests.support.node import in_uvloop
from tests.support.room_sockets import (
    WAIT_S,
    RoomSocket,
    http_request,
    http_stream,
    port_of,
    raw_connection,
    room_socket,
    status_of,
    upgrade_request,
)

SSE = "text/event-stream"


async def publish(socket: RoomSocket, room: str, *data: object, event_type: str = "t") -> None:
    for one in data:
        await socket.result("stream.publish", room=room, event_type=event_type, data=one)


@pytest.mark.proves("S0-13", "S0-29")
@in_uvloop
async def test_lines_of_json_tell_where_they_begin_then_history_then_what_is_new(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "r", 0, 1)
        async with http_stream(port_of(node), "/rooms/r/subscribe?from_offset=0") as stream:
            assert b"application/x-ndjson" in stream.head
            first = await stream.message()
            assert (first["control"], first["room"], first["next_offset"]) == ("subscribed", "r", 0)
            assert (first["oldest_offset"], first["newest_offset"], first["recovered"]) == (0, 1, True)
            assert [(await stream.message())["data"] for _ in range(2)] == [0, 1]
            assert await stream.message() == {"control": "caught_up", "room": "r", "offset": 1}
            await publish(socket, "r", {"two": 2})
            event = await stream.message()
            assert list(event) == ["room", "event_id", "offset", "type", "data", "timestamp", "metadata"]
            assert (event["offset"], event["data"]) == (2, {"two": 2})


@in_uvloop
async def test_a_stream_over_http_1_0_is_refused(engine: Engine) -> None:
    async with engine.server() as node, raw_connection(port_of(node)) as (reader, writer):
        writer.write(b"GET /rooms/r/subscribe HTTP/1.0\r\nHost: localhost\r\n\r\n")
        head, _, body = (await asyncio.wait_for(reader.read(-1), WAIT_S)).partition(b"\r\n\r\n")
        assert b" 400 " in head.splitlines()[0]
        assert json.loads(body)["error"]["code"] == "HttpVersionNotSupported"


@in_uvloop
async def test_sent_events_have_offsets_as_ids_and_marks_have_names(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "r", 0)
        async with http_stream(port_of(node), "/rooms/r/subscribe?replay=true", Accept=f"{SSE}, */*") as stream:
            assert b"Content-Type: text/event-stream\r\n" in stream.head
            first = await stream.sent_event()
            assert first["event"] == "subscribed"
            assert "id" not in first
            event = await stream.sent_event()
            assert event["id"] == "0"
            assert "event" not in event
            assert json.loads(event["data"])["data"] == 0
            mark = await stream.sent_event()
            assert (mark["event"], mark["id"]) == ("caught_up", "0")


@pytest.mark.proves("S0-27")
@in_uvloop
async def test_a_browser_that_reconnects_goes_on_behind_the_last_id(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "r", *range(10))
        path = "/rooms/r/subscribe?from_offset=-3"
        async with http_stream(port_of(node), path, Accept=SSE, Last_Event_ID="4") as stream:
            assert json.loads((await stream.sent_event())["data"])["recovered"] is True
            assert [(await stream.sent_event())["id"] for _ in range(5)] == ["5", "6", "7", "8", "9"]


@in_uvloop
async def test_a_browser_whose_place_is_gone_is_told_the_gap_and_goes_on(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "r", *range(10))
        await engine.delete_before(node, "r", 6)
        async with http_stream(port_of(node), "/rooms/r/subscribe", Accept=SSE, Last_Event_ID="2") as stream:
            assert json.loads((await stream.sent_event())["data"])["recovered"] is False
            gap = await stream.sent_event()
            assert gap["event"] == "gap"
            told = json.loads(gap["data"])
            assert (told["from_offset"], told["to_offset"], told["reason"]) == (3, 5, "retention")
            assert [(await stream.sent_event())["id"] for _ in range(4)] == ["6", "7", "8", "9"]
        # It has seen more than there is: this is another room of the same name.
        async with http_stream(port_of(node), "/rooms/r/subscribe", Accept=SSE, Last_Event_ID="500") as stream:
            assert json.loads((await stream.sent_event())["data"])["recovered"] is False
            assert (await stream.sent_event())["id"] == "6"


@in_uvloop
async def test_a_browser_that_waits_for_what_is_still_to_come_is_not_sent_what_was_before(engine: Engine) -> None:
    """The place it is told, which it comes back with, lies behind everything there is."""
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "r", 0, 1)
        path = "/rooms/r/subscribe?from_offset=4"
        async with http_stream(port_of(node), path, Accept=SSE) as stream:
            await stream.sent_event()
            told = (await stream.sent_event())["id"]
        async with http_stream(port_of(node), path, Accept=SSE, Last_Event_ID=told) as stream:
            assert json.loads((await stream.sent_event())["data"])["next_offset"] == 4
            assert (await stream.sent_event())["event"] == "caught_up"
            await publish(socket, "r", 2, 3, 4)
            assert (await stream.sent_event())["id"] == "4"


@in_uvloop
async def test_as_a_websocket_it_is_a_connection_that_has_subscribed(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "a room/ü", 1, 2)
        path = "/rooms/a%20room%2F%C3%BC/subscribe?from_offset=1"
        async with room_socket(port_of(node), path) as subscribed:
            first = await subscribed.receive()
            assert set(first) == {"result"}
            assert (first["result"]["room"], first["result"]["next_offset"]) == ("a room/ü", 1)
            assert (await subscribed.next())["data"] == 2
            assert (await subscribed.next())["control"] == "caught_up"
            await publish(subscribed, "a room/ü", 3)
            assert (await subscribed.next())["data"] == 3


@in_uvloop
async def test_only_some_types_are_sent_and_checkpoints_tell_what_went_by(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        for number in range(6):
            await publish(socket, "r", number, event_type="even" if number % 2 == 0 else "odd")
        path = "/rooms/r/subscribe?from_offset=0&types=odd,other"
        async with http_stream(port_of(node), path) as stream:
            await stream.message()
            assert [(await stream.message())["data"] for _ in range(3)] == [1, 3, 5]
        async with http_stream(port_of(node), "/rooms/r/subscribe?from_offset=0&types=even", Accept=SSE) as sent:
            ids = [(await sent.sent_event()).get("id") for _ in range(5)]
            assert ids == [None, "0", "2", "4", "5"]


@in_uvloop
async def test_a_stream_ends_as_a_whole_when_the_node_stops_or_the_room_goes(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "gone", 1)
        await publish(socket, "stays", 1)
        async with (
            http_stream(port_of(node), "/rooms/gone/subscribe?from_offset=0") as gone,
            http_stream(port_of(node), "/rooms/stays/subscribe?from_offset=0", Accept=SSE) as stays,
            room_socket(port_of(node), "/rooms/gone/subscribe") as single,
        ):
            for _ in range(3):
                await gone.message()
                await stays.sent_event()
            await single.receive()
            await single.receive()
            await delete_room(port_of(node), "gone")
            mark = await gone.message()
            assert (mark["control"], mark["code"], mark["offset"]) == ("closed", "RoomNotFound", 0)
            assert await gone.line() is None
            assert gone.is_whole
            assert (await single.receive())["control"] == "closed"
            await asyncio.wait_for(single.connection.wait_closed(), WAIT_S)
            assert single.connection.close_code == 1013
            assert "offset=0" in (single.connection.close_reason or "")
            stopping = asyncio.ensure_future(node.stop())
            told = await stays.sent_event()
            assert told["event"] == "closed"
            assert json.loads(told["data"])["code"] == "ServerStopping"
            assert await stays.line() is None
            assert stays.is_whole
            await asyncio.wait_for(stopping, WAIT_S)


async def delete_room(port: int, room: str) -> None:
    async with raw_connection(port) as (reader, writer):
        writer.write(f"DELETE /rooms/{room} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.split()[1] in (b"200", b"204"), head


@in_uvloop
async def test_a_quiet_stream_has_heartbeats(engine: Engine) -> None:
    settings = ("kwire.websocket.ping.interval.ms=100", "kwire.rooms.checkpoint.ms=1000000")
    async with engine.server(*settings) as node:
        port = port_of(node)
        async with (
            http_stream(port, "/rooms/r/subscribe") as lines,
            http_stream(port, "/rooms/r/subscribe", Accept=SSE) as sent,
        ):
            for _ in range(2):
                await lines.message()
                await sent.sent_event()
            assert await lines.line() == b""
            assert await sent.line() == b":"


@in_uvloop
async def test_requests_that_cannot_be_served_are_refused_with_a_reason(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await publish(socket, "r", 1)
        port = port_of(node)
        subscribe = "/rooms/r/subscribe"
        refused = [
            (http_request("/ws"), 400),
            (upgrade_request(Sec_WebSocket_Version="8"), 426),
            (upgrade_request(Sec_WebSocket_Key="short"), 400),
            (upgrade_request(Sec_WebSocket_Key=""), 400),
            (upgrade_request(subscribe, Sec_WebSocket_Key="short"), 400),
            (upgrade_request(Origin="http://elsewhere.example"), 403),
            (upgrade_request(subscribe, Origin="http://elsewhere.example"), 403),
            (http_request(subscribe, Origin="http://elsewhere.example", Accept=SSE), 403),
            (http_request(subscribe, version="1.0"), 400),
            (http_request(subscribe, Content_Length="5") + b"hello", 400),
            (http_request(subscribe, Accept=SSE, Last_Event_ID="abc"), 400),
            (http_request(subscribe, Accept=SSE, Last_Event_ID="9" * 30), 400),
            (http_request(f"{subscribe}?from_offset=x"), 400),
            (http_request(f"{subscribe}?from_offset=99999999999999999999999"), 400),
            (http_request(f"{subscribe}?on_lag=never"), 400),
            (http_request(f"{subscribe}?unknown=1"), 400),
            (http_request(f"{subscribe}?from_time=yesterday"), 400),
            (http_request("/rooms/__consumer_offsets/subscribe"), 400),
            (upgrade_request("/rooms/__consumer_offsets/subscribe"), 400),
        ]
        for request, status in refused:
            found, head = await status_of(port, request)
            assert found == status, (request, head)
        assert len(node._subscriptions) == 0
        _, head = await status_of(port, upgrade_request(Sec_WebSocket_Version="8"))
        assert b"Sec-WebSocket-Version: 13" in head


@in_uvloop
async def test_a_listed_origin_may_read_streams(engine: Engine) -> None:
    async with engine.server("kwire.http.origins=http://app.example") as node:
        headers = {"Accept": SSE, "Origin": "http://app.example"}
        async with http_stream(port_of(node), "/rooms/r/subscribe", **headers) as stream:
            assert b"Access-Control-Allow-Origin: http://app.example\r\n" in stream.head


@pytest.mark.proves("S0-44")
@in_uvloop
async def test_one_reader_too_many_is_refused(engine: Engine) -> None:
    async with engine.server("kwire.rooms.max.subscribers=1") as node:
        port = port_of(node)
        async with http_stream(port, "/rooms/r/subscribe") as stream:
            await stream.message()
            found, _ = await status_of(port, http_request("/rooms/r/subscribe"))
            assert found == 429
            async with room_socket(port) as socket:
                assert (await socket.error("stream.subscribe", room="r"))["code"] == "TooManySubscribers"
