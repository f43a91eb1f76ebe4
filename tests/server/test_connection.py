"""One connection and its bounds, with a list for a socket."""

import asyncio
import logging
import struct
from pathlib import Path

import pytest

from kwire.config import Listener
from kwire.errors import ErrorCode
from kwire.handlers.api_versions import handle as handle_api_versions
from kwire.handlers.shared.context import DropConnection, Handler
from kwire.server import loop_budget
from kwire.server.kafka import connection as kafka
from kwire.server.kafka import shared
from kwire.server.kafka.connection import OVER_BUDGET_READ_BYTES, OVER_BUDGET_SHARED_READ_BYTES
from kwire.server.kafka.listener import KafkaListener
from kwire.wire.apis import API_VERSIONS
from kwire.wire.frame import LARGE_FRAME_READ_BYTES, POOLED_STEP_BYTES
from kwire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.wire.messages.describe_cluster import DescribeClusterResponse
from kwire.wire.messages.init_producer_id import InitProducerIdResponse
from tests.server.fakes import (
    LISTENER,
    FakeClient,
    Slow,
    answered_frame,
    ignored_frame,
    shared_of,
    waiting_frame,
)
from tests.server.frames import frame, parse, split
from tests.support.node import QuietNode, in_loop

INFLIGHT_MAX = 3
UNFINISHED = struct.pack(">i", 900_000) + bytes(100_000)
TIMEOUT_S = 10.0


class World:
    """One client of slow handlers."""

    def __init__(self, node: QuietNode) -> None:
        self.slow = Slow()
        self.shared = shared_of(node.services, self.slow.handlers())
        self.client = FakeClient(self.shared)
        self.transport = self.client.transport

    async def release(self, number: int) -> None:
        self.slow.release(number)
        await asyncio.sleep(0)


@in_loop
async def test_answers_come_in_the_order_of_the_requests(node: QuietNode) -> None:
    world = World(node)
    world.client.send(answered_frame(1) + waiting_frame(2) + answered_frame(3))
    assert world.slow.handled == ["answer", "wait 2", "answer"]
    assert world.client.received() == [1]
    await world.release(2)
    assert world.client.received() == [1, 2, 3]
    world.client.send(answered_frame(4))
    assert world.client.received() == [1, 2, 3, 4]


@in_loop
async def test_answers_that_come_too_early_wait_for_those_before(node: QuietNode) -> None:
    world = World(node)
    world.client.send(waiting_frame(1) + waiting_frame(2) + waiting_frame(3))
    await world.release(3)
    await world.release(2)
    assert world.client.received() == []
    await world.release(1)
    assert world.client.received() == [1, 2, 3]


@in_loop
async def test_request_that_wants_no_answer_gets_none_and_holds_nobody_up(node: QuietNode) -> None:
    world = World(node)
    world.client.send(ignored_frame(1) + answered_frame(2) + waiting_frame(3) + ignored_frame(4))
    await world.release(3)
    world.client.send(answered_frame(5))
    assert world.client.received() == [2, 3, 5]


@in_loop
async def test_bytes_may_come_one_by_one(node: QuietNode) -> None:
    world = World(node)
    for byte in answered_frame(1) + answered_frame(2):
        world.client.send(bytes([byte]))
    assert world.client.received() == [1, 2]
    assert world.shared.memory.used_bytes == 0


@in_loop
async def test_reading_stops_at_the_bound_of_requests_in_flight_and_goes_on_below_it(node: QuietNode) -> None:
    world = World(node)
    world.client.send(b"".join(waiting_frame(number) for number in (1, 2)))
    assert world.client.is_read()
    # The fourth and fifth have come along with the third; they are kept, but not looked at.
    world.client.send(waiting_frame(3) + answered_frame(4) + waiting_frame(5))
    assert world.slow.handled == ["wait 1", "wait 2", "wait 3"]
    assert not world.client.is_read()
    await world.release(2)
    assert not world.client.is_read()
    assert len(world.slow.handled) == 3
    await world.release(1)
    assert world.slow.handled[3:] == ["answer", "wait 5"]
    assert world.client.received() == [1, 2]
    # Three are under way again: 3, the answer 4 that waits behind it, and 5.
    assert not world.client.is_read()
    await world.release(3)
    assert world.client.received() == [1, 2, 3, 4]
    assert world.client.is_read()
    await world.release(5)
    assert world.client.received() == [1, 2, 3, 4, 5]
    assert world.shared.memory.used_bytes == 0


