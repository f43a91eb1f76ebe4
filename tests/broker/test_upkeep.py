"""Upkeep: every open log is looked after now and then, a few at a time."""

import asyncio

import pytest

from kwire.broker import upkeep
from kwire.broker.partition import Partition
from kwire.broker.upkeep import Upkeep
from storage.batch import check_batch
from storage.log import Log
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop

EXPIRATION_MS = 1000


def append(partition: Partition, producer_id: int, sequence: int = 0) -> None:
    batch = make_batch(timestamp_ms=0, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    partition.append(batch, check_batch(batch))


@in_loop
async def test_silent_producers_are_forgotten(node: QuietNode) -> None:
    partition = await node.create_partition()
    round_ = Upkeep(node.topics, node.clock, EXPIRATION_MS)
    append(partition, 1)
    node.clock.advance(EXPIRATION_MS - 1)
    append(partition, 2)
    round_.begin_round()
    # Both are known: a repeated batch is recognised.
    for producer_id in (1, 2):
        append(partition, producer_id)
    assert partition.high_watermark == 2
    node.clock.advance(1)
    round_.begin_round()
    append(partition, 2)
    assert partition.high_watermark == 2
    append(partition, 1)
    assert partition.high_watermark == 3
    round_.close()


@in_loop
async def test_a_round_takes_turns_with_the_loop_and_opens_nothing(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOGS_PER_TURN", 2)
    topic = await node.create("t", 6)
    for partition in topic.partitions[:5]:
        append(partition, 1)
    released: list[Log] = []
    monkeypatch.setattr(Log, "release", lambda log: released.append(log))
    round_ = Upkeep(node.topics, node.clock, EXPIRATION_MS)
    round_.begin_round()
    assert len(released) == 2
    # A topic may go while the round is on.
    await node.topics.delete(topic)
    while len(released) < 5:
        await asyncio.sleep(0)
    assert released == [partition.log for partition in topic.partitions[:5]]
    assert not topic.partitions[5].is_open
    round_.close()


@in_loop
async def test_rounds_come_again_until_they_are_closed(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROUND_SECONDS", 0.001)
    append(await node.create_partition(), 1)
    released: list[Log] = []
    monkeypatch.setattr(Log, "release", lambda log: released.append(log))
    rounds = Upkeep(node.topics, node.clock, EXPIRATION_MS)
    async with asyncio.timeout(10):
        while len(released) < 3:
            await asyncio.sleep(0.001)
    rounds.close()
    assert rounds._timer.cancelled()
