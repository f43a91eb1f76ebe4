"""Produce requests that take long, through real sockets: order and memory are kept, and others are served meanwhile."""

import asyncio
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.batch_validation import RECORDS_ON_LOOP_MAX
from kwire.broker.topics.topics import Topic
from kwire.concurrency.chunking import yield_to_loop
from kwire.errors import ErrorCode
from kwire.node import Node
from kwire.server.kafka.routes import ELEMENTS_AT_ONCE_MAX
from kwire.wire.frame import SCRATCH_BYTES
from kwire.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from storage.batch.format import ZSTD
from storage.batch.record_batch import Record, build_batch
from tests.server.frames import Client
from tests.server.test_node import API_VERSIONS, port, until
from tests.support.batches import headers
from tests.support.node import in_uvloop, running_node

MANY = RECORDS_ON_LOOP_MAX + 1
VERSION = 9


async def create_topic(client: Client, partitions: int = 1, **configs: str) -> None:
    named = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1, assignments=[], configs=named)
    answer = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
    assert answer.topics[0].error_code == ErrorCode.NONE


def topic_of(node: Node) -> Topic:
    topic = node._shared.services.topics.get("t")
    assert topic is not None
    return topic


def batch(count: int, *, key: bytes | None = b"k", value: bytes = b"", **more: Any) -> memoryview:
    return memoryview(build_batch([Record(key, value, 0)] * count, **more))


def produce(*batches: memoryview, acks: int = -1, timeout_ms: int = 60_000) -> ProduceRequest:
    """One batch for each partition from 0 on."""
    data = [PartitionProduceData(index=index, records=one) for index, one in enumerate(batches)]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def answers_of(answer: Any) -> list[PartitionProduceResponse]:
    found: list[PartitionProduceResponse] = answer.responses[0].partition_responses
    return found


def base_offsets(node: Node, index: int = 0) -> list[tuple[int, int]]:
    """The first offset and the number of records of each stored batch."""
    view = topic_of(node).partitions[index].read(0, 1 << 30).view
    return [(header.base_offset, header.record_count) for header in headers(view)]


class GatedWorker:
    """Stands in the way of the validation process: nothing is validated while it is shut."""

    def __init__(self, node: Node) -> None:
        self._inner = node._validation._run
        self.gate = asyncio.Event()
        self.calls = 0
        node._validation._run = self.run

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        self.calls += 1
        await self.gate.wait()
        return await self._inner(function, *args)


@pytest.mark.parametrize("filler_bytes", [0, 2 * SCRATCH_BYTES], ids=["shared memory", "own memory"])
@in_uvloop
async def test_order_is_kept_and_others_are_served_meanwhile(tmp_path: Path, filler_bytes: int) -> None:
    async with (
        running_node(tmp_path) as node,
        await Client.connect(port(node)) as writer,
        await Client.connect(port(node)) as other,
    ):
        await create_topic(other, 2, cleanup_policy="compact")
        worker = GatedWorker(node)

        def numbered(sequence: int, count: int) -> memoryview:
            return batch(count, producer_id=7, producer_epoch=0, base_sequence=sequence, compression=ZSTD)

        # The first is held, and what comes after it from the same producer must not overtake it.
        filler = batch(1, value=bytes(filler_bytes))
        writer.send(produce(numbered(0, MANY), filler), VERSION)
        writer.send(produce(numbered(MANY, 1)), VERSION)
        writer.send(produce(numbered(MANY + 1, MANY)), VERSION)
        writer.send(API_VERSIONS, 3)
        await until(lambda: worker.calls == 1)
        for _ in range(5):
            # Overwrites the memory that all connections share.
            answer = await other.ask(produce(batch(1, value=bytes(1000)), batch(1)), VERSION)
            assert answers_of(answer)[0].error_code == ErrorCode.NONE
        assert [count for _, count in base_offsets(node)] == [1] * 5
        worker.gate.set()
        first, second, third = [answers_of(await writer.receive()) for _ in range(3)]
        await writer.receive()
        assert [one.error_code for one in (*first, *second, *third)] == [ErrorCode.NONE] * 4
        assert [one[0].base_offset for one in (first, second, third)] == [5, 5 + MANY, 6 + MANY]
        assert base_offsets(node)[5:] == [(5, MANY), (5 + MANY, 1), (6 + MANY, MANY)]
        assert (worker.calls, node._validation._process.starts) == (2, 1)


