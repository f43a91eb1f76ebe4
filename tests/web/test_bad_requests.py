"""Requests that are broken as HTTP, in their encoding or in their names: refused as JSON, never a 5xx, never a hang."""

import asyncio
import gzip
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.http import Http, http_node
from tests.support.node import in_loop

EVENT = b'{"event_type":"x","data":1}'
WAIT_S = 10.0
HEAD = b"POST /rooms/r/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
LINES_HEAD = HEAD.replace(b"json", b"x-ndjson")


async def exchange(http: Http, *pieces: bytes) -> tuple[int, Any]:
    """What is answered to a request that comes in pieces, each read before the next one comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await http.get("/healthz")  # a turn of the server's, so that it has seen the piece
        async with asyncio.timeout(WAIT_S):
            answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), msgspec.json.decode(body) if body[:1] == b"{" else body


def with_length(body: bytes, *headers: bytes) -> tuple[bytes, bytes]:
    return HEAD + b"".join(one + b"\r\n" for one in headers) + b"Content-Length: %d\r\n\r\n" % len(body), body


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = {
    "gzip that is none": with_length(b"nonsense", b"Content-Encoding: gzip"),
    "deflate that is none": with_length(b"\xff\xff\xff", b"Content-Encoding: deflate"),
    "an encoding nobody reads": with_length(EVENT, b"Content-Encoding: zstd"),
    "a chunk without a size": (HEAD + CHUNKED, b"zz\r\nxx\r\n"),
    "a chunk that is longer than its size": (HEAD + CHUNKED, b"3\r\nabcdef\r\n0\r\n\r\n"),
    "a chunk of endless size": (HEAD + CHUNKED, b"f" * 20 + b"\r\n"),
    "two hosts": (b"GET /rooms HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",),
    "no host": (b"GET /rooms HTTP/1.1\r\n\r\n",),
    "bytes in a path": (b"PUT /rooms/\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n",),
    "nothing of HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,),
    "a long path": (b"GET /rooms/" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",),
    "many headers": (b"GET /rooms HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",),
}


@pytest.mark.parametrize("name", BROKEN)
@in_loop
async def test_a_broken_request_is_refused_as_json_whenever_its_pieces_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.WARNING)
    async with http_node(tmp_path) as http:
        for pieces in (BROKEN[name], (b"".join(BROKEN[name]),)):
            status, told = await exchange(http, *pieces)
            assert status == 400
            assert told["error"]["code"] in ("InvalidHttp", "InvalidBody")
        assert (await http.get("/rooms")).json["room_count"] == 0
    # Whoever can reach the port could fill the log.
    assert not caplog.records


@in_loop
async def test_a_stream_of_lines_that_breaks_ends_without_its_last_chunk(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        line = EVENT + b"\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(LINES_HEAD + CHUNKED + b"%x\r\n%b\r\n" % (len(line), line))
        async with asyncio.timeout(WAIT_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b'"offset":0')
            writer.write(b"zz\r\n")
            assert not (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()
        # What was answered is stored all the same.
        assert (await http.get("/rooms/r/events")).json["newest_offset"] == 0


@in_loop
async def test_a_body_that_does_not_come_ends_its_request(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.http.receive.timeout.ms=50") as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(HEAD + b"Content-Length: 50\r\n\r\n" + EVENT)
        async with asyncio.timeout(WAIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        writer.close()


@in_loop
async def test_compressed_bodies_and_continued_ones_are_taken(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        status, told = await exchange(http, *with_length(gzip.compress(EVENT), b"Content-Encoding: gzip"))
        assert (status, told["offset"]) == (201, 0)
        head, body = with_length(EVENT, b"Expect: 100-continue")
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(head)
        async with asyncio.timeout(WAIT_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(body)
            assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()


@in_loop
async def test_a_compressed_body_is_as_bounded_as_any_other(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.http.max.body.bytes=1048576") as http:
        status, told = await exchange(http, *with_length(gzip.compress(b" " * 8_000_000), b"Content-Encoding: gzip"))
        assert (status, told["error"]["code"]) == (413, "BodyTooLarge")


@in_loop
async def test_a_header_that_is_no_text_is_refused_and_quoted(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        for more in (b"", b"Accept: application/vnd.kafka.v2+json\r\n"):
            head = b"GET /rooms HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more
            status, told = await exchange(http, head + b"Origin: http://\xe9.example\r\n\r\n")
            assert status == 403
            assert "\\udce9.example" in str(told)


@in_loop
async def test_escapes_in_a_path_that_are_no_text_name_nothing(tmp_path: Path) -> None:
    """They would be a second spelling of the room that has the percent signs in its name."""
    async with http_node(tmp_path) as http:
        for name in ("%ff", "%ED%A0%80", "%", "%zz", "a%2"):
            answer = await http.put(f"/rooms/{name}")
            assert (answer.status, answer.code) == (400, "InvalidName"), name
        assert (await http.put("/rooms/%25ff")).json["room"] == "%ff"
        assert (await http.put("/rooms/100%25%20%C3%A9")).json["room"] == "100% é"
        assert (await http.get("/rooms?prefix=%25")).json["room_count"] == 2


@in_loop
async def test_head_answers_what_get_does_without_the_body(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        for path in ("/healthz", "/rooms", "/docs", "/openapi.json", "/rooms/nowhere"):
            asked, got = await http.ask("HEAD", path), await http.get(path)
            assert (asked.status, asked.body) == (got.status, b"")
            assert asked.headers["Content-Length"] == got.headers["Content-Length"] == str(len(got.body))
        assert (await http.ask("HEAD", "/rooms/r/subscribe")).status == 405


@in_loop
async def test_a_body_of_too_many_objects_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        answer = await http.post("/rooms/r/events", b"[" + b",".join([b"{}"] * 60_000) + b"]")
        assert (answer.status, answer.code) == (413, "TooManyObjects")


@in_loop
async def test_whole_numbers_may_be_written_with_a_fraction_of_nothing(tmp_path: Path) -> None:
    """JSON Schema takes 5539.0 for an integer, so the API's description does."""
    async with http_node(tmp_path) as http:
        made = await http.put("/rooms/r", b'{"max_events": 5539.0}')
        assert made.json["retention"]["max_events"] == 5539
        assert (await http.put("/rooms/r", b'{"max_events": 5.5}')).status == 400
        # Nothing else becomes more lenient by it.
        assert (await http.put("/rooms/r", b'{"max_events": "5", "retention_hours": 2.0}')).status == 400
        assert (await http.put("/rooms/r", b'{"max_events": 7.0, "retention_hours": "2"}')).status == 400
        assert (await http.post("/topics/t", b'{"num_partitions": 3.0}')).json["num_partitions"] == 3
        await http.post("/rooms/r/events", b'{"event_type": "x", "data": {"a": 1.0, "b": "1.0"}}')
        asked = b'{"command": "stream.history", "payload": {"room": "r", "from_offset": 0.0, "limit": 1.0}}'
        assert b'"data":{"a":1.0,"b":"1.0"}' in (await http.post("/api/v1/command", asked)).body
        produced = await http.post(
            "/topics/t",
            b'{"records": [{"value": {"a": 1.0}, "partition": 2.0}]}',
            Content_Type="application/vnd.kafka.json.v2+json",
        )
        assert produced.json["offsets"][0]["partition"] == 2
        assert b'"a":1.0' in (await http.post("/topics/t/partitions/2/consume", {"limit": 1})).body


@in_loop
async def test_the_word_null_is_no_number_in_a_query(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.put("/rooms/null")
        for query in ("to_offset=null", "from_offset=NULL"):
            answer = await http.get(f"/rooms/null/events?{query}")
            assert (answer.status, answer.code) == (400, "BadRequest")
        # Where a text is asked for, it is one.
        assert [one["room"] for one in (await http.get("/rooms?prefix=null")).json["rooms"]] == ["null"]


@in_loop
async def test_only_true_and_false_are_booleans_in_a_query(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.post("/topics/plain")
        for query in ("events=1", "events=0", "events=yes", "events="):
            answer = await http.get(f"/topics?{query}")
            assert (answer.status, answer.code) == (400, "BadRequest"), query
        assert (await http.get("/topics?events=false")).json == ["plain"]
        assert (await http.get("/topics?events=true")).json == []
