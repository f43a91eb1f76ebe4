"""Streams of lines that are mostly not events, and bodies that expand: bounded work, and the loop serves others."""

import gzip
import io
import zlib
from typing import Any

import msgspec
import pytest
from aiohttp import StreamReader

from kwire.web.requests.body_limits import STRINGS_MAX, VALUES_MAX
from kwire.web.requests.decompression import RATIO_MAX, UNIFORM_BYTES_MAX
from kwire.web.rooms import lines as room_lines
from kwire.web.rooms.lines import Line, Lines
from tests.support.engines import Engine, only_embedded
from tests.support.http import Answer, Http
from tests.support.node import in_loop
from tests.support.room_sockets import room_socket

NDJSON = "application/x-ndjson"
EVENT = b'{"event_type":"n","data":1}\n'
BLANK_BYTES = 20_000_000
METADATA_ENTRIES = 900_000


async def zipped(http: Http, path: str, body: bytes, content_type: str = "application/json") -> Answer:
    return await http.post(path, body, Content_Type=content_type, Content_Encoding="gzip")


async def posted(http: Http, path: str, body: bytes, content_type: str = "application/json") -> Answer:
    """A large body, which aiohttp sends in pieces if it is a file."""
    sent = {"Content-Type": content_type}
    async with http.session.post(f"{http.url}{path}", data=io.BytesIO(body), headers=sent) as answer:
        return Answer(answer.status, dict(answer.headers), await answer.read())


def many(count: int) -> bytes:
    return b"{" + b",".join(b'"m%d":""' % number for number in range(count)) + b"}"


def test_empty_lines_count() -> None:
    lines = Lines(1000)
    assert lines.feed(b"\n" * 500) == []
    assert lines.feed(b" \t\r\n" * 500 + b"x") == []
    assert [(one.number, one.text) for one in lines.feed(b"\n \n\n")] == [(1001, b"x")]
    # Spaces after the beginning of a line belong to it.
    assert lines.feed(b"y") == []
    assert [(one.number, one.text) for one in lines.feed(b" \n")] == [(1004, b"y ")]
    assert lines.feed(b" " * 2000) == []
    assert [(one.number, one.size_bytes) for one in lines.feed(b"\n")] == [(1005, 2000)]
    assert lines.next_number == 1006


@in_loop
async def test_a_bomb_of_empty_lines_is_refused_while_others_are_served(engine: Engine) -> None:
    async with engine.http() as http:
        bomb = gzip.compress(EVENT + b"\n" * BLANK_BYTES)
        assert len(bomb) < 50_000
        answer = await zipped(http, "/rooms/r/events", bomb, NDJSON)
        stored, refused = answer.lines
        assert stored["offset"] == 0
        assert (refused["error"]["code"], refused["error"]["limit"]) == ("ExpandsTooMuch", RATIO_MAX)
        # What is not read to its end is not decompressed either.
        assert refused["line"] < 2 * RATIO_MAX * len(bomb) + UNIFORM_BYTES_MAX
        assert (await http.get("/rooms/r/events")).json["newest_offset"] == 0


