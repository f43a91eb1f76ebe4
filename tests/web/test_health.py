"""Health and readiness, asked over HTTP."""

import asyncio
from pathlib import Path

import aiohttp

from kwire.config import load
from kwire.node import Node
from kwire.web.streaming.websocket_frames import GOING_AWAY
from tests.server.frames import HOST, Client
from tests.support.node import in_uvloop, running_node
from tests.support.room_sockets import port_of, raw_socket

WAIT_S = 10.0


async def get(node: Node, path: str, method: str = "GET") -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, f"http://{HOST}:{port_of(node)}{path}") as answer,
    ):
        return answer.status, await answer.text()


@in_uvloop
async def test_running_node_is_alive_and_ready(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert await get(node, "/healthz") == (200, '{"status": "alive"}')
        assert await get(node, "/readyz") == (200, '{"status": "ready"}')


@in_uvloop
async def test_stopping_node_is_alive_and_not_ready(tmp_path: Path) -> None:
    """Who sends traffic must learn of the end before the door is closed for good."""
    # A WebSocket whose client does not answer the goodbye holds up the stop for as long as that may take.
    async with running_node(tmp_path) as node, raw_socket(port_of(node)) as silent:
        stopping = asyncio.ensure_future(node.stop())
        assert await silent.close_code() == GOING_AWAY
        assert await get(node, "/readyz") == (503, '{"status": "not ready"}')
        assert (await get(node, "/healthz"))[0] == 200
        assert not stopping.done()
        await asyncio.wait_for(stopping, WAIT_S)


@in_uvloop
async def test_other_paths_and_methods_are_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert (await get(node, "/nothing"))[0] == 404
        assert (await get(node, "/healthz/more"))[0] == 404
        assert (await get(node, "/metrics", "POST"))[0] == 405


@in_uvloop
async def test_node_without_an_http_port_serves_kafka(tmp_path: Path) -> None:
    config = load(data_dir=str(tmp_path), kafka=f"{HOST}:0", http="")
    node = Node(config)
    await node.start()
    assert node.http is None
    async with await Client.connect(node.kafka_listeners[0].port):
        pass
    await node.stop()
