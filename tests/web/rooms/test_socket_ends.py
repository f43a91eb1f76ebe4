"""How a WebSocket of rooms ends: closes, clients that are slow or gone, and a node that stops."""

import asyncio
from typing import Any

import pytest

from kwire.server.http import stream_connections
from kwire.server.http.stream_connections import LINGER_SECONDS, SWEEP_SECONDS
from kwire.streams.events.publishing import Publisher
from tests.support.engines import Engine
from tests.support.node import in_uvloop
from tests.support.room_sockets import (
    WAIT_S,
    client_frame,
    http_stream,
    objects,
    port_of,
    raw_socket,
    room_socket,
    text,
    until,
)


@pytest.fixture
def patient_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stops gives its clients as long as the test waits: none is cut off because the machine is busy."""
    monkeypatch.setattr(stream_connections, "STOP_TIMEOUT_SECONDS", WAIT_S)


@in_uvloop
async def test_what_was_sent_before_a_close_is_done_and_answered_before_it(engine: Engine) -> None:
    """Commands wait here for a room that has to be made; who says goodbye meanwhile has still published."""
    goodbye = client_frame(8, (1000).to_bytes(2, "big"))
    burst = b"".join(text("stream.publish", n, room=f"new-{n % 2}", event_type="t", data=n) for n in range(10))
    async with engine.server("kwire.rooms.log.sync=group") as node:
        for ending, code in ((goodbye, 1000), (client_frame(3, b""), 1002)):
            async with raw_socket(port_of(node), burst + ending) as socket:
                found = await objects(socket, 10)
                assert sorted(one["request_id"] for one in found) == list(range(10))
                assert all("result" in one for one in found)
                assert await socket.close_code() == code
                assert await socket.is_at_end()


@pytest.mark.usefixtures("patient_stop")
def test_nothing_is_sent_behind_a_close(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to what is on its way when the node stops come before it, and errors not at all."""
    held: list[tuple[Any, ...]] = []
    publish = Publisher.publish

    @in_uvloop
    async def test() -> None:
        async with engine.server() as node, raw_socket(port_of(node)) as socket:
            socket.writer.write(text("stream.publish", 0, room="r", event_type="t", data=0))
            await objects(socket, 1)
            monkeypatch.setattr(Publisher, "publish", lambda *call: held.append(call))
            for number in range(1, 100):
                socket.writer.write(text("stream.publish", number, room="r", event_type="t", data=number))
            await until(lambda: len(held) == 99)
            stopping = asyncio.ensure_future(node.stop())
            await until(lambda: not node._is_ready)
            for call in held:
                publish(*call)
            found = await objects(socket, 99)
            assert [one["result"]["offset"] for one in found] == list(range(1, 100))
            assert (await socket.frame())[0] == 8
            socket.writer.write(client_frame(2, b"binary") + client_frame(9, b"ping") + text("stream.nothing"))
            socket.writer.write(client_frame(8, (1001).to_bytes(2, "big")))
            assert await asyncio.wait_for(socket.reader.read(), WAIT_S) == b""
            socket.writer.close()
            await asyncio.wait_for(stopping, WAIT_S)

    test()


@pytest.mark.proves("S0-29")
@in_uvloop
async def test_who_disconnects_is_no_subscriber_any_more(engine: Engine) -> None:
    async with engine.server() as node:
        async with room_socket(port_of(node)) as socket:
            await socket.result("stream.subscribe", room="r")
        await until(lambda: not len(node._subscriptions))
        async with raw_socket(port_of(node), text("stream.subscribe", 1, room="r")) as raw:
            await objects(raw, 1)
            assert len(node._subscriptions) == 1
        await until(lambda: not len(node._subscriptions))