@in_loop
async def test_answers_that_wait_for_an_earlier_one_count_as_in_flight(node: QuietNode) -> None:
    """Else a client could have any number of finished answers pile up behind one long poll."""
    world = World(node)
    world.client.send(waiting_frame(1) + b"".join(answered_frame(number) for number in range(2, 10)))
    assert world.slow.handled == ["wait 1"] + ["answer"] * (INFLIGHT_MAX - 1)
    assert not world.client.is_read()
    await world.release(1)
    assert world.client.received() == list(range(1, 10))
    assert world.client.is_read()


@in_loop
async def test_nothing_is_handled_while_the_client_takes_no_answers(node: QuietNode) -> None:
    world = World(node)
    world.client.send(waiting_frame(1))
    world.client.connection.pause_writing()
    assert world.client.is_stuck()
    world.client.send_while_read(answered_frame(2) + answered_frame(3))
    assert not world.client.is_read()
    assert world.slow.handled == ["wait 1"]
    # An answer that comes due is written all the same: its request was taken.
    await world.release(1)
    assert world.client.received() == [1]
    world.client.connection.resume_writing()
    assert not world.client.is_stuck()
    assert world.client.is_read()
    assert world.client.received() == [1, 2, 3]


@in_loop
async def test_request_that_finds_no_memory_waits_until_there_is_some(node: QuietNode) -> None:
    world = World(node)
    greedy = FakeClient(world.shared)
    large = struct.pack(">i", 900_000)
    assert greedy.send_while_read(large + bytes(600_000)) == 600_004
    used = world.shared.memory.used_bytes
    assert 600_000 <= used <= 1_000_000

    # A second large request begins; what it may send without memory is little.
    late = FakeClient(world.shared)
    whole = large + answered_frame(7)[4:] + bytes(900_000)
    taken = late.send_while_read(whole)
    assert taken < 600_000
    assert not late.is_read()
    assert late.is_stuck()
    # Small requests of others are served meanwhile.
    world.client.send(answered_frame(1))
    assert world.client.received() == [1]

    late.connection.try_reading()
    assert not late.is_read()
    greedy.lose()
    late.connection.try_reading()
    assert late.is_read()
    assert not late.is_stuck()
    late.lose()
    assert world.shared.memory.used_bytes == 0


@in_loop
async def test_rest_of_a_request_is_read_in_a_later_turn_if_this_one_is_over(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(kafka, "BUDGET_SECONDS", 0.0)
    world = World(node)
    first, second = FakeClient(world.shared), FakeClient(world.shared)
    for client in (first, second):
        client.deliver_in_turn(memoryview(UNFINISHED))
        assert not client.is_read()
        # It is not the client that is slow.
        assert client.connection.is_receiving
    async with asyncio.timeout(TIMEOUT_S):
        while not first.is_read():
            await asyncio.sleep(0)
        assert not second.is_read()
        while not second.is_read():
            await asyncio.sleep(0)
    for client in (first, second):
        client.lose()


@in_loop
async def test_little_is_read_at_once_after_the_end_of_the_turn(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(node)
    begun = FakeClient(world.shared)
    begun.deliver(memoryview(UNFINISHED))
    assert len(begun.connection.get_buffer(-1)) > OVER_BUDGET_READ_BYTES
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(kafka, "BUDGET_SECONDS", 0.0)
    world.client.deliver_in_turn(memoryview(answered_frame(1)))
    assert len(world.client.connection.get_buffer(-1)) == OVER_BUDGET_SHARED_READ_BYTES
    assert len(begun.connection.get_buffer(-1)) == OVER_BUDGET_READ_BYTES
    begun.lose()


@in_loop
async def test_connections_that_find_memory_again_are_read_a_few_at_a_time(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "RESUMED_PER_CHUNK", 1)
    world = World(node)
    greedy = FakeClient(world.shared)
    greedy.send_while_read(struct.pack(">i", 900_000) + bytes(600_000))
    starved = [FakeClient(world.shared) for _ in range(2)]
    for client in starved:
        client.send_while_read(struct.pack(">i", 300_000) + bytes(100_000))
        assert not client.is_read()
    greedy.lose()
    world.shared._resume_starved()
    assert [client.is_read() for client in starved] == [True, False]
    async with asyncio.timeout(TIMEOUT_S):
        while not starved[1].is_read():
            await asyncio.sleep(0)
    for client in starved:
        client.lose()


@in_loop
async def test_memory_of_large_requests_is_released_in_a_later_turn_of_each_lost_connection(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        world = World(node)
        clients = [FakeClient(world.shared) for _ in range(2)]
        for client in clients:
            client.send_while_read(struct.pack(">i", 2 * POOLED_STEP_BYTES) + bytes(POOLED_STEP_BYTES))
        used = [world.shared.memory.used_bytes]
        for client in clients:
            client.lose()
        async with asyncio.timeout(TIMEOUT_S):
            while used[-1]:
                await asyncio.sleep(0)
                if world.shared.memory.used_bytes != used[-1]:
                    used.append(world.shared.memory.used_bytes)
        assert len(used) == 3


@in_loop
async def test_lost_connection_cancels_what_waits_and_gives_everything_back(node: QuietNode) -> None:
    world = World(node)
    world.client.send(waiting_frame(1) + waiting_frame(2) + answered_frame(3)[:-1])
    waiting = dict(world.slow.waiting)
    assert world.shared.memory.used_bytes > 0
    assert len(world.shared.connections) == world.shared.metrics.connections == 1
    world.client.lose()
    await asyncio.sleep(0)
    assert all(future.cancelled() for future in waiting.values())
    assert world.shared.memory.used_bytes == 0
    assert len(world.shared.connections) == world.shared.metrics.connections == 0
    assert world.client.received() == []


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 1_000_001),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 60, 99, 1, -1),
        struct.pack(">ihhih", 10, 60, 0, 1, 5),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["negative", "too large", "unknown API", "unknown version", "long client id", "no header", "HTTP"],
)
@in_loop
async def test_bytes_that_are_no_request_end_the_connection(
    node: QuietNode, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(node)
    world.client.send(data)
    assert world.transport.is_aborted
    assert world.shared.metrics.connections_failed == 1
    assert "closing the connection from 192.0.2.1" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@in_loop
async def test_nothing_is_handled_behind_bad_bytes(node: QuietNode) -> None:
    world = World(node)
    world.client.send(answered_frame(1) + struct.pack(">i", -1) + answered_frame(2))
    assert world.slow.handled == ["answer"]
    assert world.transport.is_aborted


def explode() -> None:
    raise RuntimeError("a bug")


def not_an_answer() -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code="no number", cluster_id="c", brokers=[])  # type: ignore[arg-type]