@in_loop
async def test_empty_lines_take_their_turns(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compression they may be of any number: each slice of them is one turn of the loop."""
    turns: list[int] = []
    feed = Lines.feed

    def counted(self: Lines, data: bytes) -> list[Line]:
        turns.append(len(data))
        return feed(self, data)

    monkeypatch.setattr(Lines, "feed", counted)
    async with engine.http() as http:
        answer = await posted(http, "/rooms/r/events", b"\n" * 2_000_000 + EVENT, NDJSON)
        assert [one["offset"] for one in answer.lines] == [0]
    assert max(turns) <= room_lines.SPLIT_BYTES_MAX
    assert sum(turns) == 2_000_000 + len(EVENT)


@in_loop
async def test_a_stream_of_refused_lines_ends(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_lines, "CONSECUTIVE_REFUSALS_MAX", 2000)
    async with engine.http() as http:
        body = b"{}\n" * 1999 + EVENT + b"{}\n" * 5000 + EVENT
        answers = (await http.post("/rooms/r/events", body, Content_Type=NDJSON)).lines
        assert [number for number, one in enumerate(answers) if "offset" in one] == [1999]
        assert answers[-1]["error"]["code"] == "TooManyRefusedLines"
        # Lines are counted by portions.
        assert 4000 <= answers[-1]["line"] == len(answers) <= 4000 + 2 * room_lines.BATCH_EVENTS_MAX
        told = await http.post("/rooms/r/events?answers=errors", b"{}\n" * 5000, Content_Type=NDJSON)
        assert told.lines[-1] == {"stored": 0, "refused": len(told.lines) - 1}


@in_loop
async def test_lines_of_a_hundred_events_a_portion_keep_their_answers(engine: Engine) -> None:
    """A large line among small ones is decoded by itself."""
    async with engine.http() as http:
        large = msgspec.json.encode({"event_type": "n", "data": "x" * 300_000}) + b"\n"
        answers = (await http.post("/rooms/r/events", EVENT + large + b"{}\n" + EVENT, Content_Type=NDJSON)).lines
        assert [one.get("offset", one.get("line")) for one in answers] == [0, 1, 3, 2]


@only_embedded("publishes to topics, too")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@in_loop
async def test_every_body_that_expands_too_much_is_refused(engine: Engine, encoding: str) -> None:
    async with engine.http() as http:
        pack = gzip.compress if encoding == "gzip" else zlib.compress
        bomb = pack(b'{"event_type":"n","data":1}' + b" " * 5_000_000)
        for path in ("/rooms/r/events", "/topics/t/publish", "/events", "/api/v1/command", "/topics", "/webhooks"):
            answer = await http.post(path, bomb, Content_Type="application/json", Content_Encoding=encoding)
            assert (answer.status, answer.code) == (413, "ExpandsTooMuch"), path
        # Uniform, but small; and large, but not uniform.
        small = pack(b'{"event_type":"n","data":1}' + b" " * 500_000)
        answer = await http.post("/rooms/r/events", small, Content_Type="application/json", Content_Encoding=encoding)
        assert answer.status == 201
        numbers = b",".join(b"%d" % (number * 7919 % 1_000_003) for number in range(250_000))
        large = pack(b'{"event_type":"n","data":[%b]}' % numbers)
        answer = await http.post("/rooms/r/events", large, Content_Type="application/json", Content_Encoding=encoding)
        assert (answer.status, answer.code) == (413, "EventTooLarge")


@in_loop
async def test_the_rest_of_a_refused_body_is_not_decompressed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is refused before its body is read: aiohttp would read the rest, and so decompress all of it."""
    expanded: list[int] = []
    feed = StreamReader.feed_data

    def counted(self: StreamReader, data: bytes, size: int = 0) -> bool:
        expanded.append(len(data))
        return feed(self, data, size)

    monkeypatch.setattr(StreamReader, "feed_data", counted)
    async with engine.http() as http:
        answer = await zipped(http, "/no/such/path", gzip.compress(b" " * 50_000_000))
        assert (answer.status, answer.headers["Connection"]) == (404, "close")
        assert (await http.get("/rooms")).status == 200
    assert sum(expanded) < 5_000_000


@only_embedded("publishes to topics and to the event store, too")
@pytest.mark.parametrize("is_array", [False, True])
@in_loop
async def test_a_million_names_of_metadata_are_counted_before_they_are_decoded(engine: Engine, is_array: bool) -> None:
    async with engine.http("message.max.bytes=20000000", "kwire.http.max.body.bytes=20000000") as http:
        metadata = many(METADATA_ENTRIES)
        event = b'{"event_type":"n","data":1,"metadata":%b}' % metadata
        stored = b'{"topic":"s","type":"n","payload":1,"metadata":%b}' % metadata
        # Of two members of one name a decoder makes both.
        twice = b'{"event_type":"n","data":1,"metadata":%b,"metadata":{}}' % metadata
        bodies = {"/rooms/r/events": [event, twice], "/topics/t/publish": [event], "/events": [stored]}
        await http.post("/topics/t", {"num_partitions": 1})
        for path, texts in bodies.items():
            for text in texts:
                answer = await posted(http, path, b"[%b]" % text if is_array else text)
                assert (answer.status, answer.code, answer.json["error"]["limit"]) == (
                    413,
                    "TooManyObjects",
                    STRINGS_MAX,
                )
        line = await posted(http, "/rooms/r/events", event + b"\n" + EVENT, NDJSON)
        assert [one.get("offset", one.get("line")) for one in line.lines] == [1, 0]


@only_embedded("the limit is that of the topic on the cluster")
@in_loop
async def test_data_may_hold_any_number_of_strings(engine: Engine) -> None:
    async with engine.http("message.max.bytes=20000000", "kwire.http.max.body.bytes=20000000") as http:
        data = many(METADATA_ENTRIES)
        body = b'[{"event_type":"n","data":%b,"metadata":{"a\\"b":"c"}}]' % data
        answer = await posted(http, "/rooms/r/events", body)
        assert answer.status == 201, answer


@only_embedded("changes topics and webhooks")
@in_loop
async def test_bodies_without_events_have_a_bound_on_their_values(engine: Engine) -> None:
    async with engine.http() as http:
        config = many(VALUES_MAX + 2)
        for path, body in {
            "/topics/t": b'{"num_partitions":1,"config":%b}' % config,
            "/webhooks": b'{"url":"http://a.example","topics":%b}' % config,
            "/topics": b'{"name":"s","schemas":[],"configs":%b}' % config,
        }.items():
            answer = await http.post(path, body, Content_Type="application/json")
            assert (answer.status, answer.code) == (413, "TooManyObjects"), path


@in_loop
async def test_commands_on_a_socket_are_counted_too(engine: Engine) -> None:
    async with engine.http() as http, room_socket(http.port) as socket:
        types: Any = [""] * (STRINGS_MAX + 100)
        told = await socket.error("stream.subscribe", room="r", types=types)
        assert told["code"] == "TooManyObjects"
        assert (await socket.result("stream.publish", room="r", event_type="n", data=types))["offset"] == 0
