"""Long polls: woken once, by enough bytes or by the timeout, and removed completely."""

import asyncio
from pathlib import Path

import pytest

from kwire.broker.fetch.long_poll import LongPoll
from kwire.broker.partition import Partition
from storage.batch.record_batch import check_batch
from tests.support.batches import UnsyncedFiles, make_batch
from tests.support.events import SyncLater
from tests.support.node import QuietNode, in_loop
from tests.support.transactions import TransactionalProducer

# Far beyond what a test may take: only a wake can end such a wait.
LONG_MS = 600_000


class Done:
    """Counts the calls and lets a test wait for the first."""

    def __init__(self) -> None:
        self.count = 0
        self._called = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._called.set()

    async def called(self) -> None:
        await asyncio.wait_for(self._called.wait(), 10)


def append(partition: Partition, size_bytes: int = 100) -> None:
    """Append one batch of exactly this size."""
    # A longer record has longer lengths in it, so the last bytes are found by trying.
    batches = (make_batch(timestamp_ms=0, value=b"x" * (size_bytes - spent)) for spent in range(60, 80))
    batch = next(batch for batch in batches if len(batch) == size_bytes)
    partition.append(batch, check_batch(batch))


def watcher_count(*partitions: Partition) -> int:
    return sum(len(partition._watchers or ()) for partition in partitions)


async def turns(count: int = 3) -> None:
    """Let everything that is already due happen."""
    for _ in range(count):
        await asyncio.sleep(0)


@in_loop
async def test_poll_ends_when_enough_bytes_have_come(node: QuietNode) -> None:
    first, second = (await node.create("t", 2)).partitions
    done = Done()
    LongPoll([first, second], 250, LONG_MS, done)
    append(first)
    append(second)
    await turns()
    assert done.count == 0
    append(first)
    assert done.count == 0
    await done.called()
    assert done.count == 1
    assert watcher_count(first, second) == 0


@in_loop
async def test_poll_for_one_byte_ends_with_the_first_batch(node: QuietNode) -> None:
    partition = await node.create_partition()
    done = Done()
    LongPoll([partition], 1, LONG_MS, done)
    append(partition)
    await done.called()


@in_loop
async def test_one_request_wakes_a_reader_of_several_partitions_once(node: QuietNode) -> None:
    partitions = (await node.create("t", 3)).partitions
    done = Done()
    LongPoll(partitions, 1, LONG_MS, done)
    for partition in partitions:
        append(partition)
        append(partition)
    assert done.count == 0
    await done.called()
    await turns()
    assert done.count == 1


@in_loop
async def test_poll_ends_when_its_time_is_up(node: QuietNode) -> None:
    partition = await node.create_partition()
    done = Done()
    began = asyncio.get_running_loop().time()
    LongPoll([partition], 1000, 30, done)
    append(partition)
    await turns()
    assert done.count == 0
    await done.called()
    assert asyncio.get_running_loop().time() - began >= 0.029
    append(partition, 2000)
    await turns()
    assert done.count == 1
    assert watcher_count(partition) == 0


@in_loop
async def test_cancelled_poll_leaves_nothing_behind(node: QuietNode) -> None:
    partitions = (await node.create("t", 2)).partitions
    done = Done()
    poll = LongPoll(partitions, 1, 1, done)
    assert watcher_count(*partitions) == 2
    poll.cancel()
    poll.cancel()
    assert watcher_count(*partitions) == 0
    append(partitions[0])
    finished = Done()
    LongPoll([], 1, 2, finished)
    await finished.called()
    assert done.count == 0


@in_loop
async def test_poll_cancelled_between_its_end_and_its_call_stays_silent(node: QuietNode) -> None:
    partition = await node.create_partition()
    done = Done()
    poll = LongPoll([partition], 1, LONG_MS, done)
    append(partition)
    poll.cancel()
    await turns()
    assert done.count == 0


