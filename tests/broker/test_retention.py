"""Retention: old records are deleted from open and closed logs, and nothing else is."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kwire.broker.maintenance import retention
from kwire.broker.maintenance.retention import Retention
from kwire.broker.partition import Partition
from storage.batch.record_batch import Record, build_batch, check_batch
from storage.errors import DiskFailure, OffsetOutOfRange
from storage.log.log import Log
from storage.log.segment_ages import LogAges, SegmentAge, closed_log_ages
from storage.segment.segment import LogSegment
from tests.support.batches import make_batch, run_now
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer

SEGMENT_BYTES = 1024 * 1024
# Two of these fill a segment.
LARGE_BYTES = SEGMENT_BYTES // 2 - 1000
HOUR_MS = 3_600_000
DELAY_MS = 60_000


@contextmanager
def keeping(node: QuietNode) -> Iterator[Retention]:
    made = Retention(node.topics, node.clock, run_now, 300_000, node.store, node.files)
    try:
        yield made
    finally:
        made.close()


def append(node: QuietNode, partition: Partition, age_ms: int = 0, size_bytes: int = LARGE_BYTES) -> None:
    # With a key: one of the topics is compacted.
    record = Record(b"key", bytes(size_bytes), node.clock.now_ms() - age_ms)
    batch = memoryview(build_batch([record]))
    partition.append(batch, check_batch(batch))


async def filled(node: QuietNode, *ages_ms: int, name: str = "t", **configs: str) -> Partition:
    """One large record of each age, two to a segment."""
    partition = await node.create_partition(name, segment_bytes=str(SEGMENT_BYTES), **configs)
    for age_ms in ages_ms:
        append(node, partition, age_ms)
    await visible(partition)
    return partition


async def visible(partition: Partition) -> None:
    async with asyncio.timeout(10):
        while partition.high_watermark < partition.log_end_offset:
            await asyncio.sleep(0.001)


def log_files(node: QuietNode, folder: str = "t-0") -> list[int]:
    return sorted(int(path.stem) for path in (node.directory / folder).glob("*.log"))


async def delete_due(node: QuietNode, kept: Retention, delay_ms: int = DELAY_MS) -> None:
    """Let the time pass that removed files stay."""
    node.clock.advance(delay_ms)
    kept.file_remover.delete_due()
    async with asyncio.timeout(10):
        while kept.file_remover._is_busy or len(kept.file_remover):
            await asyncio.sleep(0.001)


def reopened(node: QuietNode, name: str = "t") -> Partition:
    topic = node.topics.get(name)
    assert topic is not None
    return topic.partitions[0]


@in_loop
async def test_s0_58_expired_segments_go_and_their_files_later(node: QuietNode) -> None:
    partition = await filled(node, 9 * HOUR_MS, 8 * HOUR_MS, 7 * HOUR_MS, 2 * HOUR_MS, 0, retention_ms=str(5 * HOUR_MS))
    size_bytes = log_of(partition).size_bytes
    with keeping(node) as kept:
        await kept.round()
        assert partition.log_start_offset == 2
        assert log_of(partition).segment_count == 2
        assert (kept.deleted_segments, kept.deleted_bytes) == (1, size_bytes - log_of(partition).size_bytes)
        with pytest.raises(OffsetOutOfRange):
            partition.read(1, 1000)
        assert log_files(node) == [0, 2, 4]
        await delete_due(node, kept)
        assert log_files(node) == [2, 4]
        assert not list((node.directory / "t-0").glob(f"{0:020d}.*"))


@in_loop
async def test_a_reader_in_the_middle_keeps_what_it_holds_and_is_told_next_time(node: QuietNode) -> None:
    partition = await filled(node, 9 * HOUR_MS, 8 * HOUR_MS, 0, retention_ms=str(5 * HOUR_MS))
    held = partition.read(0, SEGMENT_BYTES)
    before = bytes(held.view)
    with keeping(node) as kept:
        await kept.round()
        await delete_due(node, kept)
    assert log_files(node) == [2]
    assert bytes(held.view) == before
    with pytest.raises(OffsetOutOfRange):
        partition.read(1, SEGMENT_BYTES)


@in_loop
async def test_an_idle_log_empties_and_goes_on_where_it_was(node: QuietNode) -> None:
    partition = await filled(node, 0, 0, 0, retention_ms=str(HOUR_MS))
    with keeping(node) as kept:
        await kept.round()
        assert partition.log_start_offset == 0
        node.clock.advance(HOUR_MS + 1)
        await kept.round()
        assert (partition.log_start_offset, partition.log_end_offset) == (3, 3)
        assert log_of(partition).segment_count == 0
        await delete_due(node, kept)
        assert log_files(node) == []
        append(node, partition, size_bytes=10)
        await visible(partition)
        assert (partition.high_watermark, log_files(node)) == (4, [3])
        await kept.round()
        assert partition.log_start_offset == 3
    node.restart()
    assert (reopened(node).log_start_offset, reopened(node).log_end_offset) == (3, 4)


@in_loop
async def test_an_emptied_log_keeps_its_end_over_a_restart(node: QuietNode) -> None:
    await filled(node, 0, 0, 0, retention_ms=str(HOUR_MS))
    node.clock.advance(HOUR_MS + 1)
    with keeping(node) as kept:
        await kept.round()
        await delete_due(node, kept)
    node.restart()
    log = log_of(reopened(node))
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    with keeping(node) as kept:
        await kept.round()
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


@in_loop
async def test_s0_59_the_size_limit_takes_whole_segments(node: QuietNode) -> None:
    partition = await filled(node, 0, 0, 0, 0, 0, 0, retention_bytes=str(SEGMENT_BYTES), retention_ms="-1")
    with keeping(node) as kept:
        await kept.round()
    assert partition.log_start_offset == 2
    assert log_of(partition).size_bytes >= SEGMENT_BYTES


@in_loop
async def test_s0_62_infinite_retention_keeps_everything(node: QuietNode) -> None:
    partition = await filled(node, 9 * HOUR_MS, 0, 0, retention_ms="-1", retention_bytes="-1")
    node.clock.advance(10_000 * HOUR_MS)
    with keeping(node) as kept:
        await kept.round()
        await kept.short_round()
    assert partition.log_start_offset == 0


@in_loop
async def test_s0_60_segments_behind_a_ring_go_within_seconds(node: QuietNode) -> None:
    partition = await filled(node, *[0] * 7, kwire_retention_messages="3")
    with keeping(node) as kept:
        await kept.short_round()
        assert partition.log_start_offset == 4
        assert log_of(partition).segment_count == 2
        await delete_due(node, kept)
    assert log_files(node) == [4, 6]
    node.restart()
    assert reopened(node).log_start_offset == 4


@in_loop
async def test_s0_61_s0_21_the_tightest_limit_wins(node: QuietNode) -> None:
    limits = {"retention_ms": str(HOUR_MS), "retention_bytes": str(SEGMENT_BYTES), "kwire_retention_messages": "5"}
    partition = await filled(node, *[0] * 6, **limits)
    with keeping(node) as kept:
        await kept.round()
        assert partition.log_start_offset == 2
        append(node, partition)
        append(node, partition, size_bytes=10)
        append(node, partition, size_bytes=10)
        await visible(partition)
        await kept.round()
        assert partition.log_start_offset == 4
        node.clock.advance(HOUR_MS + 1)
        await kept.round()
        assert partition.log_start_offset == 9


@in_loop
async def test_compacted_topics_lose_only_what_lies_below_their_log_start(node: QuietNode) -> None:
    limits = {"retention_ms": "1", "retention_bytes": "1", "cleanup_policy": "compact"}
    partition = await filled(node, 9 * HOUR_MS, 8 * HOUR_MS, 0, **limits)
    with keeping(node) as kept:
        await kept.round()
        assert (partition.log_start_offset, log_of(partition).segment_count) == (0, 2)
        log_of(partition).advance_log_start_offset(2)
        await kept.round()
        assert (partition.log_start_offset, log_of(partition).segment_count) == (2, 1)


@in_loop
async def test_nothing_at_or_above_the_watermark_goes(node: QuietNode) -> None:
    partition = await filled(node, *[9 * HOUR_MS] * 5, retention_ms="1", retention_bytes="0")
    # Held by a round that has not come back: nobody may have read these records yet.
    partition.high_watermark = 3
    partition.settings = replace(partition.settings, retention_messages=0)
    with keeping(node) as kept:
        await kept.short_round()
        assert partition.log_start_offset == 3
        await kept.round()
    assert partition.log_start_offset == 3
    assert [segment.base_offset for segment in log_of(partition).segments()] == [2, 4]


@in_loop
async def test_records_without_times_count_from_when_their_segment_was_closed(node: QuietNode) -> None:
    partition = await node.create_partition(
        segment_bytes=str(SEGMENT_BYTES), segment_ms=str(2 * HOUR_MS), retention_ms=str(HOUR_MS)
    )
    for _ in range(3):
        batch = make_batch(timestamp_ms=-1, value=bytes(LARGE_BYTES))
        partition.append(batch, check_batch(batch))
    await visible(partition)
    with keeping(node) as kept:
        node.clock.advance(HOUR_MS)
        await kept.round()
        assert partition.log_start_offset == 0
        node.clock.advance(1)
        await kept.round()
        assert partition.log_start_offset == 2
        # The last segment may have been written to until segment.ms were over.
        node.clock.advance(2 * HOUR_MS)
        await kept.round()
        assert partition.log_start_offset == 3


# --- logs that are not open


@contextmanager
def counted_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    looked: list[str] = []
    look = closed_log_ages

    def watched(directory: str, *rest: Any) -> LogAges | None:
        looked.append(os.path.basename(directory))
        return look(directory, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(retention, "closed_log_ages", watched)
        yield looked


@in_loop
async def test_logs_that_nobody_opened_expire_too(node: QuietNode) -> None:
    for name in ("a", "b"):
        await filled(node, 0, 0, 0, name=name, retention_ms=str(HOUR_MS if name == "a" else 9 * HOUR_MS))
    node.restart()
    node.clock.advance(HOUR_MS + 1)
    with keeping(node) as kept:
        await kept.round()
        assert not node.topics.open_partitions
        assert kept.deleted_segments == 2
        await delete_due(node, kept)
        # Whatever the parking had to leave is seen to by the next round.
        await kept.round()
    assert log_files(node, "a-0") == []
    assert log_files(node, "b-0") == [0, 2]
    log = log_of(reopened(node, "a"))
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


@in_loop
async def test_a_closed_log_is_looked_at_once_until_it_comes_of_age(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(node, HOUR_MS, 0, 0, retention_ms=str(9 * HOUR_MS))
    node.restart()
    with keeping(node) as kept, counted_looks(monkeypatch) as looked:
        for _ in range(3):
            await kept.round()
        assert looked == ["t-0"]
        node.clock.advance(9 * HOUR_MS)
        await kept.round()
        assert looked == ["t-0"]
        node.clock.advance(1)
        await kept.round()
        assert looked == ["t-0"] * 2
        assert kept.deleted_segments == 2
        # Nothing is left to come of age.
        for _ in range(3):
            node.clock.advance(100 * HOUR_MS)
            await delete_due(node, kept)
            await kept.round()
        settled = len(looked)
        await kept.round()
        assert len(looked) == settled


@in_loop
async def test_new_settings_are_a_reason_to_look_again(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(node, 0, 0, 0, retention_ms="-1")
    node.restart()
    node.clock.advance(HOUR_MS)
    with keeping(node) as kept, counted_looks(monkeypatch) as looked:
        await kept.round()
        topic = node.topics.get("t")
        assert topic is not None
        await node.topics.configure(topic, {**topic.configs, "retention.ms": "1"})
        await kept.round()
        assert looked == ["t-0"] * 2
        assert kept.deleted_segments == 2


@in_loop
async def test_a_log_that_was_used_and_parked_since_is_looked_at_again(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(node, 0, 0, 0, retention_bytes=str(2 * SEGMENT_BYTES), retention_ms="-1")
    node.restart()
    with keeping(node) as kept, counted_looks(monkeypatch) as looked:
        await kept.round()
        partition = reopened(node)
        for _ in range(6):
            append(node, partition)
        await visible(partition)
        assert node.topics.park(partition)
        await kept.round()
        assert looked == ["t-0"] * 2
        assert kept.deleted_segments > 0


@in_loop
async def test_folders_are_looked_at_in_portions(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FOLDERS_PER_CHUNK", 2)
    monkeypatch.setattr(retention, "CHUNK_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(retention, "NAMES_PER_CHUNK", 3)
    for number in range(5):
        await filled(node, HOUR_MS, name=f"t{number}", retention_ms="1")
    node.restart()
    jobs: list[int] = []

    def background(job: Callable[[], None]) -> None:
        jobs.append(1)
        job()

    kept = Retention(node.topics, node.clock, background, 300_000, node.store, node.files)
    with counted_looks(monkeypatch) as looked:
        await kept.round()
    kept.close()
    assert sorted(looked) == [f"t{number}-0" for number in range(5)]
    assert kept.deleted_segments == 5


@in_loop
async def test_a_folder_that_went_away_meanwhile_is_no_matter(node: QuietNode) -> None:
    await filled(node, HOUR_MS, retention_ms="1")
    node.restart()
    with keeping(node) as kept:
        topic = node.topics.get("t")
        assert topic is not None
        (closed,) = [closed for folder in ("t-0",) if (closed := kept._due(folder)) is not None]
        await node.topics.delete(topic)
        await kept._apply_to_closed([closed])
        await kept.round()
        assert (kept.failures, kept.deleted_segments) == (0, 0)


# --- trouble, and manners


@in_loop
async def test_files_are_read_and_deleted_by_a_thread(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(node, HOUR_MS, HOUR_MS, 0, name="closed", retention_ms="1000")
    node.restart()
    await filled(node, HOUR_MS, HOUR_MS, 0, name="opened", retention_ms="1000", file_delete_delay_ms="0")
    threads = set()
    for owner, name in ((SegmentAge, "_read"), (LogSegment, "delete_files")):
        real = getattr(owner, name)

        def watched(*args: Any, real: Any = real) -> Any:
            threads.add((real.__name__, threading.current_thread() is threading.main_thread()))
            return real(*args)

        monkeypatch.setattr(owner, name, watched)

    def in_background(job: Callable[[], None]) -> None:
        pool.submit(job)

    with ThreadPoolExecutor(2) as pool:
        kept = Retention(node.topics, node.clock, in_background, 300_000, node.store, node.files)
        await kept.round()
        async with asyncio.timeout(10):
            while kept.file_remover._is_busy or len(kept.file_remover):
                await asyncio.sleep(0.001)
        kept.close()
    assert (log_files(node, "closed-0"), log_files(node, "opened-0")) == ([2], [2])
    assert threads == {("_read", False), ("delete_files", False)}


@in_loop
async def test_a_disk_in_trouble_keeps_one_log_and_not_the_others(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await filled(node, HOUR_MS, HOUR_MS, 0, name="a", retention_ms="1000")
    second = await filled(node, HOUR_MS, HOUR_MS, 0, name="b", retention_ms="1000")
    drop = Log.drop_segments

    def failing(log: Log) -> Any:
        if log is log_of(first):
            raise DiskFailure("no space left")
        return drop(log)

    with keeping(node) as kept:
        with monkeypatch.context() as patch:
            patch.setattr(Log, "drop_segments", failing)
            await kept.round()
        assert (kept.failures, kept.deleted_segments) == (1, 1)
        assert (log_of(first).segment_count, log_of(second).segment_count) == (2, 1)
        await kept.round()
        assert log_of(first).segment_count == 1


@in_loop
async def test_a_topic_deleted_during_the_round_is_left_alone(node: QuietNode) -> None:
    partition = await filled(node, HOUR_MS, HOUR_MS, 0, retention_ms="1000")
    topic = node.topics.get("t")
    assert topic is not None
    with keeping(node) as kept:
        opened = [partition]
        await node.topics.delete(topic)
        await kept._apply_to_open(opened)
        assert (kept.failures, kept.deleted_segments) == (0, 0)


@in_loop
async def test_a_topic_made_anew_keeps_its_files(node: QuietNode) -> None:
    await filled(node, HOUR_MS, HOUR_MS, 0, retention_ms="1000")
    topic = node.topics.get("t")
    assert topic is not None
    with keeping(node) as kept:
        await kept.round()
        assert len(kept.file_remover) == 1
        await node.topics.delete(topic)
        await filled(node, 0, 0, 0)
        await delete_due(node, kept)
        assert log_files(node) == [0, 2]


@in_loop
async def test_a_round_takes_turns_with_the_loop(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOGS_PER_CHUNK", 2)
    partitions = [await filled(node, HOUR_MS, name=f"t{number}", retention_ms="1") for number in range(5)]
    turns = []
    with keeping(node) as kept:
        doing = asyncio.ensure_future(kept.round())
        while not doing.done():
            await asyncio.sleep(0)
            turns.append(kept.deleted_segments)
        await doing
    assert kept.deleted_segments == 5
    assert {2, 4} <= set(turns)
    assert all(partition.log_start_offset == 1 for partition in partitions)


@in_loop
async def test_rounds_come_by_themselves_until_they_are_closed(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await filled(node, HOUR_MS, HOUR_MS, 0, retention_ms="1000")
    ring = await filled(node, 0, 0, 0, name="ring", kwire_retention_messages="1")
    monkeypatch.setattr(retention, "RING_ROUND_SECONDS", 0.001)
    kept = Retention(node.topics, node.clock, run_now, 1, node.store, node.files)
    async with asyncio.timeout(10):
        while partition.log_start_offset != 2 or log_of(ring).segment_count != 1:
            await asyncio.sleep(0.001)
    kept.close()
    await asyncio.sleep(0)
    assert all(task.done() for task in kept._tasks)


@in_loop
async def test_a_round_that_fails_is_not_the_last(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    async def failing(kept: Retention) -> None:
        rounds.append(1)
        raise ValueError("a bug")

    monkeypatch.setattr(Retention, "round", failing)
    kept = Retention(node.topics, node.clock, run_now, 1, node.store, node.files)
    async with asyncio.timeout(10):
        while len(rounds) < 3:
            await asyncio.sleep(0.001)
    kept.close()
    assert kept.failures >= 2


@in_loop
async def test_a_ring_round_takes_nothing_that_an_open_transaction_keeps(node: QuietNode) -> None:
    partition = await node.create_partition("t", segment_bytes=str(SEGMENT_BYTES), kwire_retention_messages="4")
    producer = TransactionalProducer(partition, 7)
    for _ in range(4):
        append(node, partition)
    producer.send()
    for _ in range(6):
        append(node, partition)
    with keeping(node) as kept:
        await kept.short_round()
        await kept.round()
        assert (partition.log_start_offset, partition.last_stable_offset) == (0, 4)
        producer.commit()
        assert partition.log_start_offset == 8
        await kept.short_round()
        assert next(log_of(partition).segments()).base_offset > 4


@in_loop
async def test_age_lets_records_of_an_open_transaction_go(node: QuietNode) -> None:
    """As in Kafka: a producer that hangs must not fill the disk."""
    partition = await node.create_partition("t", segment_bytes=str(SEGMENT_BYTES), retention_ms=str(HOUR_MS))
    TransactionalProducer(partition, 7).send(now_ms=node.clock.now_ms() - 3 * HOUR_MS)
    for age_ms in (3 * HOUR_MS, 3 * HOUR_MS, 0, 0):
        append(node, partition, age_ms)
    with keeping(node) as kept:
        await kept.round()
    assert partition.log_start_offset > 0
    assert partition.last_stable_offset == partition.log_start_offset