@pytest.mark.proves("S0-26", "S0-27", "S0-38")
@in_uvloop
async def test_a_slow_reader_is_told_where_it_was_and_misses_nothing_when_it_comes_back(engine: Engine) -> None:
    settings = ("kwire.rooms.broadcast.timeout.ms=300", "kwire.rooms.checkpoint.events=1000000")
    async with engine.server(*settings) as node:
        port, count = port_of(node), 400
        subscribe = text("stream.subscribe", 1, room="r", from_offset=0)
        async with raw_socket(port, subscribe) as slow, room_socket(port) as writer:
            await objects(slow, 2)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(count):
                await writer.result("stream.publish", room="r", event_type="t", data=[number, "x" * 50_000])
            await until(lambda: node._subscriptions.counts.lag_actions == 1)
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            offsets: list[int] = []
            last: dict[str, Any] = {}
            while last.get("control") != "closed":
                (last,) = await objects(slow, 1)
                if "control" not in last:
                    offsets.append(last["offset"])
            assert last["code"] == "BroadcastFailed"
            assert last["reason"]
            assert offsets == list(range(last["offset"] + 1))
            assert len(offsets) < count
            # The connection goes on, and so does the reader.
            while len(offsets) < count:
                if last.get("control") == "closed":
                    # On a busy machine it may be too slow once more.
                    slow.writer.write(text("stream.subscribe", 2, room="r", from_offset=last["offset"] + 1))
                (last,) = await objects(slow, 1)
                if "data" in last:
                    offsets.append(last["offset"])
            assert offsets == list(range(count))


@in_uvloop
async def test_a_slow_reader_of_one_room_is_told_too_however_late_it_reads_on(engine: Engine) -> None:
    """Its connection ends with the subscription, but not before it has taken the last words."""
    settings = ("kwire.rooms.broadcast.timeout.ms=100", "kwire.rooms.checkpoint.events=1000000")
    async with engine.server(*settings) as node:
        port = port_of(node)
        path = "/rooms/r/subscribe"
        async with raw_socket(port, path=path) as slow, http_stream(port, path) as lines, room_socket(port) as writer:
            await objects(slow, 2)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            lines.pause()
            for number in range(400):
                await writer.result("stream.publish", room="r", event_type="t", data=[number, "x" * 50_000])
            await until(lambda: node._subscriptions.counts.lag_actions == 2)
            connections = node.http._stream_connections._connections  # type: ignore[union-attr]
            # Sweeps come when a client that has got everything would be cut off. What the client's machine took before
            # the first gives it more time, so the second is the one that counts.
            for _ in range(2):
                now = asyncio.get_running_loop().time() + LINGER_SECONDS + SWEEP_SECONDS
                for connection in connections:
                    connection.tick(now)
            # An answer takes several turns of the loop: a connection that was cut off would be gone by then.
            await writer.result("stream.publish", room="r", event_type="t", data="last")
            assert len(connections) == 3
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            last: dict[str, Any] = {}
            while last.get("control") != "closed":
                (last,) = await objects(slow, 1)
            assert last["code"] == "BroadcastFailed"
            assert await slow.close_code() == 1013
            lines.resume()
            last = {}
            while last.get("control") != "closed":
                last = await lines.message()
            assert last["code"] == "BroadcastFailed"
            assert await lines.line() is None
            assert lines.is_whole


@pytest.mark.usefixtures("patient_stop")
@in_uvloop
async def test_when_the_node_stops_readers_are_told_why_and_where_they_were(engine: Engine) -> None:
    async with engine.server() as node:
        subscribe = text("stream.subscribe", 1, room="r")
        async with raw_socket(port_of(node), subscribe) as socket:
            socket.writer.write(text("stream.publish", 2, room="r", event_type="t", data=1))
            await objects(socket, 4)
            stopping = asyncio.ensure_future(node.stop())
            (mark,) = await objects(socket, 1)
            assert (mark["control"], mark["room"], mark["code"], mark["offset"]) == ("closed", "r", "ServerStopping", 0)
            assert await socket.close_code() == 1001
            socket.writer.write(client_frame(8, (1001).to_bytes(2, "big")))
            assert await socket.is_at_end()
            await asyncio.wait_for(stopping, WAIT_S)


@in_uvloop
async def test_a_client_that_does_not_care_does_not_hold_up_the_stop(engine: Engine) -> None:
    async with engine.server() as node, raw_socket(port_of(node), text("stream.subscribe", 1, room="r")) as one:
        await objects(one, 2)
        await asyncio.wait_for(node.stop(), WAIT_S)
        assert await one.is_at_end()