@in_uvloop
async def test_a_request_of_many_partitions_can_be_held_too(tmp_path: Path) -> None:
    """It is decoded and answered in chunks besides."""
    async with (
        running_node(tmp_path) as node,
        await Client.connect(port(node)) as writer,
        await Client.connect(port(node)) as other,
    ):
        await create_topic(other, cleanup_policy="compact")
        worker = GatedWorker(node)
        counts = [MANY, *[1] * ELEMENTS_AT_ONCE_MAX, MANY, 1]
        data = [PartitionProduceData(index=0, records=batch(count)) for count in counts]
        topic = TopicProduceData(name="t", partition_data=data)
        writer.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic]), VERSION)
        writer.send(produce(batch(7)), VERSION)
        await until(lambda: worker.calls == 1)
        await other.ask(API_VERSIONS, 3)
        assert node._shared.memory.used_bytes > 0
        worker.gate.set()
        answer, following = answers_of(await writer.receive()), answers_of(await writer.receive())
        assert {one.error_code for one in (*answer, *following)} == {ErrorCode.NONE}
        expected = list(accumulate(counts, initial=0))
        assert [one.base_offset for one in (*answer, *following)] == expected
        assert worker.calls == 2
        assert node._shared.memory.used_bytes == 0


@in_uvloop
async def test_the_copy_of_a_held_request_in_shared_memory_counts_until_it_is_over(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 2, cleanup_policy="compact")
        worker, memory, sent = GatedWorker(node), node._shared.memory, [batch(1), batch(MANY)]
        writer.send(produce(*sent), VERSION)
        await until(lambda: worker.calls == 1)
        assert memory.used_bytes == len(sent[1])
        worker.gate.set()
        assert [one.error_code for one in answers_of(await writer.receive())] == [ErrorCode.NONE] * 2
        assert memory.used_bytes == 0
        # Without memory for the copy the rest of the request is refused; the connection stays.
        memory.limit_bytes = memory._largest_frame_bytes = len(sent[1]) - 1
        expected = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
        assert [one.error_code for one in answers_of(await writer.ask(produce(*sent), VERSION))] == expected
        assert memory.used_bytes == 0


@in_uvloop
async def test_memory_of_a_held_request_counts_until_it_is_over(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 2, cleanup_policy="compact")
        worker = GatedWorker(node)
        memory = node._shared.memory
        writer.send(produce(batch(MANY), batch(1, value=bytes(2 * SCRATCH_BYTES))), VERSION)
        await until(lambda: worker.calls == 1)
        assert memory.used_bytes > 2 * SCRATCH_BYTES
        worker.gate.set()
        assert [one.error_code for one in answers_of(await writer.receive())] == [ErrorCode.NONE] * 2
        assert memory.used_bytes == 0


@in_uvloop
async def test_a_connection_that_the_server_ends_takes_its_held_request_with_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        worker: GatedWorker
        async with await Client.connect(port(node)) as writer:
            await create_topic(writer, 2, cleanup_policy="compact")
            worker = GatedWorker(node)
            writer.send(produce(batch(MANY), batch(1, value=bytes(2 * SCRATCH_BYTES))), VERSION)
            await until(lambda: worker.calls == 1)
            for connection in tuple(node._shared.connections):
                connection.abort()
            assert await writer.ended() == b""
        await until(lambda: not node._shared.connections)
        worker.gate.set()
        assert node._shared.memory.used_bytes == 0
        async with await Client.connect(port(node)) as writer:
            # Nothing of it was stored, and the worker goes on for others.
            answer = await writer.ask(produce(batch(MANY)), VERSION)
            assert [one.base_offset for one in answers_of(answer)] == [0]
        assert topic_of(node).partitions[1].log_end_offset == 0


