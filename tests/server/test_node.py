"""The whole server in this process: order, bounds and the end, through real sockets."""

import asyncio
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kwire.config import load
from kwire.errors import ErrorCode
from kwire.node import Node
from kwire.server.kafka import listener
from kwire.server.kafka.connection import UNSENT_BYTES_MAX
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from storage.data_directory.store import CLEAN_NAME
from storage.errors import DataDirectoryLocked
from tests.server.frames import HOST, Client, correlation_ids, frame
from tests.support.batches import headers, make_batch
from tests.support.node import in_loop, in_uvloop, running_node

WAIT_S = 10.0
LONG_MS = 600_000
API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def fetch(offset: int = 0, *, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**30)
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[topic])


def produce(size_bytes: int = 10, acks: int = -1) -> ProduceRequest:
    batch = make_batch(timestamp_ms=0, value=b"x" * size_bytes)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


async def create_topic(client: Client) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    answer = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def produced(client: Client, size_bytes: int = 10) -> PartitionProduceResponse:
    answer = await client.ask(produce(size_bytes), 8)
    one: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    assert one.error_code == ErrorCode.NONE
    return one


def offsets(answer: FetchResponse) -> list[int]:
    (one,) = answer.responses[0].partitions
    assert one.error_code == ErrorCode.NONE
    assert one.records is not None
    return [header.base_offset for header in headers(memoryview(one.records))]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


def port(node: Node) -> int:
    return node.kafka_listeners[0].port


@in_uvloop
async def test_answers_behind_a_long_poll_come_in_order_and_it_holds_up_nobody_else(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path) as node,
        await Client.connect(port(node)) as reader,
        await Client.connect(port(node)) as writer,
    ):
        await create_topic(writer)
        reader.send(fetch(max_wait_ms=LONG_MS), 4)
        reader.send(API_VERSIONS, 3)
        reader.send(MetadataRequest(topics=None), 9)
        reader.send(fetch(max_wait_ms=LONG_MS), 12)
        reader.send(API_VERSIONS, 0)
        await until(lambda: any(len(one._machine.waiting) == 5 for one in node._shared.connections))
        # Others are served meanwhile, and what they do ends the wait.
        assert (await produced(writer)).base_offset == 0
        answers = [await reader.receive() for _ in range(5)]
        assert offsets(answers[0]) == offsets(answers[3]) == [0]
        assert answers[2].topics[0].name == "t"