@pytest.mark.parametrize("deleted", [0, 1])
@in_loop
async def test_deletion_of_a_topic_wakes_whoever_waits_for_it(node: QuietNode, deleted: int) -> None:
    topics = [await node.create(name) for name in ("t", "u")]
    partitions = [topic.partitions[0] for topic in topics]
    done = Done()
    LongPoll(partitions, LONG_MS, LONG_MS, done)
    await node.topics.delete(topics[deleted])
    await done.called()
    assert watcher_count(*partitions) == 0


@in_loop
async def test_many_polls_watch_one_partition(node: QuietNode) -> None:
    partition = await node.create_partition()
    all_done = [Done() for _ in range(50)]
    for number, done in enumerate(all_done):
        LongPoll([partition], 100 * (number + 1), LONG_MS, done)
    assert watcher_count(partition) == 50
    append(partition, 1000)
    await turns()
    assert [done.count for done in all_done] == [1] * 10 + [0] * 40
    assert watcher_count(partition) == 40


@in_loop
async def test_partition_named_twice_is_counted_once(node: QuietNode) -> None:
    partition = await node.create_partition()
    done = Done()
    poll = LongPoll([partition, partition], 150, LONG_MS, done)
    append(partition)
    await turns()
    assert done.count == 0
    poll.cancel()
    assert watcher_count(partition) == 0


# --- for committed data


@in_loop
async def test_without_transactions_committed_data_is_waited_for_like_any(node: QuietNode) -> None:
    first, second = (await node.create("t", 2)).partitions
    done = Done()
    poll = LongPoll([first, second], 250, LONG_MS, done, is_committed=True)
    append(first)
    append(second)
    await turns()
    assert done.count == 0
    append(first)
    await done.called()
    assert not poll.is_guess


@in_loop
async def test_nothing_is_gained_behind_an_open_transaction_and_its_end_is_a_guess(node: QuietNode) -> None:
    partition = await node.create_partition()
    producer, other = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    done, plain_done = Done(), Done()
    poll = LongPoll([partition], 1, LONG_MS, done, is_committed=True)
    LongPoll([partition], 1, LONG_MS, plain_done)
    producer.send()
    await plain_done.called()
    for _ in range(3):
        append(partition)
        other.send()
        other.commit()
        await turns()
        assert done.count == 0
    producer.abort()
    await done.called()
    assert poll.is_guess
    assert watcher_count(partition) == 0


@in_loop
async def test_a_transaction_that_was_open_before_is_waited_for_too(node: QuietNode) -> None:
    partition = await node.create_partition()
    first, second = TransactionalProducer(partition, 7), TransactionalProducer(partition, 8)
    first.send()
    second.send()
    done = Done()
    poll = LongPoll([partition], LONG_MS, LONG_MS, done, is_committed=True)
    append(partition)
    await turns()
    assert done.count == 0
    # What lies up to the second one may be read now; how much that is only a look can tell.
    first.commit()
    await done.called()
    assert poll.is_guess


@in_loop
async def test_a_transaction_that_becomes_readable_with_its_end_is_counted(tmp_path: Path) -> None:
    syncs = SyncLater(UnsyncedFiles())
    with QuietNode(tmp_path, syncs=syncs) as node:
        partition = await node.create_partition()
        producer = TransactionalProducer(partition, 7)
        done, other_done = Done(), Done()
        poll = LongPoll([partition], 200, LONG_MS, done, is_committed=True)
        LongPoll([partition], LONG_MS, LONG_MS, other_done, is_committed=True)
        producer.send(value=b"x" * 200)
        producer.commit()
        await turns()
        assert done.count == 0
        syncs.run()
        await done.called()
        assert not poll.is_guess
        assert other_done.count == 0


@in_loop
async def test_a_rise_without_bytes_ends_a_wait_for_committed_data(node: QuietNode) -> None:
    topic = await node.create("t")
    TransactionalProducer(topic.partitions[0], 7).send()
    done = Done()
    poll = LongPoll(topic.partitions, 1, LONG_MS, done, is_committed=True)
    await node.topics.delete(topic)
    await done.called()
    assert not poll.is_guess
