"""Offset marks: no acknowledged offset is assigned a second time after an accepted loss."""

import asyncio
from collections.abc import Sequence

import pytest

from kwire.broker.partition import WAIT_MS_MAX, Partition
from kwire.broker.topics.adoption import Adoption
from kwire.broker.topics.catalogue import MARKS_PREFIX
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Condition
from storage.batch.record_batch import check_batch
from storage.errors import DiskFailure
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop

BLOCK = 100
SYNC = pytest.mark.parametrize("sync", ["group", "os"])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("partition.reserved_offsets", "topics.offset_marks", "topics.adoption", "topics.startup"):
        monkeypatch.setattr(f"kwire.broker.{module}.MARK_BLOCK", BLOCK)


class HeldCommits:
    """Lets commits of marks wait, or fail, as a test says; all others go through."""

    def __init__(self, node: QuietNode) -> None:
        self.may_go = asyncio.Event()
        self.fails = False
        self.count = 0
        self._commit = node.metastore.commit
        node.metastore.commit = self.commit  # type: ignore[method-assign]

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        if any(change.key.startswith(MARKS_PREFIX) for change in changes):
            self.count += 1
            await self.may_go.wait()
            if self.fails:
                raise DiskFailure("no room")
        return await self._commit(changes, conditions)


def append(partition: Partition, count: int = 1, timeout_ms: int = WAIT_MS_MAX) -> list[KafkaError | None]:
    """What was answered goes into the list, once it is."""
    batch = make_batch(count, timestamp_ms=0)
    appended = partition.append(batch, check_batch(batch))
    answers: list[KafkaError | None] = []
    partition.on_reached(appended.last_offset + 1, answers.append, timeout_ms)
    return answers


def stored_mark(node: QuietNode, topic: Topic) -> int | None:
    entry = node.metastore.get(MARKS_PREFIX + topic.topic_id.hex())
    return entry.value["0"] if entry is not None else None


@SYNC
@in_loop
async def test_every_acknowledged_offset_lies_below_a_durable_mark(node: QuietNode, sync: str) -> None:
    topic = await node.create("orders", kwire_log_sync=sync)
    (partition,) = topic.partitions
    for _ in range(BLOCK // 2):
        assert append(partition) == [None]
    assert stored_mark(node, topic) is None
    for number in range(400):
        answers = append(partition, 1 + number % 7)
        await node.topics.marks.idle()
        assert answers == [None]
        assert partition.high_watermark == partition.log_end_offset <= (stored_mark(node, topic) or BLOCK)
    entries = [key for key, _ in node.metastore.entries(MARKS_PREFIX)]
    assert len(entries) == 1


@SYNC
@in_loop
async def test_above_the_mark_an_answer_waits_for_the_next_one(node: QuietNode, sync: str) -> None:
    held = HeldCommits(node)
    topic = await node.create("orders", kwire_log_sync=sync)
    (partition,) = topic.partitions
    assert append(partition, BLOCK) == [None]
    waiting = [append(partition, 3), append(partition)]
    await asyncio.sleep(0)
    assert waiting == [[], []]
    assert partition.high_watermark == BLOCK
    assert partition.log_end_offset == BLOCK + 4
    assert held.count == 1
    held.may_go.set()
    await node.topics.marks.idle()
    assert waiting == [[None], [None]]
    assert partition.high_watermark == BLOCK + 4
    assert (stored_mark(node, topic) or 0) >= BLOCK + 4


@in_loop
async def test_a_wait_for_a_mark_ends_with_its_own_timeout(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.broker.topics.offset_marks.TIMEOUT_CHECK_SECONDS", 0.001)
    held = HeldCommits(node)
    partition = await node.create_partition()
    append(partition, BLOCK)
    early = append(partition, timeout_ms=1000)
    node.clock.advance(1000)
    late = append(partition, timeout_ms=1000)
    async with asyncio.timeout(10):
        while not early:
            await asyncio.sleep(0)
    assert [error and error.code for error in early] == [ErrorCode.REQUEST_TIMED_OUT]
    assert late == []
    held.may_go.set()
    await node.topics.marks.idle()
    assert late == [None]


@in_loop
async def test_a_mark_that_cannot_be_written_refuses_and_is_tried_again(node: QuietNode) -> None:
    held = HeldCommits(node)
    held.may_go.set()
    held.fails = True
    topic = await node.create("orders")
    (partition,) = topic.partitions
    assert append(partition, BLOCK) == [None]
    await node.topics.marks.idle()
    answers = append(partition)
    await node.topics.marks.idle()
    assert [error.code for error in answers if error is not None] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partition.high_watermark == BLOCK
    held.fails = False
    answers = append(partition)
    await node.topics.marks.idle()
    assert answers == [None]
    assert partition.high_watermark == BLOCK + 2


@in_loop
async def test_a_log_from_before_there_were_marks_is_read_whole_and_gets_one(node: QuietNode) -> None:
    topic = await node.create("orders")
    append(topic.partitions[0], 5 * BLOCK)
    await node.topics.marks.idle()
    entry = node.metastore.get(MARKS_PREFIX + topic.topic_id.hex())
    assert entry is not None
    await node.metastore.commit([Change(MARKS_PREFIX + topic.topic_id.hex(), None, entry.revision)])
    node.restart()
    again = node.topics.get("orders")
    assert again is not None
    assert again.partitions[0].log_end_offset == again.partitions[0].high_watermark == 5 * BLOCK
    await node.topics.marks.idle()
    assert (stored_mark(node, again) or 0) >= 5 * BLOCK


@in_loop
async def test_marks_go_with_their_topic(node: QuietNode) -> None:
    topic = await node.create("orders")
    append(topic.partitions[0], 3 * BLOCK)
    await node.topics.marks.idle()
    assert stored_mark(node, topic) is not None
    await node.topics.delete(topic)
    assert list(node.metastore.entries(MARKS_PREFIX)) == []


@pytest.mark.parametrize("count", [3, BLOCK - 1, BLOCK, 5 * BLOCK + 7])
@in_loop
async def test_an_accepted_loss_goes_on_above_everything_acknowledged(node: QuietNode, count: int) -> None:
    topic = await node.create("orders", 2)
    for partition in topic.partitions:
        answers = append(partition, count)
        await node.topics.marks.idle()
        assert answers == [None]
    for loss in range(2):
        folder = node.directory / "orders-0"
        end = topic.partitions[0].high_watermark
        node.close()
        folder.rename(node.directory / f"lost {loss}")
        outcome = await Adoption([str(node.directory)], node.files, node.config).run(frozenset({"orders-0"}))
        assert outcome.left == []
        node._starts += 1
        node._open()
        topic = node.topics.get("orders")  # type: ignore[assignment]
        first, second = topic.partitions
        assert first.log_start_offset == first.log_end_offset >= end
        assert second.log_end_offset == count
        answers = append(first)
        await node.topics.marks.idle()
        assert answers == [None]
