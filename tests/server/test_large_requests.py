"""Requests that take long, on connections whose socket is a list: order, turns, and what happens at the end of one."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from kwire.handlers import HANDLERS
from kwire.handlers.shared.context import Context, Handler
from kwire.server import garbage, loop_budget
from kwire.server.kafka import connection as kafka
from kwire.server.kafka.large_requests import LargeRequests
from kwire.server.kafka.routes import ELEMENTS_AT_ONCE_MAX
from kwire.wire.apis import DESCRIBE_CLUSTER, METADATA
from kwire.wire.codec import decode_message
from kwire.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.server.fakes import FakeClient, answered_frame, shared_of
from tests.server.frames import frame
from tests.support.node import QuietNode, in_loop

LARGE_COUNT = 5 * ELEMENTS_AT_ONCE_MAX
VERSION = 9
WAIT_S = 20.0


def large_frame(correlation_id: int, count: int = LARGE_COUNT) -> bytes:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
    return frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), VERSION, correlation_id)


def quick(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=0, cluster_id="c", brokers=[])


class World:
    """Clients of a server that knows two APIs. `handled` counts requests for metadata that reached their handler."""

    def __init__(self, node: QuietNode, handle: Callable[[Context, Any], Any] | None = None) -> None:
        self.handled = 0
        self._handle = handle or HANDLERS[METADATA.key].handle
        handlers = (Handler(METADATA, self._count, ()), Handler(DESCRIBE_CLUSTER, quick, ()))
        self.shared = shared_of(node.services, {one.api.key: one for one in handlers})

    def client(self) -> FakeClient:
        return FakeClient(self.shared)

    def _count(self, context: Context, request: MetadataRequest) -> Any:
        self.handled += 1
        return self._handle(context, request)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


@in_loop
async def test_requests_after_a_large_one_wait_for_its_answer(node: QuietNode) -> None:
    client = World(node).client()
    data = memoryview(answered_frame(1) + large_frame(2) + answered_frame(3) + answered_frame(4))
    while data and client.is_read():
        data = data[client.deliver(data) :]
    assert client.received() == [1]
    assert not client.is_read()
    await until(lambda: len(client.received()) == 4)
    assert client.received() == [1, 2, 3, 4]
    assert client.is_read()


@in_loop
async def test_large_answer_is_the_answer(node: QuietNode) -> None:
    """What is decoded, handled and encoded in chunks is what a small request would get, element by element."""
    await node.create("t7", 3)
    client = World(node).client()
    client.send_while_read(large_frame(1))
    await until(lambda: client.received() == [1])
    body = bytes(client.transport.sent)[9:]
    answer = decode_message(MetadataResponse, VERSION, body)
    assert [one.name for one in answer.topics] == [f"t{number}" for number in range(LARGE_COUNT)]
    assert [len(one.partitions) for one in answer.topics[:9]] == [0] * 7 + [3, 0]


@in_loop
async def test_others_are_answered_while_a_large_request_is_handled(node: QuietNode) -> None:
    world = World(node)
    large, small = world.client(), world.client()
    large.send_while_read(large_frame(1))
    answered_between = 0
    while not large.received():
        answered_between += 1
        small.send(answered_frame(answered_between))
        await asyncio.sleep(0)
    assert answered_between > 2 * LARGE_COUNT // ELEMENTS_AT_ONCE_MAX
    assert small.received() == list(range(1, answered_between + 1))


@in_loop
async def test_connection_that_is_lost_takes_its_large_request_with_it(node: QuietNode) -> None:
    world = World(node)
    gone, stays = world.client(), world.client()
    gone.send_while_read(large_frame(1))
    stays.send_while_read(large_frame(1))
    gone.lose()
    await until(lambda: stays.received() == [1])
    assert world.handled == 1
    assert world.shared.memory.used_bytes == 0


@in_loop
async def test_large_request_that_is_garbled_ends_its_connection(node: QuietNode, caplog: Any) -> None:
    client = World(node).client()
    data = bytearray(large_frame(1))
    # The length of a name in the last third runs over the end of the request.
    at = data.index(b"t4000") - 1
    data[at : at + 1] = b"\x7f"
    client.send_while_read(bytes(data))
    await until(lambda: client.transport.is_aborted)
    assert "closing the connection" in caplog.text


@in_loop
async def test_large_request_whose_handler_fails_ends_its_connection(node: QuietNode, caplog: Any) -> None:
    def fail(context: Context, request: MetadataRequest) -> Any:
        raise RuntimeError("planted")

    client = World(node, fail).client()
    client.send_while_read(large_frame(1))
    await until(lambda: client.transport.is_aborted)
    assert "Metadata failed" in caplog.text
    assert "planted" in caplog.text


@in_loop
async def test_draining_waits_for_a_large_request(node: QuietNode) -> None:
    client = World(node).client()
    client.send_while_read(large_frame(1))
    client.connection.drain()
    assert not client.is_closed()
    await until(client.is_closed)
    assert client.received() == [1]


@in_loop
async def test_connections_with_many_requests_take_turns(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(kafka, "BUDGET_SECONDS", 0.0)
    world = World(node)
    clients = [world.client() for _ in range(3)]
    flood = b"".join(answered_frame(number) for number in range(50))
    for client in clients:
        client.send_while_read(flood)
        # The first is answered at once, the others wait for a turn.
        assert client.received() == [0]
        assert not client.is_read()
    counts: list[list[int]] = []
    while not all(client.is_read() for client in clients):
        await asyncio.sleep(0)
        counts.append([len(client.received()) for client in clients])
    assert max(max(one) - min(one) for one in counts) <= 2
    assert all(client.received() == list(range(50)) for client in clients)


@in_loop
async def test_no_large_request_begins_while_collections_are_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "POSTPONED_SECONDS_MAX", 0.0)
    slots = LargeRequests()
    order: list[str] = []

    async def second() -> None:
        async with slots:
            order.append("second")

    async with slots:
        task = asyncio.ensure_future(second())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not gc.isenabled()
        order.append("first")
    assert gc.isenabled()
    await asyncio.wait_for(task, WAIT_S)
    assert order == ["first", "second"]