@in_uvloop
async def test_a_request_whose_client_went_away_is_finished_and_its_memory_returns(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        worker: GatedWorker
        async with await Client.connect(port(node)) as writer:
            await create_topic(writer, 2, cleanup_policy="compact")
            worker = GatedWorker(node)
            writer.send(produce(batch(MANY), batch(1, value=bytes(2 * SCRATCH_BYTES))), VERSION)
            await until(lambda: worker.calls == 1)
        worker.gate.set()
        await until(lambda: not node._shared.connections)
        assert node._shared.memory.used_bytes == 0
        assert [topic_of(node).partitions[index].log_end_offset for index in (0, 1)] == [MANY, 1]


@in_uvloop
async def test_bad_records_are_named_by_the_worker_too(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 3, cleanup_policy="compact")
        bad = memoryview(build_batch([Record(None if number == 17 else b"k", b"", 0) for number in range(MANY)]))
        answer = answers_of(await writer.ask(produce(batch(1), bad, batch(MANY)), VERSION))
        assert [one.error_code for one in answer] == [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE]
        assert [one.batch_index for one in answer[1].record_errors] == [17]
        assert topic_of(node).partitions[1].log_end_offset == 0


@in_uvloop
async def test_without_acks_a_refusal_drops_the_connection_and_the_rest_is_stored(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 2, cleanup_policy="compact")
        writer.send(produce(batch(MANY), acks=0), VERSION, is_answered=False)
        writer.send(produce(batch(MANY, key=None), batch(1), acks=0), VERSION, is_answered=False)
        assert await writer.ended() == b""
        assert [topic_of(node).partitions[index].log_end_offset for index in (0, 1)] == [MANY, 1]


@in_uvloop
async def test_validation_takes_no_longer_than_the_request_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.handlers.produce.handler.WORK_MS_MIN", 1)
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 3, cleanup_policy="compact")
        worker = GatedWorker(node)
        answer = answers_of(await writer.ask(produce(batch(MANY), batch(1), batch(MANY), timeout_ms=1), VERSION))
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        assert [one.error_code for one in answer] == [timed_out, ErrorCode.NONE, timed_out]
        worker.gate.set()
        assert [one.error_code for one in answers_of(await writer.ask(produce(batch(MANY)), VERSION))] == [0]


@in_uvloop
async def test_a_request_of_many_bytes_yields_between_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        await yield_to_loop()

    monkeypatch.setattr("kwire.handlers.produce.handler.yield_to_loop", turn)
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 32, max_message_bytes=str(2 * 1024 * 1024))
        values = [bytes([index]) * 1024 * 1024 for index in range(32)]
        answer = await writer.ask(produce(*(batch(1, value=value) for value in values)), VERSION)
        assert [one.error_code for one in answers_of(answer)] == [ErrorCode.NONE] * 32
        assert turns >= 6
        for index, value in enumerate(values):
            assert value in bytes(topic_of(node).partitions[index].read(0, 1 << 30).view)


@in_uvloop
async def test_the_short_way_leaves_long_work_to_the_general_one(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer, 2, cleanup_policy="compact")
        for count in (1, 1, 1, MANY, 1, MANY):
            for batches in ([batch(count)], [batch(1), batch(count)]):
                answer = await writer.ask(produce(*batches), VERSION)
                assert [one.error_code for one in answers_of(answer)] == [ErrorCode.NONE] * len(batches)
        assert node._validation.batch_count == 4


@pytest.mark.parametrize("count", [1, MANY])
@in_uvloop
async def test_a_batch_without_times_in_a_plain_topic_gets_its_largest_time(tmp_path: Path, count: int) -> None:
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as writer:
        await create_topic(writer)
        timeless = memoryview(build_batch([Record(b"k", b"", -1)] * count))
        for _ in range(3):
            assert answers_of(await writer.ask(produce(timeless), VERSION))[0].error_code == ErrorCode.NONE
        assert [one for _, one in base_offsets(node)] == [count] * 3
        assert node._validation.batch_count == (3 if count == MANY else 0)
