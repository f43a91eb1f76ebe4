"""What the HTTP port takes in: bodies, messages, heads of requests and connections, each within its bounds."""

import asyncio
from pathlib import Path

import pytest

from tests.support.http import Http, http_node
from tests.support.node import in_uvloop
from tests.support.room_sockets import WAIT_S, client_frame, raw_connection, raw_socket, status_of, until
from tests.web.test_large_answers import memory_of

MIB = 1024 * 1024
HEAD = b"POST /rooms/r/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
EVENT = b'{"event_type":"e","data":1}'


def length(count: int) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % count


def large_event() -> bytes:
    return EVENT + b" " * 200_000


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection; nothing if it aborts it."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await reader.read(-1)
        except ConnectionError:
            return b""


async def fill_memory(http: Http) -> None:
    """Leave room for small bodies only."""
    memory = memory_of(http)
    lease = memory.lease()
    while lease.try_hold(lease.size_bytes + 100_000):
        pass


@in_uvloop
async def test_bodies_that_do_not_fit_wait_and_are_refused_and_small_ones_are_served(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.http.memory.wait.ms=50") as http:
        await fill_memory(http)
        used = memory_of(http).used_bytes
        for headers in ({}, {"Accept": "application/vnd.kafka.v2+json"}):
            answer = await http.ask(
                "POST", "/rooms/r/events", large_event(), Content_Type="application/json", **headers
            )
            assert answer.status == 503
            assert answer.headers["Retry-After"] == "1"
        assert b"kwire.http.memory.bytes" in answer.body
        assert (await http.post("/rooms/r/events", {"event_type": "e", "data": "x" * 30_000})).status == 201
        assert memory_of(http).used_bytes == used


@in_uvloop
async def test_a_body_waits_until_there_is_memory(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        memory = memory_of(http)
        taken = memory.lease()
        while taken.try_hold(taken.size_bytes + 100_000):
            pass
        asked = asyncio.ensure_future(
            http.ask("POST", "/rooms/r/events", large_event(), Content_Type="application/json")
        )
        await until(lambda: memory.waiting == 1)
        taken.release()
        assert (await asked).status == 201
        assert memory.used_bytes == 0


@pytest.mark.parametrize("behind", [length(MIB), b"Transfer-Encoding: chunked\r\n\r\n100000\r\n"])
@in_uvloop
async def test_a_body_that_stops_gives_its_memory_back(tmp_path: Path, behind: bytes) -> None:
    async with http_node(tmp_path, "kwire.http.receive.timeout.ms=100") as http:
        async with raw_connection(http.port) as (reader, writer):
            writer.write(HEAD + behind + b" " * 500_000)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
            assert head.startswith(b"HTTP/1.1 408 ")
        assert memory_of(http).used_bytes == 0


@in_uvloop
async def test_a_body_that_drips_is_given_up_when_others_wait(tmp_path: Path) -> None:
    """By itself it would have an hour."""
    settings = ("kwire.http.receive.timeout.ms=3600000", "kwire.http.memory.wait.ms=15000")
    async with http_node(tmp_path, *settings, "kwire.http.memory.bytes=20971520") as http:
        memory = memory_of(http)
        async with raw_connection(http.port) as (reader, writer), raw_connection(http.port) as (good, good_writer):
            writer.write(HEAD + length(10 * MIB) + b" " * 1000)
            await until(lambda: memory.used_bytes == 10 * MIB)
            body = EVENT.ljust(8 * MIB)
            good_writer.write(HEAD + length(len(body)) + body)
            # Read whole; it is too large for the room.
            assert (await asyncio.wait_for(good.readline(), WAIT_S)).startswith(b"HTTP/1.1 413 ")
            assert b"EventTooLarge" in await asyncio.wait_for(good.readuntil(b"}}"), WAIT_S)
            assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 408 ")
        await until(lambda: memory.used_bytes == 0)


@in_uvloop
async def test_a_declared_length_that_is_too_large_is_refused_at_once(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_connection(http.port) as (reader, writer):
        writer.write(HEAD + length(100 * MIB))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.startswith(b"HTTP/1.1 413 ")


@in_uvloop
async def test_a_long_line_that_stops_is_cut_off_and_silence_between_lines_is_not(tmp_path: Path) -> None:
    lines = HEAD.replace(b"application/json", b"application/x-ndjson") + b"Transfer-Encoding: chunked\r\n\r\n"
    async with http_node(tmp_path, "kwire.http.receive.timeout.ms=200") as http:
        memory = memory_of(http)
        async with raw_connection(http.port) as (reader, writer), raw_connection(http.port) as (calm, calm_writer):
            calm_writer.write(lines + b"%x\r\n%b\n\r\n" % (len(EVENT) + 1, EVENT))
            await asyncio.wait_for(calm.readuntil(b'"offset":0'), WAIT_S)
            writer.write(lines + b"100000\r\n" + b" " * 500_000)
            await until(lambda: memory.used_bytes >= 500_000)
            await asyncio.wait_for(reader.readuntil(b'{"line":1,"error":{"code":"RequestTimeout"'), WAIT_S)
            await until(lambda: memory.used_bytes == 0)
            calm_writer.write(b"%x\r\n%b\n\r\n" % (len(EVENT) + 1, EVENT))
            await asyncio.wait_for(calm.readuntil(b'"offset":1'), WAIT_S)


@in_uvloop
async def test_a_socket_message_that_is_not_finished_ends_its_connection(tmp_path: Path) -> None:
    message = client_frame(1, b" " * 900_000)[:-1]
    settings = ("kwire.http.receive.timeout.ms=100", "kwire.http.receive.rate.min=100000000")
    async with http_node(tmp_path, *settings) as http, raw_socket(http.port, message) as socket:
        assert await socket.close_code() == 1008
        assert memory_of(http).used_bytes == 0
    async with http_node(tmp_path) as http:
        await fill_memory(http)
        async with raw_socket(http.port, message) as socket:
            assert await socket.close_code() == 1013


@in_uvloop
async def test_a_head_without_end_is_cut_off(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_connection(http.port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(30):
            writer.write(b"X-%d: %b\r\n" % (number, b"x" * 4000))
        assert await all_of(reader) == b""


@in_uvloop
async def test_connections_from_one_address_are_bounded(tmp_path: Path) -> None:
    async with http_node(tmp_path, "max.connections.per.ip=2") as http:
        get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with raw_connection(http.port) as first, raw_connection(http.port) as second:
            for reader, writer in (first, second):
                writer.write(get)
                assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
            async with raw_connection(http.port) as (reader, _):
                assert await all_of(reader) == b""

        # They have left.
        async def is_served() -> bool:
            try:
                return (await status_of(http.port, get))[0] == 200
            except (ConnectionError, asyncio.IncompleteReadError):
                return False

        async with asyncio.timeout(WAIT_S):
            while not await is_served():
                await asyncio.sleep(0.01)
