"""Events as a stream of lines: read as they come, answered line by line, and never more than a bounded amount held."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec
import pytest

from kwire.web.rooms import lines as room_lines
from kwire.web.rooms.lines import Lines
from tests.support.engines import Engine, only_embedded
from tests.support.http import Http
from tests.support.node import in_loop, in_uvloop

NDJSON = {"Content-Type": "application/x-ndjson"}
# No answer is waited for longer, however busy the machine is.
WAIT_S = 20.0
LONG_LINE_BYTES = 4 * 1024 * 1024
PIECES = 50_000


def line(number: object, **more: object) -> bytes:
    return msgspec.json.encode({"event_type": "n", "data": number, **more}) + b"\n"


async def stream(http: Http, chunks: Sequence[bytes], query: str = "") -> list[Any]:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    url = f"{http.url}/rooms/r/events{query}"
    async with http.session.post(url, data=body(), headers=NDJSON) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        return [msgspec.json.decode(one) for one in (await answer.read()).splitlines()]


@in_uvloop
async def test_each_line_is_answered_in_its_place(engine: Engine) -> None:
    async with engine.http() as http:
        lines = [
            line(1),
            b"\n",
            b'{"broken\n',
            line(2, metadata={"a": "b"}),
            b"  \r\n",
            line(3, metadata={"ce_type": "x"}),
            b'{"event_type": "n"}\n',
            b'{"event_type":"n","data":\n1}\n',
            line(4)[:-1],
        ]
        answers = await stream(http, [b"".join(lines)])
        shown = [one.get("offset", one.get("line")) for one in answers]
        assert shown == [0, 3, 1, 6, 7, 8, 9, 2]
        assert [one["error"]["code"] for one in answers if "error" in one] == [
            "InvalidJson",
            "InvalidEvent",
            "BadRequest",
            "InvalidJson",
            "BadRequest",
        ]
        events = (await http.get("/rooms/r/events")).json["events"]
        assert [event["data"] for event in events] == [1, 2, 4]
        assert [event["event_id"] for event in events] == [one["event_id"] for one in answers if "offset" in one]


@in_loop
async def test_lines_may_be_cut_anywhere(engine: Engine) -> None:
    async with engine.http() as http:
        whole = b"".join(line(number) for number in range(20))
        answers = await stream(http, [whole[place : place + 7] for place in range(0, len(whole), 7)])
        assert [one["offset"] for one in answers] == list(range(20))


@in_loop
async def test_an_answer_comes_while_the_request_goes_on(engine: Engine) -> None:
    """Somebody who publishes now and then over one request knows at once what became of each event."""
    async with engine.http() as http:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def body() -> AsyncIterator[bytes]:
            while (one := await lines.get()) is not None:
                yield one

        url = f"{http.url}/rooms/r/events"
        lines.put_nowait(line(0))
        async with asyncio.timeout(WAIT_S), http.session.post(url, data=body(), headers=NDJSON) as answer:
            for number in range(3):
                assert msgspec.json.decode(await answer.content.readline())["offset"] == number
                assert (await http.get("/rooms/r")).json["newest_offset"] == number
                lines.put_nowait(line(number + 1) if number < 2 else None)
            assert await answer.content.read() == b""


@in_loop
async def test_stream_goes_on_in_the_room_that_is_there_when_its_own_was_deleted(engine: Engine) -> None:
    async with engine.http() as http:
        deleted = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield line(1)
            await deleted.wait()
            yield line(2)

        async with http.session.post(f"{http.url}/rooms/r/events", data=body(), headers=NDJSON) as answer:
            async with asyncio.timeout(WAIT_S):
                assert msgspec.json.decode(await answer.content.readline())["offset"] == 0
                assert (await http.delete("/rooms/r")).status == 200
                deleted.set()
                assert msgspec.json.decode(await answer.content.readline())["offset"] == 0
        assert [event["data"] for event in (await http.get("/rooms/r/events")).json["events"]] == [2]


@in_loop
async def test_only_errors_are_told_to_who_wants_no_more(engine: Engine) -> None:
    async with engine.http() as http:
        answers = await stream(http, [line(1), b"{\n", line(2)], "?answers=errors")
        assert [one.get("line") for one in answers] == [2, None]
        assert answers[-1] == {"stored": 2, "refused": 1}
        assert (await http.post("/rooms/r/events?answers=some", line(1), **NDJSON_HEADERS)).status == 400


NDJSON_HEADERS = {"Content_Type": "application/x-ndjson"}


@only_embedded("the limit is that of the topic on the cluster")
@in_uvloop
async def test_many_lines_keep_their_order(engine: Engine) -> None:
    async with engine.http("message.max.bytes=20000") as http:
        # Some are large, and one is too large for any batch: it fails alone.
        lines = [line(number, metadata={"fill": "x" * (number % 50 * 100)}) for number in range(3000)]
        lines[1500] = line("x" * 30_000)
        answers = await stream(http, lines)
        assert [one["error"]["code"] for one in answers if "error" in one] == ["EventTooLarge"]
        assert answers[1500]["line"] == 1501
        assert [one["offset"] for one in answers if "offset" in one] == list(range(2999))
        events = (await http.get("/rooms/r/events?limit=10000")).json["events"]
        assert [event["data"] for event in events] == [number for number in range(3000) if number != 1500]


@in_loop
async def test_a_line_that_is_too_long_is_refused_and_the_next_one_is_read(engine: Engine) -> None:
    async with engine.http("kwire.http.max.body.bytes=10000") as http:
        answers = await stream(http, [line(1), b"x" * 9000, b"x" * 9000, b"x" * 9000 + b"\n", line(2)])
        assert [one.get("offset") for one in answers] == [0, None, 1]
        assert answers[1]["error"] == {
            "code": "EventTooLarge",
            "message": answers[1]["error"]["message"],
            "size_bytes": 27_000,
            "limit": 10_000,
        }


# More than what the sockets and the server hold of lines whose answers nobody takes.
CHUNKS_MAX = 100


@in_loop
async def test_who_does_not_read_answers_is_not_read_from(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that nobody takes hold up the lines, and after a while the connection ends; memory does not grow."""
    monkeypatch.setattr(room_lines, "BATCH_EVENTS_MAX", 50)
    async with engine.http("kwire.send.timeout.ms=1500") as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1024)
        head = (
            "POST /rooms/r/events HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(head.encode())
        lines = b"{}\n" * 20_000
        chunk = b"%x\r\n%b\r\n" % (len(lines), lines)
        async with asyncio.timeout(WAIT_S):
            chunk_count = await chunks_taken(writer, chunk)
        assert chunk_count < CHUNKS_MAX
        writer.close()
        # The server is well.
        assert (await http.get("/rooms/r")).status == 200
        del reader


async def chunks_taken(writer: asyncio.StreamWriter, chunk: bytes) -> int:
    """How many of them are read before the connection ends."""
    chunk_count = 0
    try:
        while True:
            writer.write(chunk)
            await writer.drain()
            chunk_count += 1
    except ConnectionError:
        return chunk_count


@in_loop
async def test_the_end_of_the_node_ends_a_stream_with_all_its_answers(engine: Engine) -> None:
    async with engine.http() as http:
        more = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield line(1)
            await more.wait()

        url = f"{http.url}/rooms/r/events"
        async with asyncio.timeout(WAIT_S), http.session.post(url, data=body(), headers=NDJSON) as answer:
            assert msgspec.json.decode(await answer.content.readline())["offset"] == 0
            await http.server.stop()
            assert await answer.content.read() == b""
            more.set()


@in_loop
async def test_a_client_that_goes_away_leaves_what_it_sent(engine: Engine) -> None:
    async with engine.http() as http:
        _, writer = await asyncio.open_connection("127.0.0.1", http.port)
        text = line(1) + line(2)
        head = "POST /rooms/r/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n".encode() + text + b'{"half')
        async with asyncio.timeout(WAIT_S):
            while (await http.get("/rooms/r")).status == 404 or (await http.get("/rooms/r")).json["newest_offset"] < 1:
                await asyncio.sleep(0)
        writer.transport.abort()
        assert [event["data"] for event in (await http.get("/rooms/r/events")).json["events"]] == [1, 2]


