"""IdleLogs: periodic maintenance of all open logs in chunks, and parking above the limit."""

import asyncio
import os
from itertools import pairwise

import pytest

from kwire.broker.maintenance import idle_logs
from kwire.broker.maintenance.idle_logs import IdleLogs
from kwire.broker.partition import LogMaintenance, Partition
from storage.batch.record_batch import check_batch
from storage.log.log import Log
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

EXPIRATION_MS = 1000
OPEN_MAX = 1000


def append(partition: Partition, producer_id: int, sequence: int = 0) -> None:
    batch = make_batch(timestamp_ms=0, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    partition.append(batch, check_batch(batch))


@in_loop
async def test_silent_producers_are_forgotten(node: QuietNode) -> None:
    partition = await node.create_partition()
    round_ = IdleLogs(node.topics, node.clock, EXPIRATION_MS, OPEN_MAX)
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
    monkeypatch.setattr(idle_logs, "LOGS_PER_CHUNK", 2)
    topic = await node.create("t", 6)
    for partition in topic.partitions[:5]:
        append(partition, 1)
    released: list[Log] = []
    monkeypatch.setattr(Log, "release", lambda log: released.append(log))
    round_ = IdleLogs(node.topics, node.clock, EXPIRATION_MS, OPEN_MAX)
    round_.begin_round()
    assert len(released) == 2
    logs = [log_of(partition) for partition in topic.partitions[:5]]
    # A topic may go while the round is on.
    await node.topics.delete(topic)
    while len(released) < 5:
        await asyncio.sleep(0)
    assert released == logs
    assert not topic.partitions[5].is_open
    round_.close()


@in_loop
async def test_rounds_come_again_until_they_are_closed(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_logs, "ROUND_SECONDS", 0.001)
    append(await node.create_partition(), 1)
    released: list[Log] = []
    monkeypatch.setattr(Log, "release", lambda log: released.append(log))
    rounds = IdleLogs(node.topics, node.clock, EXPIRATION_MS, OPEN_MAX)
    async with asyncio.timeout(10):
        while len(released) < 3:
            await asyncio.sleep(0.001)
    rounds.close()
    assert rounds._timer.cancelled()


async def opened(node: QuietNode, count: int) -> list[Partition]:
    """Partitions whose logs are open, the first one the longest."""
    topic = await node.create("t", count)
    for partition in topic.partitions:
        append(partition, 1)
    async with asyncio.timeout(10):
        while any(partition.high_watermark < 1 for partition in topic.partitions):
            await asyncio.sleep(0.001)
    return topic.partitions


async def until_open(node: QuietNode, count: int) -> None:
    async with asyncio.timeout(10):
        while len(node.topics.open_partitions) != count:
            await asyncio.sleep(0.001)


@in_loop
async def test_logs_beyond_the_bound_are_parked_the_idle_ones_first(node: QuietNode) -> None:
    partitions = await opened(node, 8)
    bounded = IdleLogs(node.topics, node.clock, EXPIRATION_MS, 8)
    bounded.on_log_opened()
    assert all(partition.is_open for partition in partitions)
    bounded.close()
    bounded = IdleLogs(node.topics, node.clock, EXPIRATION_MS, 5)
    bounded.on_log_opened()
    await until_open(node, 5)
    assert [partition.is_open for partition in partitions] == [False] * 3 + [True] * 5
    # What was written to meanwhile gets another turn: the next ones go.
    append(partitions[3], 1, 1)
    async with asyncio.timeout(10):
        while partitions[3].high_watermark < 2:
            await asyncio.sleep(0.001)
    partitions[0].open()
    bounded.on_log_opened()
    await until_open(node, 5)
    assert [partition.is_open for partition in partitions] == [True, False, False, True, False, True, True, True]
    assert bounded.parked_count == 4
    # A parked log opens again when it is needed, with all that was in it.
    assert partitions[1].log_end_offset == 1
    bounded.close()


@in_loop
async def test_parking_is_done_a_few_at_a_time(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_logs, "PARKS_PER_CHUNK", 2)
    await opened(node, 7)
    bounded = IdleLogs(node.topics, node.clock, EXPIRATION_MS, 0)
    counts = []
    bounded.on_log_opened()
    async with asyncio.timeout(10):
        while node.topics.open_partitions:
            await asyncio.sleep(0)
            counts.append(bounded.parked_count)
    assert all(after - before <= 2 for before, after in pairwise(counts))
    assert bounded.parked_count == 7
    bounded.close()


@in_loop
async def test_who_opens_many_in_a_turn_brings_as_much_parking(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_logs, "PARKS_PER_CHUNK", 1)
    bounded = IdleLogs(node.topics, node.clock, EXPIRATION_MS, 4)
    topic = await node.create("many", 40)
    most = 0
    for number in range(0, 40, 4):
        for partition in topic.partitions[number : number + 4]:
            partition.open()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        most = max(most, len(node.topics.open_partitions))
    # What one turn brings, beside those that may stay.
    assert most <= 8
    bounded.close()


@in_loop
async def test_logs_that_are_all_in_use_are_asked_again_later(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_logs, "COUNT_SECONDS", 0.001)
    partitions = await opened(node, 3)
    tries: list[str] = []
    park = LogMaintenance.park

    def busy(opened: LogMaintenance) -> bool:
        tries.append(opened.directory)
        return len(tries) > 9 and park(opened)

    monkeypatch.setattr(LogMaintenance, "park", busy)
    bounded = IdleLogs(node.topics, node.clock, EXPIRATION_MS, 1)
    await until_open(node, 1)
    assert {os.path.basename(one) for one in tries} == {f"{one.topic_name}-{one.index}" for one in partitions}
    bounded.close()


@in_loop
async def test_the_bound_holds_although_nobody_says_that_logs_were_opened(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_logs, "COUNT_SECONDS", 0.001)
    bounded = IdleLogs(node.topics, node.clock, EXPIRATION_MS, 2)
    await opened(node, 6)
    await until_open(node, 2)
    bounded.close()


@in_loop
async def test_a_round_goes_on_when_a_log_is_parked_meanwhile(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_logs, "LOGS_PER_CHUNK", 1)
    partitions = await opened(node, 3)
    released: list[Log] = []
    monkeypatch.setattr(Log, "release", lambda log: released.append(log))
    rounds = IdleLogs(node.topics, node.clock, EXPIRATION_MS, OPEN_MAX)
    rounds.begin_round()
    assert node.topics.park(partitions[1])
    for _ in range(5):
        await asyncio.sleep(0)
    assert released == [log_of(partitions[0]), log_of(partitions[2])]
    assert not partitions[1].is_open
    rounds.close()


@in_loop
async def test_idle_segments_give_theirs_back_soon_while_the_log_is_short(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_logs, "COUNT_SECONDS", 0.001)
    partition = await node.create_partition()
    opened = log_of(partition)
    released = asyncio.Event()
    monkeypatch.setattr(Log, "release", lambda log: released.set() if log is opened else None)
    is_short = False
    kept = IdleLogs(node.topics, node.clock, EXPIRATION_MS, OPEN_MAX, is_short_of_descriptors=lambda: is_short)
    try:
        await asyncio.sleep(0.01)
        assert not released.is_set()
        is_short = True
        await asyncio.wait_for(released.wait(), 20.0)
    finally:
        kept.close()
