"""Streaming connections: which bytes the session receives, when writing is paused, and how they end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from kwire.metrics import StreamMetrics
from kwire.server.http.stream_connections import UNSENT_BYTES_MAX, StreamConnections
from kwire.web.requests.access import ACCESS, OPEN_ACCESS
from kwire.web.streaming.streaming import Outlet, StreamedResponse
from tests.support.node import in_loop, in_uvloop, running_node
from tests.support.room_sockets import WAIT_S, http_stream, raw_connection, until

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
REQUEST = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = b"GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


class Recorder:
    """A session that writes down what happens to it."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.calls: list[str] = []
        self.data = b""
        self.fails_at = ""

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.fails_at == call:
            raise RuntimeError("a fault of ours")

    def received(self, data: bytes) -> None:
        self.data += data
        self._note("received")

    def writable(self) -> None:
        self._note("writable")

    def tick(self, now: float) -> None:
        self._note("tick")

    def check_access(self) -> None:
        self._note("check_access")

    def stop(self) -> None:
        self._note("stop")
        self.outlet.write(b"bye")
        self.outlet.finish()

    def lost(self) -> None:
        self._note("lost")


class Server:
    def __init__(self, port: int, takeovers: StreamConnections, runner: web.AppRunner) -> None:
        self.port = port
        self.takeovers = takeovers
        self.runner = runner
        self.sessions: list[Recorder] = []
        self.handled = 0
        self.is_writing_at_once = False

    @property
    def session(self) -> Recorder:
        (one,) = self.sessions
        return one


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter bounds, for tests that wait until one has passed."""
    monkeypatch.setattr("kwire.server.http.stream_connections.SWEEP_SECONDS", 0.1)
    monkeypatch.setattr("kwire.server.http.stream_connections.LINGER_SECONDS", 0.5)
    monkeypatch.setattr("kwire.server.http.stream_connections.STOP_TIMEOUT_SECONDS", 0.5)


@asynccontextmanager
async def server(send_timeout_ms: int = 30_000) -> AsyncIterator[Server]:
    takeovers = StreamConnections(StreamMetrics(), send_timeout_ms, 30_000)

    async def handle(request: web.Request) -> web.StreamResponse:
        def make(outlet: Outlet) -> Recorder:
            session = Recorder(outlet)
            made.sessions.append(session)
            if made.is_writing_at_once:
                outlet.write(b"x" * UNSENT_BYTES_MAX * 40)
            return session

        request[ACCESS] = OPEN_ACCESS
        await takeovers(request, HEAD, make)
        made.handled += 1
        return StreamedResponse(200)

    async def plain(request: web.Request) -> web.Response:
        return web.Response(text="plain")

    app = web.Application()
    app.router.add_get("/stream", handle)
    app.router.add_get("/plain", plain)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = Server(runner.addresses[0][1], takeovers, runner)
    try:
        yield made
    finally:
        await takeovers.close()
        await runner.cleanup()


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(count), WAIT_S)


@in_loop
async def test_bytes_go_both_ways_and_the_end_is_told_once() -> None:
    async with server() as one:
        async with raw_connection(one.port) as (reader, writer):
            writer.write(REQUEST)
            assert await read(reader, len(HEAD)) == HEAD
            writer.write(b"hello")
            await until(lambda: one.session.data == b"hello")
            one.session.outlet.write(b"out")
            assert await read(reader, 3) == b"out"
            assert one.takeovers.metrics.open_count == 1
        await until(lambda: one.session.calls[-1] == "lost")
        await until(lambda: one.handled)
        assert one.session.calls.count("lost") == 1
        assert one.takeovers.metrics.open_count == len(one.takeovers) == 0
        one.session.outlet.write(b"nobody gets this")


@in_uvloop
async def test_what_comes_right_behind_an_upgrade_is_the_sessions() -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer):
        writer.write(UPGRADE + b"early")
        assert await read(reader, len(HEAD)) == HEAD
        await until(lambda: one.session.data == b"early")
        writer.write(b" and late")
        await until(lambda: one.session.data == b"early and late")


@in_uvloop
async def test_much_that_comes_behind_an_upgrade_does_not_stop_reading_for_ever() -> None:
    """aiohttp stops reading when much comes that it cannot handle yet."""
    early = b"x" * 1_000_000
    async with server() as one, raw_connection(one.port) as (reader, writer):
        writer.write(UPGRADE + early)
        assert await read(reader, len(HEAD)) == HEAD
        await until(lambda: len(one.session.data) == len(early))


@in_uvloop
async def test_a_connection_may_have_served_other_requests_before() -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer):
        for _ in range(3):
            writer.write(b"GET /plain HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\nplain"), WAIT_S)
        writer.write(REQUEST)
        assert await read(reader, len(HEAD)) == HEAD


@pytest.mark.parametrize("run", [in_loop, in_uvloop])
def test_a_session_is_told_when_the_client_takes_bytes_again(run: Callable[..., Callable[[], None]]) -> None:
    @run
    async def test() -> None:
        async with server() as one, raw_connection(one.port) as (reader, writer):
            one.is_writing_at_once = True
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(REQUEST)
            await until(lambda: one.sessions)
            await until(lambda: not one.session.outlet.is_writable)
            assert "writable" not in one.session.calls
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            await read(reader, len(HEAD) + UNSENT_BYTES_MAX * 40)
            await until(lambda: one.session.outlet.is_writable)
            assert one.session.calls.count("writable") == 1

    test()


@pytest.mark.usefixtures("short_waits")
@in_uvloop
async def test_a_client_that_takes_nothing_for_too_long_is_cut_off() -> None:
    async with server(send_timeout_ms=500) as one, raw_connection(one.port) as (_, writer):
        one.is_writing_at_once = True
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REQUEST)
        await until(lambda: one.handled)
        assert one.takeovers.metrics.closed_stuck == 1
        assert one.session.calls[-1] == "lost"


@in_uvloop
async def test_a_session_that_reads_no_further_holds_up_its_client_only() -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer):
        writer.write(REQUEST)
        await read(reader, len(HEAD))
        one.session.outlet.pause_reading()
        one.session.outlet.pause_reading()
        writer.write(b"x" * 100)
        one.session.outlet.write(b"still writing")
        assert await read(reader, 13) == b"still writing"
        assert one.session.data == b""
        one.session.outlet.resume_reading()
        await until(lambda: len(one.session.data) == 100)


@in_uvloop
async def test_the_last_words_arrive_although_the_client_goes_on_sending() -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer):
        writer.write(REQUEST)
        await read(reader, len(HEAD))
        writer.write(b"x" * 100_000)
        one.session.outlet.write(b"last words")
        one.session.outlet.finish()
        writer.write(b"x" * 100_000)
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b"last words"
        writer.close()
        await until(lambda: one.handled)


@pytest.mark.usefixtures("short_waits")
@in_uvloop
async def test_who_does_not_close_after_the_last_words_is_cut_off() -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer):
        writer.write(REQUEST)
        await read(reader, len(HEAD))
        one.session.outlet.finish()
        await until(lambda: one.handled)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("call", ["received", "tick", "stop"])
@in_uvloop
async def test_a_session_that_fails_ends_its_own_connection(call: str, caplog: pytest.LogCaptureFixture) -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer):
        writer.write(REQUEST)
        await read(reader, len(HEAD))
        one.session.fails_at = call
        if call == "received":
            writer.write(b"x")
        elif call == "stop":
            await one.takeovers.close()
        await until(lambda: one.handled)
        assert one.takeovers.metrics.closed_failed == 1
        assert "a stream failed" in caplog.text


@pytest.mark.usefixtures("short_waits")
@in_uvloop
async def test_everybody_hears_a_goodbye_when_the_server_stops_and_nobody_holds_it_up() -> None:
    async with server() as one, raw_connection(one.port) as (reader, writer), raw_connection(one.port) as (_, stuck):
        writer.write(REQUEST)
        await read(reader, len(HEAD))
        one.is_writing_at_once = True
        stuck.transport.pause_reading()  # type: ignore[attr-defined]
        stuck.write(REQUEST)
        await until(lambda: len(one.sessions) == 2)
        stopping = asyncio.ensure_future(one.takeovers.close())
        assert await read(reader, 3) == b"bye"
        writer.close()
        await asyncio.wait_for(stopping, WAIT_S)
        await until(lambda: one.handled == 2)
        await asyncio.wait_for(one.runner.cleanup(), WAIT_S)


@in_uvloop
async def test_a_client_that_was_gone_before_is_an_error_of_the_connection() -> None:
    async with server() as one:
        for _ in range(20):
            async with raw_connection(one.port) as (_, writer):
                writer.write(REQUEST)
        await until(lambda: len(one.takeovers) == 0)
        await until(lambda: one.handled == len(one.sessions))


@in_uvloop
async def test_a_connection_too_many_is_closed_at_once_and_streams_count(tmp_path: Path) -> None:
    async with running_node(tmp_path, "kwire.http.max.connections=2") as node:
        assert node.http is not None
        async with (
            http_stream(node.http.port, "/rooms/r/subscribe"),
            http_stream(node.http.port, "/rooms/r/subscribe"),
            raw_connection(node.http.port) as (reader, writer),
        ):
            writer.write(REQUEST)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await read(reader, 1)
        # aiohttp counts a connection until its handler has ended.
        server = node.http._main._runner.server
        assert server is not None
        await until(lambda: not server.connections)
        async with http_stream(node.http.port, "/rooms/r/subscribe") as stream:
            assert (await stream.message())["control"] == "subscribed"


@in_uvloop
async def test_who_never_ends_the_head_of_a_request_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise some thousand of these keep everybody out."""
    async with running_node(tmp_path / "first"):
        pass
    monkeypatch.setattr("kwire.server.http.server.IDLE_SECONDS", 0.2)
    async with running_node(tmp_path / "second") as node:
        assert node.http is not None
        for begun in (b"", UPGRADE[:-2], b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"):
            async with raw_connection(node.http.port) as (reader, writer):
                writer.write(begun)
                await asyncio.wait_for(reader.read(), WAIT_S)


@pytest.mark.usefixtures("short_waits")
@in_uvloop
async def test_many_hear_a_goodbye_and_nobody_waits_long_for_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kwire.server.http.stream_connections.STOPS_PER_CHUNK", 3)
    async with server() as one, contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            reader, writer = await stack.enter_async_context(raw_connection(one.port))
            writer.write(REQUEST)
            await read(reader, len(HEAD))
        stopping = asyncio.ensure_future(one.takeovers.close())
        told: list[int] = []
        while len(told) < 3 or told[-1] < 10:
            await asyncio.sleep(0)
            told.append(sum("stop" in session.calls for session in one.sessions))
        assert max(after - before for before, after in zip([0, *told], told, strict=False)) <= 3
        await asyncio.wait_for(stopping, WAIT_S)