def test_a_long_line_in_small_pieces_takes_no_longer_than_its_bytes() -> None:
    """Each piece was once added by copying the whole line so far: four megabytes took minutes.

    A copy takes memory as well as time, and memory does not depend on how busy the machine is.
    """
    lines = Lines(2 * LONG_LINE_BYTES)
    lines.feed(b"x" * LONG_LINE_BYTES)
    tracemalloc.start()
    try:
        feed_pieces(lines, PIECES // 100)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What grows in place may be moved once, to take some room in advance.
    assert peak_bytes < 1.5 * LONG_LINE_BYTES
    feed_pieces(lines, PIECES - PIECES // 100)
    (found,) = lines.feed(b"\n")
    assert found.size_bytes == LONG_LINE_BYTES + PIECES


def feed_pieces(lines: Lines, count: int) -> None:
    for _ in range(count):
        assert lines.feed(b"y") == []


def test_lines_hold_no_more_than_one_line() -> None:
    lines = Lines(10)
    assert lines.feed(b"abc") == []
    assert [(one.number, one.text) for one in lines.feed(b"d\n\n x \ny")] == [(1, b"abcd"), (3, b" x ")]
    assert lines.feed(b"y" * 1000) == []
    assert lines.partial_bytes == 0
    found = lines.feed(b"y\nz")
    assert [(one.number, one.text, one.size_bytes) for one in found] == [(4, None, 1002)]
    assert [(one.number, one.text) for one in lines.end()] == [(5, b"z")]


@in_loop
async def test_one_connection_serves_again_after_a_stream(engine: Engine) -> None:
    async with engine.http() as http:
        for number in range(3):
            assert [one["offset"] for one in await stream(http, [line(0)])] == [number]
        assert len(http.session.connector._conns) == 1  # type: ignore[union-attr]
        assert isinstance(http.session, aiohttp.ClientSession)
