"""A room is a topic: Kafka clients, WebSockets, Server-Sent Events, lines of JSON and a polling cursor read the same.

Everybody reads while a Kafka producer and a WebSocket write into the room, and the server is a real process.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.clients import unique_name
from tests.support.node import in_loop
from tests.support.room_sockets import WAIT_S, RoomSocket, command_text, http_stream, room_socket
from tests.support.server import KwireProcess

DATA = re.compile(rb'"data":(.*),"timestamp":')


def port_of(process: KwireProcess) -> int:
    assert process.http_port
    return process.http_port


def data_of(line: bytes) -> bytes:
    """The very bytes of an event's data."""
    found = DATA.search(line)
    assert found is not None, line
    return found[1]


async def socket_lines(port: int, room: str, count: int) -> list[bytes]:
    async with connect(f"ws://127.0.0.1:{port}/ws", max_size=None) as socket:
        await socket.send(command_text("stream.subscribe", room=room, from_offset=0))
        lines: list[bytes] = []
        async with asyncio.timeout(WAIT_S):
            while len(lines) < count:
                message = await socket.recv(decode=False)
                if message.startswith(b'{"room"'):
                    lines.append(message)
        return lines


async def ndjson_lines(port: int, room: str, count: int) -> list[bytes]:
    lines: list[bytes] = []
    async with http_stream(port, f"/rooms/{room}/subscribe?from_offset=0") as stream:
        while len(lines) < count:
            line = await stream.line()
            assert line is not None
            if line.startswith(b'{"room"'):
                lines.append(line)
    return lines


async def curl_lines(port: int, room: str, count: int, *options: str) -> list[bytes]:
    """What `curl -N` prints, until it has printed so many events; its ids too where there are some."""
    url = f"http://127.0.0.1:{port}/rooms/{room}/subscribe?from_offset=0"
    curl = await asyncio.create_subprocess_exec("curl", "-sN", *options, url, stdout=asyncio.subprocess.PIPE)
    assert curl.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(WAIT_S):
            while len(lines) < count:
                line = (await curl.stdout.readline()).rstrip(b"\n")
                if line.removeprefix(b"data: ").startswith(b'{"room"'):
                    lines.append(line.removeprefix(b"data: "))
    finally:
        curl.kill()
        await curl.wait()
    return lines


async def cursor_lines(port: int, room: str, count: int) -> list[bytes]:
    """A cursor that asks again and again for what comes behind its place."""
    lines: list[bytes] = []
    place = 0
    async with aiohttp.ClientSession() as http, asyncio.timeout(WAIT_S):
        while len(lines) < count:
            url = f"http://127.0.0.1:{port}/rooms/{room}/events?from_offset={place}&limit=7"
            async with http.get(url, headers={"Accept": "application/x-ndjson"}) as answer:
                if answer.status == 200:
                    found = [line for line in (await answer.read()).split(b"\n") if line]
                    lines += found
                    place = json.loads(found[-1])["offset"] + 1 if found else place
            await asyncio.sleep(0.01)
    return lines


