"""The WebSocket of rooms and clients that send nonsense, too much or nothing: a clear word, and no harm to others."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from kwire.web.streaming.websocket_frames import FRAMES_PER_CHUNK, FrameReader, Message
from tests.support.engines import Engine
from tests.support.node import in_uvloop
from tests.support.room_sockets import (
    client_frame,
    command_text,
    objects,
    port_of,
    raw_socket,
    room_socket,
    text,
    until,
)

BAD_TEXTS = [
    ("", "InvalidJson"),
    ("{", "InvalidJson"),
    ("nonsense", "InvalidJson"),
    ('{"command": "stream.publish", "payload": {"room": "r", "event_type": "t", "data": }}', "InvalidJson"),
    ('{"command": "stream.publish", "payload": ' + "[" * 100_000, "InvalidCommand"),
    ('{"x": ' + "[" * 100_000, "InvalidJson"),
    ("null", "InvalidCommand"),
    ("[]", "InvalidCommand"),
    ("{}", "InvalidCommand"),
    ('{"command": 7}', "InvalidCommand"),
    ('{"command": "stream.publish"}', "InvalidCommand"),
    ('{"command": "stream.nothing", "payload": {}}', "UnknownCommand"),
    (command_text("stream.publish", room="r", event_type="t"), "InvalidCommand"),
    (command_text("stream.publish", room=7, event_type="t", data=1), "InvalidCommand"),
    (command_text("stream.publish", room="r", event_type=None, data=1), "InvalidCommand"),
    (command_text("stream.publish", room="r", event_type="", data=1), "InvalidCommand"),
    (command_text("stream.publish", room="r", event_type="t", data=1, metadata={"a": 1}), "InvalidCommand"),
    (command_text("stream.publish", room="r", event_type="t", data=1, metadata=[]), "InvalidCommand"),
    (command_text("stream.publish", room="r", event_type="t", data=1, metadata={"ce_id": "x"}), "InvalidEvent"),
    (command_text("stream.publish", room="r", event_type="t", data=1, unknown=1), "InvalidCommand"),
    (command_text("stream.subscribe", room="r", from_offset="5"), "InvalidCommand"),
    (command_text("stream.subscribe", room="r", from_offset=1.5), "InvalidCommand"),
    (command_text("stream.subscribe", room="r", from_offset=2**70), "SubscriptionFailed"),
    (command_text("stream.subscribe", room="r", from_offset=-(2**70)), "SubscriptionFailed"),
    (command_text("stream.subscribe", room="r", from_offset=1, from_time=1), "SubscriptionFailed"),
    (command_text("stream.subscribe", room="r", from_time="yesterday"), "SubscriptionFailed"),
    (command_text("stream.subscribe", room="r", on_lag="never"), "InvalidCommand"),
    (command_text("stream.subscribe", room="r", types=[]), "SubscriptionFailed"),
    (command_text("stream.subscribe", room="r", queue=-1), "SubscriptionFailed"),
    (command_text("stream.history", room="r", limit=0), "InvalidCommand"),
    (command_text("stream.history", room="r", limit=10**9), "InvalidCommand"),
    (command_text("stream.history", room="r", from_offset=-(2**70)), "InvalidCommand"),
    (command_text("stream.unsubscribe"), "InvalidCommand"),
]


@in_uvloop
async def test_bad_texts_get_an_error_and_the_connection_goes_on(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await socket.result("stream.publish", room="r", event_type="t", data="first")
        for message, code in BAD_TEXTS:
            await socket.connection.send(message)
            answer = await socket.receive()
            assert answer["error"]["code"] == code, (message[:200], answer)
            assert answer["error"]["message"]
            assert len(json.dumps(answer)) < 3000
        await socket.connection.send(b"binary")
        assert (await socket.receive())["error"]["code"] == "InvalidCommand"
        assert (await socket.result("stream.publish", room="r", event_type="t", data="last"))["offset"] == 1


@in_uvloop
async def test_the_error_for_a_bad_command_names_the_request(engine: Engine) -> None:
    async with engine.server() as node, room_socket(port_of(node)) as socket:
        await socket.connection.send('{"request_id": "x", "command": "stream.publish", "payload": 7}')
        assert (await socket.receive())["request_id"] == "x"


@in_uvloop
async def test_a_message_that_is_too_large_ends_the_connection_and_nothing_of_it_is_stored(engine: Engine) -> None:
    async with engine.server("kwire.websocket.max.message.bytes=1000") as node:
        port = port_of(node)
        async with room_socket(port) as socket:
            await socket.result("stream.publish", room="r", event_type="t", data="x" * 500)
        large = text("stream.publish", 2, room="r", event_type="t", data="x" * 2000)
        small = text("stream.publish", 1, room="r", event_type="t", data="small")
        async with raw_socket(port, small + large + small) as raw:
            assert await raw.close_code() == 1009
            assert await raw.is_at_end()
        pieces = client_frame(1, b"x" * 600, fin=False) + client_frame(0, b"x" * 600)
        async with raw_socket(port, pieces) as raw:
            assert await raw.close_code() == 1009
        async with room_socket(port) as socket:
            history = await socket.result("stream.history", room="r")
            assert [one["data"] for one in history["events"]] == ["x" * 500, "small"]


LAST_FRAMES = [
    (b"\x81\x02{}", 1002),
    (client_frame(3, b""), 1002),
    (client_frame(9, b"x" * 126), 1002),
    (client_frame(0, b"x"), 1002),
    (client_frame(1, b"\xff"), 1007),
    (client_frame(8, b"\x03"), 1002),
    (client_frame(8, (1005).to_bytes(2, "big")), 1002),
    (client_frame(8, (1000).to_bytes(2, "big") + b"bye"), 1000),
    (client_frame(8, (4000).to_bytes(2, "big")), 4000),
]


@in_uvloop
async def test_who_breaks_the_protocol_or_closes_is_answered_with_the_right_code(engine: Engine) -> None:
    async with engine.server() as node:
        for sent, code in LAST_FRAMES:
            async with raw_socket(port_of(node), sent + b"\x00" * 50) as socket:
                assert await socket.close_code() == code, sent
                assert await socket.is_at_end()
        await until(lambda: node.http._stream_connections.metrics.open_count == 0)  # type: ignore[union-attr]


@in_uvloop
async def test_a_message_may_come_in_pieces_with_pings_between_them(engine: Engine) -> None:
    whole = command_text("stream.publish", "p", room="r", event_type="t", data="äöü" * 50).encode()
    pieces = [whole[start : start + 7] for start in range(0, len(whole), 7)]
    async with engine.server() as node, raw_socket(port_of(node)) as socket:
        for index, piece in enumerate(pieces):
            socket.writer.write(client_frame(0 if index else 1, piece, fin=index == len(pieces) - 1))
            socket.writer.write(client_frame(9, b"%d" % index))
        assert (await objects(socket, 1))[0]["result"]["offset"] == 0


FLOODS = {
    "bad texts": client_frame(1, b"x"),
    "binary": client_frame(2, b""),
    "pings": client_frame(9, b""),
    "empty pieces": client_frame(0, b"", fin=False),
    "publishes": text("stream.publish", 1, room="r", event_type="t", data=1),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_small_frames_is_taken_in_portions(
    engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system hands over a quarter of a megabyte at once; that may be forty thousand commands."""
    taken: list[int] = []
    feed = FrameReader.feed

    def counting_feed(reader: FrameReader, data: bytes) -> list[Message]:
        found = feed(reader, data)
        taken.append(len(found))
        return found

    monkeypatch.setattr(FrameReader, "feed", counting_feed)

    @in_uvloop
    async def test() -> None:
        async with engine.server() as node, raw_socket(port_of(node)) as flood:
            count = 200_000 // len(FLOODS[kind])
            if kind == "empty pieces":
                flood.writer.write(client_frame(1, b"", fin=False))
            flood.writer.write(FLOODS[kind] * count + client_frame(8, (1000).to_bytes(2, "big")))
            answers = 0
            while True:
                opcode, payload = await flood.frame()
                if opcode == 8:
                    break
                answers += 1
            assert payload == (1000).to_bytes(2, "big")
            assert max(taken) <= FRAMES_PER_CHUNK
            # Everything that came before the close was answered before it.
            assert answers == count or kind in ("pings", "empty pieces")

    test()


