"""What acks=1 and acks=all promise, through real sockets and on both ways of a Produce request."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.clock import SystemClock
from kwire.errors import ErrorCode
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from storage.disk.files import Files
from tests.server.frames import Client
from tests.server.test_node import create_topic, port, until
from tests.support.batches import make_batch
from tests.support.node import in_uvloop, running_node

WAIT_SECONDS = 20.0
LATEST = -1
# The first request of a connection takes the general way, the third and all others like it the short one.
ALIKE = 3


class Gate:
    """Syncs of logs wait here while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    def fdatasync(self, files: Files, fd: int) -> None:
        assert self.open.wait(WAIT_SECONDS)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(Files, "fdatasync", lambda files, fd: made.fdatasync(files, fd))
    yield made
    made.open.set()


def produce(acks: int, timeout_ms: int = 60_000, indexes: tuple[int, ...] = (0,)) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=make_batch(timestamp_ms=0)) for index in indexes]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


async def end_offset(client: Client) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    answer = await client.ask(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 4
    )
    end: int = answer.topics[0].partitions[0].offset
    return end


@pytest.mark.parametrize("acks", [1, -1])
@in_uvloop
async def test_a_record_can_be_read_once_its_produce_is_answered(tmp_path: Path, gate: Gate, acks: int) -> None:
    async with (
        running_node(tmp_path) as node,
        await Client.connect(port(node)) as writer,
        await Client.connect(port(node)) as reader,
    ):
        await create_topic(writer)
        for number in range(ALIKE + 1):
            gate.open.clear()
            writer.send(produce(acks), 9)
            await until(lambda: any(one._machine.waiting for one in node._shared.connections))
            # The batch is in the page cache, and the disk has not got it yet: no reader sees it, no producer is told.
            assert await end_offset(reader) == number
            assert any(one._machine.waiting for one in node._shared.connections)
            gate.open.set()
            answer = await writer.receive()
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert await end_offset(reader) == number + 1


@pytest.mark.parametrize("acks", [1, -1])
@in_uvloop
async def test_a_wait_beyond_the_timeout_is_answered_and_the_connection_stays(
    tmp_path: Path, gate: Gate, acks: int
) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer)
        for _ in range(ALIKE):
            await writer.ask(produce(acks, timeout_ms=1), 9)
        gate.open.clear()
        answer = await writer.ask(produce(acks, timeout_ms=1), 9)
        refused: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        assert (refused.index, refused.error_code, refused.base_offset) == (0, ErrorCode.REQUEST_TIMED_OUT, -1)
        assert refused.error_message
        assert answer.responses[0].name == "t"
        gate.open.set()
        # The connection goes on, and what was answered with an error was stored all the same.
        await asyncio.wait_for(node._syncs.idle(), WAIT_SECONDS)
        answer = await writer.ask(produce(acks), 9)
        assert answer.responses[0].partition_responses[0].base_offset == ALIKE + 1


class Hours:
    """The monotonic time of the server, which passes when a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(SystemClock, "monotonic", lambda clock: self.seconds)


@pytest.mark.parametrize("alike", [0, ALIKE], ids=["decoded", "by template"])
@in_uvloop
async def test_the_timeout_counts_from_the_moment_at_which_the_request_began_to_wait(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, alike: int
) -> None:
    monkeypatch.setattr("kwire.broker.partition.sync_rounds.TIMEOUT_CHECK_SECONDS", 0.001)
    hours = Hours(monkeypatch)
    async with (
        running_node(tmp_path) as node,
        await Client.connect(port(node)) as early,
        await Client.connect(port(node)) as late,
    ):
        await create_topic(early)
        for _ in range(alike):
            await early.ask(produce(-1), 9)
            await late.ask(produce(-1), 9)

        def waiting_count() -> int:
            return sum(len(one._machine.waiting) for one in node._shared.connections)

        gate.open.clear()
        early.send(produce(-1, timeout_ms=60_000), 9)
        await until(lambda: waiting_count() == 1)
        hours.seconds += 3600
        late.send(produce(-1, timeout_ms=60_000), 9)
        answer = await early.receive()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        await until(lambda: waiting_count() == 1)
        gate.open.set()
        answer = await late.receive()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        # Neither connection was closed.
        for client in (early, late):
            answer = await client.ask(produce(-1), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@in_uvloop
async def test_acks_0_does_not_wait(tmp_path: Path, gate: Gate) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer)
        gate.open.clear()
        for _ in range(ALIKE + 1):
            writer.send(produce(0), 9, is_answered=False)
        writer.received = writer.sent
        assert await end_offset(writer) == 0
        partition = node._shared.services.topics.get("t").partitions[0]  # type: ignore[union-attr]
        assert partition.log_end_offset == ALIKE + 1
        gate.open.set()
