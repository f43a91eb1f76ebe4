"""DescribeProducers: who wrote to a partition, and what last."""

import asyncio
import inspect

import pytest

from kwire.broker import chunked_answers as turns
from kwire.broker.partition import Partition
from kwire.errors import ErrorCode
from kwire.handlers import describe_producers
from kwire.wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import lose_log
from tests.support.transactions import TransactionalProducer

WRITTEN_MS = 5000


def append(
    partition: Partition,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    timestamp_ms: int = WRITTEN_MS,
) -> None:
    batch = make_batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, timestamp_ms=timestamp_ms
    )
    partition.append(batch, check_batch(batch))


def request(*asked: tuple[str, list[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in asked]
    )


async def producers(node: QuietNode, name: str = "t", index: int = 0) -> list[ProducerState]:
    (topic,) = (await node.ask(request((name, [index])), 0)).topics
    (one,) = topic.partitions
    assert (topic.name, one.partition_index, one.error_code, one.error_message) == (name, index, 0, None)
    found: list[ProducerState] = one.active_producers
    return found


async def refusal(node: QuietNode, name: str, index: int) -> ErrorCode:
    (topic,) = (await node.ask(request((name, [index])), 0)).topics
    (one,) = topic.partitions
    assert (topic.name, one.partition_index, one.active_producers) == (name, index, [])
    assert one.error_message
    return ErrorCode(one.error_code)


def known(producer_id: int, sequence: int, timestamp_ms: int, epoch: int = 0) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=sequence,
        last_timestamp=timestamp_ms,
        coordinator_epoch=-1,
        current_txn_start_offset=-1,
    )


@in_loop
async def test_the_last_word_of_each_producer_is_told_also_after_a_restart(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, 7, 0, 3, timestamp_ms=WRITTEN_MS - 500)
    append(partition, 7, 3, 2, timestamp_ms=WRITTEN_MS - 100)
    append(partition, 9, 0, epoch=4)
    batch = make_batch(2, timestamp_ms=WRITTEN_MS)
    partition.append(batch, check_batch(batch))
    expected = [known(7, 4, WRITTEN_MS - 99), known(9, 0, WRITTEN_MS, epoch=4)]
    assert await producers(node) == expected
    node.restart()
    assert await producers(node) == expected


@in_loop
async def test_an_open_transaction_and_the_coordinator_of_the_last_one_are_told(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, 3, 0)
    producer = TransactionalProducer(partition, 7)
    producer.send(2, now_ms=WRITTEN_MS)
    producer.send(now_ms=WRITTEN_MS)
    (idempotent, one) = await producers(node)
    assert (idempotent.coordinator_epoch, idempotent.current_txn_start_offset) == (-1, -1)
    assert (one.producer_id, one.last_sequence, one.last_timestamp) == (7, 2, WRITTEN_MS)
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (-1, 1)
    producer.coordinator_epoch = 5
    producer.commit()
    for _ in range(2):
        (_, one) = await producers(node)
        assert (one.coordinator_epoch, one.current_txn_start_offset, one.last_sequence) == (5, -1, 2)
        node.restart()
    found = node.topics.get("t")
    assert found is not None
    producer.partition = found.partitions[0]
    producer.send()
    (_, one) = await producers(node)
    assert (one.coordinator_epoch, one.current_txn_start_offset, one.last_sequence) == (5, 5, 3)


@in_loop
async def test_a_topic_that_stamps_its_own_time_tells_that(node: QuietNode) -> None:
    partition = await node.create_partition(message_timestamp_type="LogAppendTime")
    append(partition, 7, 0, timestamp_ms=5)
    assert await producers(node) == [known(7, 0, node.clock.now_ms())]


@in_loop
async def test_a_partition_nobody_wrote_to_has_no_producers(node: QuietNode) -> None:
    await node.create("t", 2)
    assert await producers(node, index=1) == []


@in_loop
async def test_what_is_not_there_is_told_with_a_message(node: QuietNode) -> None:
    await node.create("t")
    assert await refusal(node, "missing", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await refusal(node, "t", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await refusal(node, "t", -1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await refusal(node, "b/d", 0) is ErrorCode.INVALID_TOPIC_EXCEPTION


@in_loop
async def test_a_log_that_cannot_be_opened_is_a_storage_error(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create("t")
    lose_log(topic.partitions[0], monkeypatch)
    assert await refusal(node, "t", 0) is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_many_producers_are_told_in_turns_and_portions(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create("t", 30)
    for partition in topic.partitions:
        for producer_id in range(partition.index):
            append(partition, producer_id, 0)
    indexes = [*range(30), 77]
    whole = await node.ask(request(("t", indexes), ("u", [0])), 0)
    assert [topic.name for topic in whole.topics] == ["t", "u"]
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 40)
    monkeypatch.setattr(describe_producers, "WEIGHT_PER_ENTRY", 20)
    answering = asyncio.ensure_future(node.ask(request(("t", indexes), ("u", [0])), 0))
    turns_taken = 0
    while not answering.done():
        turns_taken += 1
        await asyncio.sleep(0)
    assert turns_taken > 4
    parts = answering.result().topics
    assert len(parts) > 10
    assert {part.name for part in parts[:-1]} == {"t"}
    assert [one for part in parts for one in part.partitions] == [
        one for part in whole.topics for one in part.partitions
    ]


@in_loop
async def test_a_partition_named_twice_is_answered_once(node: QuietNode) -> None:
    await node.create("t", 2)
    answer = await node.ask(request(("t", [1, 0, 1]), ("u", [1]), ("t", [0, 5])), 0)
    told = [(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics]
    assert told == [("t", [1, 0]), ("u", [1]), ("t", [5])]


@in_loop
async def test_many_logs_are_opened_in_turns(node: QuietNode) -> None:
    await node.create("t", 30)
    asked = request(("t", list(range(30))))
    waiting = node.start(asked, 0)
    assert inspect.isawaitable(waiting)
    assert len((await waiting).topics[0].partitions) == 30
    assert not inspect.isawaitable(node.start(asked, 0))


@in_loop
async def test_nothing_asked_nothing_answered(node: QuietNode) -> None:
    assert (await node.ask(request(), 0)).topics == []
    assert [topic.partitions for topic in (await node.ask(request(("t", [])), 0)).topics] == [[]]