async def explode_later() -> None:
    explode()


async def not_an_answer_later() -> DescribeClusterResponse:
    return not_an_answer()


@pytest.mark.parametrize("fault", [explode, not_an_answer, explode_later, not_an_answer_later])
@in_loop
async def test_failed_handler_ends_its_connection_and_no_other(
    node: QuietNode, fault: object, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(node)
    other = FakeClient(world.shared)
    world.slow.fault = fault  # type: ignore[assignment]
    world.client.send(answered_frame(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert world.transport.is_aborted
    assert world.shared.metrics.connections_failed == 1
    assert [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
    world.slow.fault = None
    other.send(answered_frame(1))
    assert other.received() == [1]


@in_loop
async def test_handler_may_drop_the_connection(node: QuietNode) -> None:
    world = World(node)

    def drop() -> None:
        raise DropConnection("acks=0 failed")

    world.slow.fault = drop
    world.client.send(answered_frame(1))
    assert world.transport.is_aborted


@in_loop
async def test_answer_that_comes_after_the_end_is_not_written(node: QuietNode) -> None:
    world = World(node)
    world.client.send(waiting_frame(1))
    world.transport.close()
    world.slow.release(1)
    await asyncio.sleep(0)
    assert world.client.received() == []


@in_loop
async def test_draining_closes_a_quiet_connection_at_once(node: QuietNode) -> None:
    world = World(node)
    world.client.connection.drain()
    assert world.client.is_closed()
    assert not world.client.is_read()


@in_loop
async def test_draining_answers_what_was_taken_and_takes_no_more(node: QuietNode) -> None:
    world = World(node)
    world.client.send(waiting_frame(1) + waiting_frame(2) + answered_frame(3) + answered_frame(4))
    world.client.connection.drain()
    assert not world.client.is_closed()
    await world.release(2)
    assert not world.client.is_closed()
    await world.release(1)
    # The fourth stood behind the bound: it was never taken.
    assert world.client.received() == [1, 2, 3]
    assert world.client.is_closed()
    assert world.slow.handled.count("answer") == 1


@in_loop
async def test_draining_leaves_unsent_answers_to_the_transport(node: QuietNode) -> None:
    """A transport that is closed sends what it has; waiting for it here would wait for nobody's signal."""
    world = World(node)
    world.client.send(waiting_frame(1))
    world.transport.unsent_bytes = 1000
    world.client.connection.drain()
    assert not world.client.is_closed()
    await world.release(1)
    assert world.client.is_closed()
    other = FakeClient(world.shared)
    other.transport.unsent_bytes = 1000
    other.connection.drain()
    assert other.transport.is_closed


@in_loop
async def test_version_of_api_versions_above_ours_is_answered_in_version_0(node: QuietNode) -> None:
    handlers = {API_VERSIONS.key: Handler(API_VERSIONS, handle_api_versions, ())}
    client = FakeClient(shared_of(node.services, handlers))
    request = frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 5)
    newer = request[:6] + struct.pack(">h", 77) + request[8:]
    client.send(newer + request)
    first, second = split(bytes(client.transport.sent))
    refused = parse(ApiVersionsResponse, 0, first)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in refused.api_keys] == [(18, 0, 5)]
    # And the connection goes on.
    assert parse(ApiVersionsResponse, 5, second).error_code == ErrorCode.NONE


@in_loop
async def test_client_is_told_the_address_it_reached_unless_another_is_advertised(node: QuietNode) -> None:
    world = World(node)
    assert world.client.connection.endpoint == ("198.51.100.1", 9092)
    advertised = Listener("PLAINTEXT", "PLAINTEXT", "kafka.example", 19092)
    client = FakeClient(world.shared, KafkaListener(LISTENER, advertised, world.shared))
    assert client.connection.endpoint == ("kafka.example", 19092)
    assert client.connection.client_host == "192.0.2.1"


@in_loop
async def test_requests_and_bytes_are_counted(node: QuietNode) -> None:
    world = World(node)
    data = answered_frame(1) + waiting_frame(2)
    world.client.send(data)
    await world.release(2)
    metrics = world.shared.metrics
    assert metrics.received_bytes == len(data)
    world.client.connection.send()
    assert metrics.sent_bytes == len(world.transport.sent)
    counts = {metrics.api_names[key]: latency.count for key, latency in metrics.requests.items()}
    assert counts == {"InitProducerId": 1, "DescribeCluster": 1, "Heartbeat": 0}


@in_loop
async def test_answer_may_be_none_later(node: QuietNode) -> None:
    world = World(node)
    world.client.send(waiting_frame(1) + waiting_frame(2))
    world.slow.waiting[1].set_result(None)
    world.slow.waiting[2].set_result(InitProducerIdResponse(error_code=0, producer_epoch=0))
    await asyncio.sleep(0)
    assert world.client.received() == [2]


@in_loop
async def test_answers_of_one_turn_leave_together_and_at_its_end(node: QuietNode) -> None:
    world = World(node)
    clients = [FakeClient(world.shared) for _ in range(3)]
    for client in clients:
        for number in (1, 2):
            data = answered_frame(number)
            client.connection.get_buffer(-1)[: len(data)] = data
            client.connection.buffer_updated(len(data))
    assert not any(client.transport.sent for client in clients)
    assert not any(client.connection.is_quiet for client in clients)
    # One goes away meanwhile, one is drained: nothing is written after the end, nothing is lost before it.
    clients[0].lose()
    clients[1].connection.drain()
    assert clients[1].is_closed()
    await asyncio.sleep(0)
    assert [len(split(bytes(client.transport.sent))) for client in clients] == [0, 2, 2]
    assert clients[2].connection.is_quiet


@in_loop
async def test_large_frames_of_all_connections_are_read_in_turn(tmp_path: Path) -> None:
    size = 3 * POOLED_STEP_BYTES
    with QuietNode(tmp_path, f"socket.request.max.bytes={size}") as node:
        await _read_in_turn(World(node), size)


async def _read_in_turn(world: World, size: int) -> None:
    clients = [FakeClient(world.shared) for _ in range(3)]
    begun = struct.pack(">i", size) + bytes(size // 2)
    left = {client: memoryview(begun) for client in clients}
    for client in clients:
        left[client] = left[client][client.send_while_read(bytes(left[client])) :]
        assert len(begun) - len(left[client]) <= POOLED_STEP_BYTES + LARGE_FRAME_READ_BYTES
    assert not any(client.is_read() for client in clients)
    assert all(client.connection.is_receiving for client in clients), "it is awaited nevertheless"
    while any(left.values()):
        before = {client: len(view) for client, view in left.items()}
        await asyncio.sleep(0)
        for client, view in left.items():
            left[client] = view[client.send_while_read(bytes(view)) :]
        reading = [client for client, size_bytes in before.items() if len(left[client]) < size_bytes]
        assert len(reading) <= 1
        assert all(before[client] - len(left[client]) <= LARGE_FRAME_READ_BYTES for client in reading)
    for client in clients:
        client.lose()
    async with asyncio.timeout(TIMEOUT_S):
        while world.shared.memory.used_bytes:
            await asyncio.sleep(0)