def test_many_floods_share_one_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections flood the server, an iteration of the loop reads on for one of them."""
    feed = FrameReader.feed
    iteration = 0
    read_on: Counter[int] = Counter()

    def counting_feed(reader: FrameReader, data: bytes) -> list[Message]:
        if not data:
            read_on[iteration] += 1
        return feed(reader, data)

    monkeypatch.setattr(FrameReader, "feed", counting_feed)

    @in_uvloop
    async def test() -> None:
        loop = asyncio.get_running_loop()

        def count_iteration() -> None:
            nonlocal iteration
            iteration += 1
            loop.call_soon(count_iteration)

        async with engine.server() as node, AsyncExitStack() as stack:
            floods = [await stack.enter_async_context(raw_socket(port_of(node))) for _ in range(5)]
            loop.call_soon(count_iteration)
            for flood in floods:
                flood.writer.write(client_frame(9, b"") * 10_000 + client_frame(8, (1000).to_bytes(2, "big")))
            for flood in floods:
                while (await flood.frame())[0] != 8:
                    pass

    test()
    assert len(read_on) > 5 * 10_000 / FRAMES_PER_CHUNK / 2
    assert max(read_on.values()) == 1


@in_uvloop
async def test_a_flood_of_pings_is_answered_in_short_and_harms_nobody(engine: Engine) -> None:
    async with engine.server() as node, raw_socket(port_of(node)) as flood, room_socket(port_of(node)) as other:
        pings = b"".join(client_frame(9, b"%d" % number) for number in range(50_000))
        flood.writer.write(pings)
        assert (await other.result("stream.publish", room="r", event_type="t", data=1))["offset"] == 0
        payload = b""
        answers = 0
        while payload != b"49999":
            opcode, payload = await flood.frame()
            assert opcode == 10
            answers += 1
        assert answers < 5000


@in_uvloop
async def test_who_asks_and_never_reads_is_not_read_from_any_more(engine: Engine) -> None:
    """A small question can have a large answer; what is unsent is bounded, and the sender is made to wait."""
    async with engine.server("kwire.send.timeout.ms=1000") as node:
        port = port_of(node)
        async with room_socket(port) as socket:
            for _ in range(20):
                await socket.result("stream.publish", room="r", event_type="t", data="x" * 100_000)
        metrics = node.http._stream_connections.metrics  # type: ignore[union-attr]
        ask = text("stream.history", room="r")
        async with raw_socket(port, ask * 200) as greedy:
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            greedy.writer.write(ask * 50_000)
            # Unread, it is cut off; other sockets go on.
            await until(lambda: metrics.closed_stuck == 1)
            assert metrics.sent_bytes < 64 * 1024 * 1024
        async with room_socket(port) as socket:
            await socket.result("stream.publish", room="r", event_type="t", data=1)


@pytest.mark.proves("S0-31")
@in_uvloop
async def test_who_answers_no_ping_is_removed_and_who_does_stays(engine: Engine) -> None:
    settings = ("kwire.websocket.ping.interval.ms=200", "kwire.websocket.idle.timeout.ms=1500")
    async with engine.server(*settings) as node:
        subscribe = text("stream.subscribe", 1, room="r")
        async with room_socket(port_of(node)) as alive, raw_socket(port_of(node), subscribe) as silent:
            await alive.result("stream.subscribe", room="r")
            await objects(silent, 1)
            assert len(node._subscriptions) == 2
            assert await silent.is_at_end()
            await until(lambda: len(node._subscriptions) == 1)
            answer = await alive.result("stream.publish", room="r", event_type="t", data=1)
            assert answer["subscribers_notified"] == 1