async def kafka_records(bootstrap: str, room: str, count: int) -> list[ConsumerRecord]:
    consumer = AIOKafkaConsumer(room, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    await consumer.start()
    try:
        async with asyncio.timeout(WAIT_S):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@asynccontextmanager
async def kafka_producer(bootstrap: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@pytest.mark.proves("S0-1", "S0-26", "S0-28", "S0-48")
@in_loop
async def test_kafka_sockets_streams_and_a_cursor_see_the_same_offsets_and_bytes_of_a_room_while_it_is_written(
    kwire: KwireProcess,
) -> None:
    room, port, each = unique_name("everybody"), port_of(kwire), 40
    count = 2 * each
    async with (
        room_socket(port) as publisher,
        kafka_producer(kwire.bootstrap) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        await publisher.result("stream.publish", room=room, event_type="first", data={"from": "socket", "n": 0})
        readers = {
            "websocket": tasks.create_task(socket_lines(port, room, count)),
            "ndjson": tasks.create_task(ndjson_lines(port, room, count)),
            "curl": tasks.create_task(curl_lines(port, room, count)),
            "curl sse": tasks.create_task(curl_lines(port, room, count, "-H", "Accept: text/event-stream")),
            "cursor": tasks.create_task(cursor_lines(port, room, count)),
        }
        kafka = tasks.create_task(kafka_records(kwire.bootstrap, room, count))
        written: dict[int, bytes] = {0: b'{"from":"socket","n":0}'}

        async def write_by_kafka() -> None:
            for number in range(each):
                value = b'{"from": "kafka", "n": %d, "big": 12345678901234567890123}' % number
                headers = [("ce_type", b"note"), ("ce_id", b"k-%d" % number), ("trace", b"t")]
                sent = await producer.send_and_wait(room, value, key=b"k", headers=headers)
                written[sent.offset] = value

        async def write_by_socket() -> None:
            for number in range(1, each):
                data = {"from": "socket", "n": number}
                answer = await publisher.result("stream.publish", room=room, event_type="t", data=data)
                written[answer["offset"]] = json.dumps(data, separators=(",", ":")).encode()

        await asyncio.gather(write_by_kafka(), write_by_socket())
    assert sorted(written) == list(range(count))
    records = kafka.result()
    assert [(record.offset, record.value) for record in records] == sorted(written.items())
    lines = readers.pop("websocket").result()
    for name, reader in readers.items():
        assert reader.result() == lines, name
    assert [json.loads(line)["offset"] for line in lines] == list(range(count))
    assert [data_of(line) for line in lines] == [record.value for record in records]
    for line, record in zip(lines, records, strict=True):
        event, headers = json.loads(line), dict(record.headers)
        assert (event["event_id"], event["type"]) == (headers["ce_id"].decode(), headers["ce_type"].decode())
        assert event["metadata"] == ({"trace": "t"} if "trace" in headers else {})


@in_loop
async def test_what_any_kafka_client_writes_is_shown_in_the_room(kwire: KwireProcess) -> None:
    room = unique_name("foreign")
    async with room_socket(port_of(kwire)) as socket, kafka_producer(kwire.bootstrap) as producer:
        await socket.result("stream.subscribe", room=room, from_offset=0)
        for value in (b"plain text", b"\xff\x00", None, b'{"ok": true}', b'"line\\nbreak"', b"[1,\n2]"):
            await producer.send_and_wait(room, value, key=b"k")
        events = await socket.events(6)
        assert [one["data"] for one in events] == [
            "plain text",
            {"base64": "/wA="},
            None,
            {"ok": True},
            "line\nbreak",
            [1, 2],
        ]
        assert [(one["type"], one["event_id"]) for one in events] == [("message", f"evt_{n}") for n in range(6)]


@pytest.mark.proves("S0-27")
@in_loop
async def test_a_reader_resumes_without_gap_or_repetition_over_kills_of_the_server(
    start_kwire: Callable[..., KwireProcess],
) -> None:
    process = start_kwire(settings={"kwire.rooms.log.sync": "group"})
    room, port = "lobby", port_of(process)
    published: list[int] = []
    seen: list[int] = []
    epoch: str | None = None

    async def read(socket: RoomSocket) -> None:
        nonlocal epoch
        facts = await socket.result("stream.subscribe", room=room, from_offset=len(seen), epoch=epoch)
        assert facts["recovered"]
        assert epoch in (None, facts["epoch"])
        epoch = facts["epoch"]
        while True:
            one = await socket.next()
            if "control" not in one:
                assert one["offset"] == len(seen)
                seen.append(one["data"])

    for round_number in range(3):
        async with room_socket(port) as reader, room_socket(port) as writer:
            reading = asyncio.ensure_future(read(reader))
            for number in range(50):
                data = round_number * 1000 + number
                await writer.result("stream.publish", room=room, event_type="t", data=data)
                published.append(data)
            await asyncio.to_thread(process.kill)
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(reading, WAIT_S)
        await asyncio.to_thread(process.restart)
    async with room_socket(port) as reader:
        reading = asyncio.ensure_future(read(reader))
        async with asyncio.timeout(WAIT_S):
            while len(seen) < len(published):
                await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert seen == published


@in_loop
async def test_a_clean_stop_tells_everybody_and_a_publish_that_was_answered_is_kept(
    killable: KwireProcess,
) -> None:
    process, room = killable, unique_name("stopped")
    port = port_of(process)
    async with (
        room_socket(port) as socket,
        http_stream(port, f"/rooms/{room}/subscribe") as lines,
        http_stream(port, f"/rooms/{room}/subscribe", Accept="text/event-stream") as sent,
    ):
        await socket.result("stream.subscribe", room=room)
        for number in range(100):
            await socket.result("stream.publish", room=room, event_type="t", data=number)
        stopping = asyncio.ensure_future(asyncio.to_thread(process.stop))
        events, mark = await socket.until("closed")
        assert len(events) == 100
        assert (mark["code"], mark["offset"]) == ("ServerStopping", 99)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        last: dict[str, Any] = {}
        while last.get("control") != "closed":
            last = await lines.message()
        assert last["offset"] == 99
        assert await lines.line() is None
        assert lines.is_whole
        while (await sent.sent_event()).get("event") != "closed":
            pass
        assert await stopping == 0
    await asyncio.to_thread(process.restart)
    async with room_socket(port) as socket:
        history = await socket.result("stream.history", room=room, limit=1000)
        assert [one["data"] for one in history["events"]] == list(range(100))


@in_loop
async def test_aiohttps_own_client_can_use_the_socket(kwire: KwireProcess) -> None:
    room = unique_name("aiohttp")
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{kwire.http_url}/ws", compress=15) as socket,
        asyncio.timeout(WAIT_S),
    ):
        await socket.send_str(command_text("stream.subscribe", 1, room=room))
        assert (await socket.receive_json())["request_id"] == 1
        assert (await socket.receive_json())["control"] == "caught_up"
        await socket.send_str(command_text("stream.publish", 2, room=room, event_type="t", data="x" * 200_000))
        assert (await socket.receive_json())["request_id"] == 2
        assert (await socket.receive_json())["data"] == "x" * 200_000
        await socket.ping(b"there?")
        await socket.close()
        assert socket.close_code == 1000


@in_loop
async def test_metrics_count_rooms_readers_and_sockets(kwire: KwireProcess) -> None:
    room = unique_name("counted")

    async def numbers(http: aiohttp.ClientSession) -> dict[str, float]:
        async with http.get(f"{kwire.http_url}/metrics") as answer:
            text = await answer.text()
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    async with aiohttp.ClientSession() as http, room_socket(port_of(kwire)) as socket:
        before = await numbers(http)
        await socket.result("stream.subscribe", room=room)
        for number in range(10):
            await socket.result("stream.publish", room=room, event_type="t", data=number)
        await socket.events(10)
        after = await numbers(http)
        assert after["kwire_rooms"] == before["kwire_rooms"] + 1
        assert after["kwire_rooms_subscribers"] >= 1
        assert after["kwire_rooms_deliveries_total"] >= before["kwire_rooms_deliveries_total"] + 10
        assert after["kwire_streams"] >= 1
        assert after["kwire_streams_commands_total"] >= before["kwire_streams_commands_total"] + 11
        assert not any(room in name for name in after if name.startswith(("kwire_rooms", "kwire_streams")))