@in_uvloop
async def test_requests_beyond_the_bound_are_read_when_those_before_are_answered(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, "kwire.connection.inflight.max=4") as node,
        await Client.connect(port(node)) as reader,
        await Client.connect(port(node)) as writer,
    ):
        await create_topic(writer)
        for number in range(40):
            reader.send(fetch(number // 4, max_wait_ms=LONG_MS), 11)
        await until(lambda: any(len(one._machine.waiting) == 4 for one in node._shared.connections))
        (connection,) = [one for one in node._shared.connections if one._machine.waiting]
        for offset in range(10):
            await until(lambda: len(connection._machine.waiting) == 4)
            assert not connection._is_reading
            assert (await produced(writer)).base_offset == offset
            for _ in range(4):
                assert offsets(await reader.receive()) == [offset]
        await until(lambda: connection._is_reading)


@in_uvloop
async def test_many_small_requests_in_one_write_are_all_answered(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        for _ in range(2000):
            client.send(API_VERSIONS, 3)
        for _ in range(2000):
            await client.receive()


def deaf_socket(node: Node) -> socket.socket:
    """A client with room for little and no wish to read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((HOST, port(node)))
    made.setblocking(False)
    return made


async def fill(client: Client, batches: int = 4) -> None:
    await create_topic(client)
    for _ in range(batches):
        await produced(client, 500_000)


# The machine's own buffers may hold megabytes; more than this fits into none of them.
FETCHES = 30


@in_uvloop
async def test_client_that_does_not_read_is_read_from_no_more_and_then_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.02)
    settings = ("kwire.send.timeout.ms=300", "socket.send.buffer.bytes=65536")
    async with running_node(tmp_path, *settings) as node, await Client.connect(port(node)) as client:
        await fill(client)
        loop = asyncio.get_running_loop()
        with deaf_socket(node) as deaf:
            await loop.sock_sendall(deaf, b"".join(frame(fetch(), 4, number) for number in range(FETCHES)))
            await until(lambda: any(one.stuck_since is not None for one in node._shared.connections))
            (stuck,) = [one for one in node._shared.connections if one.stuck_since is not None]
            began = loop.time()
            assert not stuck._is_reading
            # What waits to be sent is one answer above the mark, not all that was asked for.
            assert stuck._transport.get_write_buffer_size() < UNSENT_BYTES_MAX + 3_000_000
            assert node._shared.metrics.requests[1].count < FETCHES
            # Others do not notice.
            assert offsets(await client.ask(fetch(3), 4)) == [3]
            await until(lambda: stuck not in node._shared.connections)
            assert loop.time() - began >= 0.25
        assert node._shared.metrics.connections_failed == 1
        assert len(node._shared.connections) == 1


@in_uvloop
async def test_client_that_reads_late_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.02)
    async with running_node(tmp_path, "socket.send.buffer.bytes=65536") as node:
        async with await Client.connect(port(node)) as client:
            await fill(client)
        loop = asyncio.get_running_loop()
        with deaf_socket(node) as late:
            await loop.sock_sendall(late, b"".join(frame(fetch(), 4, number) for number in range(FETCHES)))
            await until(lambda: any(one.stuck_since is not None for one in node._shared.connections))
            late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            data = bytearray()
            async with asyncio.timeout(WAIT_S):
                while len(data) < FETCHES * 2_000_000:
                    data += await loop.sock_recv(late, 1 << 20)
            # The last answer may still be on its way.
            (whole,) = struct.unpack_from(">i", data)
            async with asyncio.timeout(WAIT_S):
                while len(data) < FETCHES * (whole + 4):
                    data += await loop.sock_recv(late, 1 << 20)
            assert correlation_ids(bytes(data)) == list(range(FETCHES))
        await until(lambda: not node._shared.connections)


@in_uvloop
async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with running_node(tmp_path, "max.connections=2") as node:
        async with await Client.connect(port(node)) as first, await Client.connect(port(node)) as second:
            await first.ask(API_VERSIONS, 3)
            await second.ask(API_VERSIONS, 3)
            async with await Client.connect(port(node)) as third:
                assert await third.ended() == b""
            await first.ask(API_VERSIONS, 3)
        await until(lambda: not node._shared.connections)
        async with await Client.connect(port(node)) as fourth:
            await fourth.ask(API_VERSIONS, 3)
        assert node._shared.metrics.connections_refused == 1


@in_uvloop
async def test_request_waits_for_memory_and_is_then_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.02)
    settings = ("socket.request.max.bytes=1000000", "queued.max.request.bytes=1000000")
    async with running_node(tmp_path, *settings) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        async with await Client.connect(port(node)) as greedy:
            greedy.writer.write(struct.pack(">i", 990_000) + bytes(700_000))
            await until(lambda: node._shared.memory.used_bytes > 700_000)
            client.send(produce(900_000), 8)
            await until(lambda: any(one.stuck_since is not None for one in node._shared.connections))
            assert client.received < client.sent
        answer = await client.receive()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert node._shared.memory.used_bytes == 0


@in_uvloop
async def test_stopping_answers_what_was_taken(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        async with await Client.connect(port(node)) as idle:
            await idle.ask(API_VERSIONS, 3)
            client.send(fetch(max_wait_ms=200), 4)
            client.send(API_VERSIONS, 3)
            await until(lambda: any(len(one._machine.waiting) == 2 for one in node._shared.connections))
            loop = asyncio.get_running_loop()
            began = loop.time()
            where = port(node)
            stopping = asyncio.ensure_future(node.stop())
            assert await idle.ended() == b""
            with pytest.raises(ConnectionError):
                await Client.connect(where)
            assert offsets(await client.receive()) == []
            await client.receive()
            assert await client.ended() == b""
            await stopping
            # Far below the 10 s that a stop may take: it ends when the last answer is out.
            assert loop.time() - began < 5


@in_loop
async def test_stopping_sends_what_is_still_unsent(tmp_path: Path) -> None:
    await check_unsent_is_sent(tmp_path)


@in_uvloop
async def test_stopping_sends_what_is_still_unsent_on_uvloop_too(tmp_path: Path) -> None:
    await check_unsent_is_sent(tmp_path)


async def check_unsent_is_sent(tmp_path: Path) -> None:
    async with running_node(tmp_path, "socket.send.buffer.bytes=65536") as node:
        async with await Client.connect(port(node)) as client:
            await fill(client)
        loop = asyncio.get_running_loop()
        with deaf_socket(node) as late:
            await loop.sock_sendall(late, frame(fetch(), 4, 1) + frame(fetch(), 4, 2))
            await until(lambda: any(one._transport.get_write_buffer_size() for one in node._shared.connections))
            stopping = asyncio.ensure_future(node.stop())
            data = bytearray()
            async with asyncio.timeout(WAIT_S):
                while part := await loop.sock_recv(late, 1 << 20):
                    data += part
            assert correlation_ids(bytes(data)) in ([1], [1, 2])
            began = loop.time()
            await stopping
            assert loop.time() - began < 5


@in_uvloop
async def test_who_waits_for_data_is_answered_when_the_node_stops(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        client.send(fetch(max_wait_ms=LONG_MS), 4)
        await until(lambda: any(one._machine.waiting for one in node._shared.connections))
        await node.stop()
        assert await client.ended() != b""


@in_uvloop
async def test_stopping_sends_members_that_wait_for_their_group_to_another_coordinator(tmp_path: Path) -> None:
    settings = "group.initial.rebalance.delay.ms=600000"
    async with running_node(tmp_path, settings) as node, await Client.connect(port(node)) as client:
        await node._shared.services.topics.offsets_topic()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=600_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client.send(request, 3)
        await until(lambda: node._shared.services.groups.waiting_count() == 1)
        stopping = asyncio.ensure_future(node.stop())
        assert (await client.receive()).error_code == ErrorCode.NOT_COORDINATOR
        assert await client.ended() == b""
        await stopping


@in_uvloop
async def test_restart_finds_everything_and_leads_anew(tmp_path: Path) -> None:
    described = []
    for start in range(3):
        async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
            if start == 0:
                await create_topic(client)
            assert (await produced(client)).base_offset == start
            assert offsets(await client.ask(fetch(), 4)) == list(range(start + 1))
            answer = await client.ask(MetadataRequest(topics=None), 12)
            (topic,) = answer.topics
            assert topic.partitions[0].leader_epoch == start
            described.append((answer.cluster_id, topic.name, topic.topic_id))
            (broker,) = answer.brokers
            assert (broker.host, broker.port) == (HOST, port(node))
    assert len(set(described)) == 1


@in_uvloop
async def test_data_of_another_cluster_is_not_touched(tmp_path: Path) -> None:
    async with running_node(tmp_path, "cluster.id=first"):
        pass
    with pytest.raises(ValueError, match="belongs to first"):
        async with running_node(tmp_path, "cluster.id=second"):
            pass


@in_uvloop
async def test_one_directory_is_served_by_one_node(tmp_path: Path) -> None:
    async with running_node(tmp_path):
        with pytest.raises(DataDirectoryLocked, match="stop it, or name another"):
            async with running_node(tmp_path):
                pass


@contextmanager
def taken_listener() -> Iterator[str]:
    with socket.create_server((HOST, 0)) as taken:
        yield f"{HOST}:{taken.getsockname()[1]}"


async def failed_start(directory: Path, *settings: str, kafka: str = f"{HOST}:0", http: str | None = None) -> None:
    node = Node(load(data_dir=str(directory), settings=settings, kafka=kafka, http=http))
    with pytest.raises((OSError, ValueError)):
        await node.start()


@in_uvloop
async def test_a_failed_first_start_leaves_nothing_to_recover(tmp_path: Path) -> None:
    with taken_listener() as taken:
        await failed_start(tmp_path, kafka=taken)
    async with running_node(tmp_path) as node:
        assert not node._recovery.is_needed


@pytest.mark.parametrize("option", ["kafka", "http"])
@in_uvloop
async def test_a_failed_start_keeps_what_the_clean_stop_left(tmp_path: Path, option: str) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        await produced(client)
    with taken_listener() as taken:
        await failed_start(tmp_path, kafka=taken if option == "kafka" else f"{HOST}:0", http=taken)
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        assert not node._recovery.is_needed
        # When rooms were used last is known, too.
        assert node._fetched_before == {}
        assert offsets(await client.ask(fetch(), 4)) == [0]


@in_uvloop
async def test_a_failed_start_after_a_crash_leaves_the_recovery_to_the_next_one(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        await produced(client)
    (tmp_path / CLEAN_NAME).unlink()
    with taken_listener() as taken:
        await failed_start(tmp_path, http=taken)
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        assert node._recovery.is_needed
        assert offsets(await client.ask(fetch(), 4)) == [0]


@in_uvloop
async def test_a_start_with_a_wrong_cluster_id_leaves_the_directory_clean(tmp_path: Path) -> None:
    async with running_node(tmp_path, "cluster.id=first"):
        pass
    await failed_start(tmp_path, "cluster.id=second")
    async with running_node(tmp_path) as node:
        assert not node._recovery.is_needed


def test_what_only_http_clients_need_is_not_loaded_before_kafkas_port_is_open() -> None:
    late = ("aiohttp", "yaml", "kwire.streams.rooms.rooms", "kwire.streams.subscriptions", "kwire.web")
    program = f"import sys, kwire.node; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"
