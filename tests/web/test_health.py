"""Health and readiness, asked over HTTP."""

import asyncio
from pathlib import Path

import aiohttp

from kwire.config import load
from kwire.node import Node
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.server.frames import HOST, Client
from tests.support.node import in_uvloop, running_node

WAIT_S = 10.0


async def get(node: Node, path: str, method: str = "GET") -> tuple[int, str]:
    assert node.http is not None
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, f"http://{HOST}:{node.http.port}{path}") as answer,
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
    async with running_node(tmp_path) as node, await Client.connect(node.doors[0].port) as client:
        await node._shared.services.topics.get_or_create("t")
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topic = FetchTopic(topic="t", partitions=[partition])
        client.send(FetchRequest(max_wait_ms=300, min_bytes=1, topics=[topic]), 4)
        async with asyncio.timeout(WAIT_S):
            while not any(one._machine.waiting for one in node._shared.connections):
                await asyncio.sleep(0.001)
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(0)
        assert await get(node, "/readyz") == (503, '{"status": "not ready"}')
        assert (await get(node, "/healthz"))[0] == 200
        await client.receive()
        await stopping


@in_uvloop
async def test_other_paths_and_methods_are_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert (await get(node, "/"))[0] == 404
        assert (await get(node, "/healthz/more"))[0] == 404
        assert (await get(node, "/metrics", "POST"))[0] == 405


@in_uvloop
async def test_node_without_an_http_port_serves_kafka(tmp_path: Path) -> None:
    config = load(data_dir=str(tmp_path), kafka=f"{HOST}:0", http="")
    node = Node(config)
    await node.start()
    assert node.http is None
    async with await Client.connect(node.doors[0].port):
        pass
    await node.stop()
