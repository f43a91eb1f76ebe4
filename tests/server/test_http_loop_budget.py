"""Many HTTP requests that begin at the same moment: those beyond the time of one loop iteration wait for the next."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from kwire.concurrency.chunking import yield_to_loop
from kwire.server import loop_budget
from kwire.server.http.connection import HttpConnection
from kwire.web.requests import body_receiver as body_reading
from kwire.web.requests.body_receiver import READ_BYTES, READ_FREELY_BYTES
from tests.support.node import in_uvloop, running_node

CONNECTIONS = 20
TIMEOUT_S = 30


@in_uvloop
async def test_requests_beyond_the_turn_are_handled_in_later_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred: list[HttpConnection] = []
    receive_late = HttpConnection.receive_deferred

    def receive(self: HttpConnection) -> None:
        deferred.append(self)
        receive_late(self)

    monkeypatch.setattr(HttpConnection, "receive_deferred", receive)
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", 0.0)
    async with running_node(tmp_path) as node, asyncio.timeout(TIMEOUT_S):
        assert node.http is not None
        streams = [await asyncio.open_connection("127.0.0.1", node.http.port) for _ in range(CONNECTIONS)]
        body = b'{"event_type": "message", "data": "%s"}' % (b"x" * 100_000)
        head = b"POST /rooms/turns/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        for _, writer in streams:
            # Two requests in a row: the second begins while the first is handled.
            writer.write(request + request)
        for reader, writer in streams:
            for _ in range(2):
                answered = await reader.readuntil(b"\r\n\r\n")
                assert b" 20" in answered.split(b"\r\n")[0], answered
                length = int(answered.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
            writer.close()
    assert deferred


@in_uvloop
async def test_new_connections_are_read_in_turn_when_another_has_begun_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postponed: list[HttpConnection] = []
    pause = HttpConnection.pause

    def postpone(self: HttpConnection) -> None:
        postponed.append(self)
        pause(self)

    monkeypatch.setattr(HttpConnection, "pause", postpone)
    async with running_node(tmp_path) as node, asyncio.timeout(TIMEOUT_S):
        assert node.http is not None
        streams = [await asyncio.open_connection("127.0.0.1", node.http.port) for _ in range(CONNECTIONS)]
        for _, writer in streams:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for reader, writer in streams:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
    assert postponed
    assert len(postponed) == len(set(postponed)) < CONNECTIONS


@in_uvloop
async def test_the_rest_of_a_large_body_is_read_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[None] = []

    async def counted_turn() -> None:
        turns.append(None)
        await yield_to_loop()

    monkeypatch.setattr(body_reading, "yield_to_loop", counted_turn)
    body = b'{"event_type": "message", "data": "%s"}' % (b"x" * 900_000)
    async with running_node(tmp_path) as node, asyncio.timeout(TIMEOUT_S), ClientSession() as session:
        assert node.http is not None
        url = f"http://127.0.0.1:{node.http.port}/rooms/turns/events"
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            assert answer.status in (200, 201), await answer.text()
    assert len(turns) >= (len(body) - READ_FREELY_BYTES) // READ_BYTES


@in_uvloop
async def test_clients_that_are_not_established_take_turns_by_network_and_established_ones_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests are received in one loop iteration, because this task does not wait between sending them."""
    begun: list[str] = []
    receive = HttpConnection._receive

    def note(self: HttpConnection, data: bytes) -> None:
        begun.append(f"{self.client_host}{' established' if self._is_established else ''}")
        receive(self, data)

    monkeypatch.setattr(HttpConnection, "_receive", note)
    request = b"GET /rooms HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with running_node(tmp_path) as node, asyncio.timeout(TIMEOUT_S):
        assert node.http is not None
        port = node.http.port
        hosts = [*(["127.0.0.1"] * CONNECTIONS), "127.0.0.2", "127.0.0.3"]
        streams = [await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)) for host in hosts]
        known_reader, known_writer = streams[-1]
        known_writer.write(request)
        assert (await known_reader.readline()).startswith(b"HTTP/1.1 200")
        await known_reader.readuntil(b"\r\n\r\n")
        begun.clear()
        for _, writer in streams:
            writer.write(request)
        for reader, writer in streams[:-1]:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
        known_writer.close()
    assert begun.index("127.0.0.3 established") <= 2, begun
    assert begun.index("127.0.0.2") <= 4, begun
    assert begun.count("127.0.0.1") == CONNECTIONS
