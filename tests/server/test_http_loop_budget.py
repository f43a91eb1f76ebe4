"""Many HTTP requests that begin at the same moment: those beyond the time of one loop iteration wait for the next."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from kwire.concurrency.chunking import yield_to_loop
from kwire.server import loop_budget
from kwire.server.http_connection import HttpConnection
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
    receive_late = HttpConnection._receive_deferred

    def receive(self: HttpConnection) -> None:
        deferred.append(self)
        receive_late(self)

    monkeypatch.setattr(HttpConnection, "_receive_deferred", receive)
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
async def test_new_connections_are_read_in_turn_when_the_time_of_an_iteration_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postponed: list[HttpConnection] = []
    read_later = HttpConnection.read_later

    def postpone(self: HttpConnection) -> None:
        postponed.append(self)
        read_later(self)

    monkeypatch.setattr(HttpConnection, "read_later", postpone)
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", 0.0)
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
