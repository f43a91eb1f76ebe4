"""OffsetForLeaderEpoch: where epochs ended, as a consumer that checks its position has to be told."""

import inspect
from pathlib import Path

import pytest

from kwire.broker import chunked_answers as turns
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.wire.apis import OFFSET_FOR_LEADER_EPOCH
from kwire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_every_version, in_loop, received
from tests.support.partition_log import log_of, lose_log

CONSUMER = -1
NOTHING = (-1, -1)


def append(partition: Partition, count: int) -> None:
    batch = make_batch(count, timestamp_ms=0)
    partition.append(batch, check_batch(batch))


def topic_of(node: QuietNode) -> Topic:
    topic = node.topics.get("t")
    assert topic is not None
    return topic


def request(*asked: OffsetForLeaderPartition, name: str = "t") -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER, topics=[OffsetForLeaderTopic(topic=name, partitions=list(asked))]
    )


async def end_of(
    node: QuietNode, epoch: int, version: int, *, current: int = -1, index: int = 0, name: str = "t"
) -> tuple[int, int] | ErrorCode:
    """Epoch and end offset, or the error."""
    asked = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    (topic,) = (await node.ask(request(asked, name=name), version)).topics
    (one,) = topic.partitions
    assert (topic.topic, one.partition) == (name, index)
    if one.error_code:
        assert (one.leader_epoch, one.end_offset) == NOTHING
        return ErrorCode(one.error_code)
    return one.leader_epoch, one.end_offset


async def three_starts(node: QuietNode) -> None:
    """Offsets 0-2 under epoch 0, 3-7 under epoch 2; the node leads in epoch 3 and has written nothing."""
    append(await node.create_partition(), 3)
    node.restart()
    node.restart()
    append(topic_of(node).partitions[0], 5)
    node.restart()


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_an_epoch_ends_where_the_next_begins(node: QuietNode, version: int) -> None:
    await three_starts(node)
    assert await end_of(node, 0, version) == (0, 3)
    assert await end_of(node, 1, version) == (0, 3)
    assert await end_of(node, 2, version) == (2, 8)
    assert await end_of(node, 3, version) == (3, 8)
    assert await end_of(node, 4, version) == NOTHING
    assert await end_of(node, -1, version) == NOTHING
    append(topic_of(node).partitions[0], 2)
    assert await end_of(node, 2, version) == (2, 8)
    assert await end_of(node, 3, version) == (3, 10)


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_a_log_without_records_knows_the_epoch_in_force(node: QuietNode, version: int) -> None:
    await node.create("t")
    node.restart()
    assert await end_of(node, 1, version) == (1, 0)
    assert await end_of(node, 0, version) == (0, 0)
    assert await end_of(node, 2, version) == NOTHING


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_an_epoch_whose_records_are_gone_ends_where_the_log_begins(node: QuietNode, version: int) -> None:
    await three_starts(node)
    log_of(topic_of(node).partitions[0]).advance_log_start_offset(5)
    assert await end_of(node, 0, version) == (0, 5)
    assert await end_of(node, 1, version) == (1, 5)
    assert await end_of(node, 2, version) == (2, 8)


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_the_clients_own_epoch_is_checked_first(node: QuietNode, version: int) -> None:
    await three_starts(node)
    assert await end_of(node, 0, version, current=3) == (0, 3)
    assert await end_of(node, 0, version, current=2) is ErrorCode.FENCED_LEADER_EPOCH
    assert await end_of(node, 0, version, current=4) is ErrorCode.UNKNOWN_LEADER_EPOCH


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_unknown_partitions_are_told(node: QuietNode, version: int) -> None:
    await three_starts(node)
    for name, index in (("missing", 0), ("t", 1), ("t", -1), ("b/d", 0)):
        assert await end_of(node, 0, version, name=name, index=index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_a_log_that_cannot_be_opened_is_a_storage_error(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three_starts(node)
    topic = topic_of(node)
    lose_log(topic.partitions[0], monkeypatch)
    assert await end_of(node, 0, version) is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_many_logs_are_opened_in_turns(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 30)
        asked = request(*(OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(31)))
        waiting = node.start(asked, 4)
        assert inspect.isawaitable(waiting)
        codes = [one.error_code for one in (await waiting).topics[0].partitions]
        assert codes == [ErrorCode.NONE] * 30 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert not inspect.isawaitable(node.start(asked, 4))


@in_every_version(OFFSET_FOR_LEADER_EPOCH)
@in_loop
async def test_a_long_answer_is_made_in_turns(node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await three_starts(node)
    one = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    asked = OffsetForLeaderEpochRequest(topics=[one] * 20)
    whole = await node.ask(asked, version)
    monkeypatch.setattr(turns, "WEIGHT_PER_CHUNK", 7)
    waiting = node.start(asked, version)
    assert inspect.isawaitable(waiting)
    assert received(await waiting, version) == whole
    assert len(whole.topics) == 20


@in_loop
async def test_many_partitions_of_one_topic_are_answered_in_portions(node: QuietNode) -> None:
    await node.create("t")
    count = 2 * turns.PARTITIONS_PER_CHUNK + 1
    partitions = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(count)]
    answer = await node.ask(request(*partitions), 4)
    assert [topic.topic for topic in answer.topics] == ["t"] * 3
    assert [one.partition for topic in answer.topics for one in topic.partitions] == list(range(count))


@in_loop
async def test_nothing_asked_nothing_answered(node: QuietNode) -> None:
    for version in OFFSET_FOR_LEADER_EPOCH.versions:
        assert (await node.ask(OffsetForLeaderEpochRequest(topics=[]), version)).topics == []
