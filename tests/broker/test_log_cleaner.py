"""LogCleaner: which log is compacted when, that the result is swapped in, and what happens if the log has changed."""

import asyncio
import inspect
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.maintenance.compaction import OLD_SEGMENT_MS, RETRY_DELAY_MS, WORKER_DEATHS_MAX, LogCleaner
from kwire.broker.partition import Partition
from kwire.concurrency.worker_process import WorkerDied, WorkerProcess
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.errors import DiskFailure
from storage.log.log import Log
from storage.log.quarantine import Quarantine
from storage.log.settings import LogSettings
from storage.segment.segment import segment_name
from tests.support.batches import read_all
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer

KEYS = 8
# Eight records of a hundred bytes and more: a segment for each round over the keys.
SEGMENT_BYTES = 1700
WAIT_SECONDS = 20.0
BUDGET_BYTES = 1024 * 1024


class InlineWorker(WorkerProcess):
    """Does the work here and now; `before` and `after` are what happens meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        self.runs = 0

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        happens = self.before()
        if inspect.isawaitable(happens):
            await happens
        result = function(*args)
        self.after()
        return result


@asynccontextmanager
async def cleaning(node: QuietNode, worker: WorkerProcess | None = None, **config: Any) -> AsyncIterator[LogCleaner]:
    worker = worker or InlineWorker()
    made = LogCleaner(node.topics, node.clock, worker, node.config.log._replace(**config), node.files)
    try:
        yield made
    finally:
        await made.close()
        await worker.close()


async def compacted_topic(node: QuietNode, name: str = "t", **configs: str) -> Partition:
    configs = {"cleanup_policy": "compact", **configs}
    partition = await node.create_partition(name, **configs)
    log_of(partition).settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
    return partition


def write(partition: Partition, key: str, value: str, timestamp_ms: int) -> None:
    batch = build_batch([Record(key.encode(), value.encode(), timestamp_ms)])
    partition.append(memoryview(batch), parse_header(batch))


def settle(partition: Partition) -> None:
    """What a sync round would do."""
    log_of(partition).flush()
    partition.advance(partition.log_end_offset)


def fill(node: QuietNode, partition: Partition, rounds: int = 4) -> None:
    for number in range(rounds):
        for key in range(KEYS):
            write(partition, f"key-{key}", f"{number}" * 100, node.clock.now_ms())
    settle(partition)


def values(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for batch in read_all(log_of(partition))
        for record in read_records(batch, BUDGET_BYTES)
    ]


def last_values(partition: Partition) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in values(partition)}


def leftovers(partition: Partition) -> list[str]:
    return [name for name in os.listdir(log_of(partition).directory) if name.endswith(".new") or name == "replacement"]


@in_loop
async def test_a_dirty_log_is_compacted_and_goes_on(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        before, size_bytes = last_values(partition), log_of(partition).size_bytes
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            assert last_values(partition) == before
            assert log_of(partition).size_bytes < size_bytes
            assert cleaner.removed_bytes == size_bytes - log_of(partition).size_bytes
            assert (cleaner.cleaned_count, cleaner.failures, cleaner.dirtiest_ratio) == (1, 0, 1.0)
            assert cleaner.dropped_records > 0
            assert leftovers(partition) == []
            assert not await cleaner.clean_one(), "what is clean is left alone"
            fill(node, partition)
            assert await cleaner.clean_one()
            assert log_of(partition).clean_upto > KEYS * 4


@in_loop
async def test_many_new_segments_come_in_by_one_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swaps: list[int] = []
    begin = Log.begin_replacement

    def counted(log: Log, removed: Any, added: Any, clean_upto: int) -> Any:
        swaps.append(len(added))
        return begin(log, removed, added, clean_upto)

    monkeypatch.setattr(Log, "begin_replacement", counted)
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        partition.settings = replace(partition.settings, segment_bytes=SEGMENT_BYTES)
        for number in range(KEYS * 4):
            write(partition, f"key-{number}", "x" * 100, node.clock.now_ms())
        write(partition, "key-0", "y" * 100, node.clock.now_ms())
        log_of(partition).roll(node.clock.now_ms())
        settle(partition)
        before = last_values(partition)
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            assert cleaner.dropped_records == 1
        assert last_values(partition) == before
        assert len(swaps) == 1
        assert swaps[0] > 2
        assert leftovers(partition) == []


@in_loop
async def test_a_log_without_compaction_is_left_alone(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node, cleanup_policy="delete")
        fill(node, partition)
        async with cleaning(node) as cleaner:
            assert not await cleaner.clean_one()


@in_loop
async def test_the_dirtiest_log_comes_first(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        one, two = await compacted_topic(node, "one"), await compacted_topic(node, "two")
        async with cleaning(node) as cleaner:
            fill(node, one)
            assert await cleaner.clean_one()
            fill(node, one, 3)
            fill(node, two, 2)
            clean_upto = log_of(one).clean_upto
            assert await cleaner.clean_one()
            assert (log_of(one).clean_upto, log_of(two).clean_upto > 0) == (clean_upto, True)
            assert await cleaner.clean_one()
            assert log_of(one).clean_upto > clean_upto


@in_loop
async def test_a_log_is_not_dirty_enough_below_its_ratio(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node, min_cleanable_dirty_ratio="0.6")
        async with cleaning(node) as cleaner:
            for key in range(100):
                write(partition, f"key-{key}", "1" * 100, node.clock.now_ms())
            settle(partition)
            assert await cleaner.clean_one()
            fill(node, partition, 5)
            assert not await cleaner.clean_one()
            assert 0 < cleaner.dirtiest_ratio < 0.6
            fill(node, partition, 30)
            assert await cleaner.clean_one()


@in_loop
async def test_what_is_younger_than_the_least_lag_is_not_cleaned(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node, min_compaction_lag_ms="60000")
        async with cleaning(node) as cleaner:
            fill(node, partition)
            node.clock.advance(30_000)
            old_end = partition.log_end_offset
            fill(node, partition)
            assert not await cleaner.clean_one()
            node.clock.advance(30_001)
            assert await cleaner.clean_one()
            assert 0 < log_of(partition).clean_upto <= old_end


@in_loop
async def test_what_is_older_than_the_largest_lag_is_cleaned_whatever_the_ratio(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node, min_cleanable_dirty_ratio="1", max_compaction_lag_ms="60000")
        async with cleaning(node) as cleaner:
            write(partition, "a", "1", node.clock.now_ms())
            write(partition, "a", "2", node.clock.now_ms())
            settle(partition)
            assert not await cleaner.clean_one()
            assert log_of(partition).segment_count == 1
            node.clock.advance(60_001)
            await cleaner.clean_one()  # closes the segment that takes appends
            await cleaner.clean_one()
            assert [value for _, _, value in values(partition)] == [b"2"]
            assert log_of(partition).clean_upto == 2
            assert not await cleaner.clean_one()


def park(node: QuietNode, partition: Partition) -> None:
    """What the bound on open logs does to one that is idle."""
    assert log_of(partition).park()
    partition._log = None
    node.store.forget_log(partition.topic_name, partition.index)
    del node.topics.open_partitions[partition]


@in_loop
async def test_a_log_that_was_parked_dirty_is_opened_for_its_turn(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        one, two = await compacted_topic(node, "one"), await compacted_topic(node, "two")
        fill(node, one, 6)
        fill(node, two, 4)
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            (parked,) = [partition for partition in (one, two) if not log_of(partition).clean_upto]
            park(node, parked)
            assert await cleaner.clean_one()
            assert log_of(parked).clean_upto > 0
            assert not await cleaner.clean_one()
            park(node, parked)
            assert not await cleaner.clean_one()
            assert not parked.is_open, "what is clean stays closed"


@in_loop
async def test_a_parked_log_is_opened_when_its_records_come_of_age(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node, max_compaction_lag_ms="60000")
        async with cleaning(node) as cleaner:
            write(partition, "a", "1", node.clock.now_ms())
            write(partition, "a", "2", node.clock.now_ms())
            settle(partition)
            assert not await cleaner.clean_one()
            park(node, partition)
            assert not await cleaner.clean_one()
            assert not partition.is_open
            node.clock.advance(60_001)
            await cleaner.clean_one()  # opens it and closes its segment
            settle(partition)
            assert await cleaner.clean_one()
            assert [value for _, _, value in values(partition)] == [b"2"]


@in_loop
async def test_nothing_above_the_high_watermark_is_cleaned(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        partition.high_watermark = KEYS + 2
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            assert log_of(partition).clean_upto <= KEYS + 2


@in_loop
async def test_nothing_from_a_quarantined_range_on_is_cleaned(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        third = list(log_of(partition).segments())[2]
        start = third.base_offset
        log_of(partition).quarantine(Quarantine(start, 0, third.size_bytes, start, third.next_offset, "test"))
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            assert log_of(partition).clean_upto == start
            assert not await cleaner.clean_one()
            assert cleaner.failures == 0


@in_loop
async def test_a_damaged_log_is_named_and_not_tried_again(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition, other = await compacted_topic(node), await compacted_topic(node, "other")
        fill(node, partition)
        fill(node, other)
        path = Path(log_of(partition).directory) / segment_name(0)
        data = bytearray(path.read_bytes())
        data[200] ^= 1
        path.write_bytes(data)
        async with cleaning(node) as cleaner:
            for _ in range(3):
                await cleaner.clean_one()
            assert list(cleaner.uncleanable) == ["t-0"]
            assert segment_name(0) in cleaner.uncleanable["t-0"]
            assert cleaner.last_errors["t-0"] == cleaner.uncleanable["t-0"]
            assert (cleaner.failures, cleaner.cleaned_count) == (1, 1)
            assert (log_of(partition).clean_upto, log_of(other).clean_upto > 0) == (0, True)
            assert path.read_bytes() == data
            assert leftovers(partition) == []


@in_loop
async def test_a_topic_that_is_deleted_meanwhile_is_forgotten(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        topic = node.topics.get("t")
        assert topic is not None
        worker = InlineWorker()
        async with cleaning(node, worker) as cleaner:
            worker.before = lambda: node.topics.delete(topic)
            assert not await cleaner.clean_one()
            worker.before = lambda: None
            again = await compacted_topic(node)
            fill(node, again)
            assert await cleaner.clean_one()
            assert cleaner.uncleanable == {}


@in_loop
async def test_retention_may_take_segments_meanwhile(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition, 6)
        worker = InlineWorker()
        second = list(log_of(partition).segments())[1].base_offset

        def retain() -> None:
            log_of(partition).advance_log_start_offset(second)
            for segment in log_of(partition).drop_segments():
                segment.delete_files()

        worker.after = retain
        async with cleaning(node, worker) as cleaner:
            assert not await cleaner.clean_one(), "one of the segments of the group is gone"
            assert cleaner.abandoned_count == 1
            assert leftovers(partition) == []
            worker.after = lambda: None
            before = last_values(partition)
            assert await cleaner.clean_one()
            assert last_values(partition) == before
            assert partition.log_start_offset == second


@in_loop
async def test_groups_that_retention_took_whole_are_passed_over(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        for number in range(60):
            write(partition, f"key-{number}", "1" * 100, node.clock.now_ms())
        settle(partition)
        # As large as the segments are: nothing is joined, each segment is a group.
        partition.settings = replace(partition.settings, segment_bytes=SEGMENT_BYTES)
        worker = InlineWorker()
        second = list(log_of(partition).segments())[1].base_offset

        def retain() -> None:
            log_of(partition).advance_log_start_offset(second)
            for segment in log_of(partition).drop_segments():
                segment.delete_files()

        worker.after = retain
        async with cleaning(node, worker) as cleaner:
            assert await cleaner.clean_one()
            assert [offset for offset, _, _ in values(partition)] == list(range(second, 60))
            assert leftovers(partition) == []


@in_loop
async def test_what_lies_behind_an_open_transaction_is_not_cleaned_before_its_end(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        producer = TransactionalProducer(partition, 1)
        producer.send_keyed()
        fill(node, partition)
        worker = InlineWorker()
        async with cleaning(node, worker) as cleaner:
            for _ in range(3):
                assert not await cleaner.clean_one()
            fill(node, partition)
            assert not await cleaner.clean_one()
            assert worker.runs == 0
            producer.commit()
            fill(node, partition)
            assert await cleaner.clean_one()
            assert worker.runs == 1
            assert cleaner.failures == 0


@in_loop
async def test_a_full_disk_is_tried_again_later(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        worker = InlineWorker()

        def fail() -> None:
            raise DiskFailure("no space left", 28)

        worker.before = fail
        async with cleaning(node, worker) as cleaner:
            for _ in range(3):
                assert not await cleaner.clean_one()
            assert (worker.runs, cleaner.failures, cleaner.last_errors) == (1, 1, {"t-0": "no space left"})
            worker.before = lambda: None
            node.clock.advance(RETRY_DELAY_MS)
            assert await cleaner.clean_one()
            assert cleaner.last_errors == {}


@in_loop
async def test_a_log_that_kills_its_worker_again_and_again_is_given_up(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        fill(node, await compacted_topic(node))
        worker = InlineWorker()

        def die() -> None:
            raise WorkerDied("out of memory")

        worker.before = die
        async with cleaning(node, worker) as cleaner:
            for _ in range(WORKER_DEATHS_MAX + 2):
                assert not await cleaner.clean_one()
                node.clock.advance(RETRY_DELAY_MS)
            assert worker.runs == WORKER_DEATHS_MAX
            assert cleaner.uncleanable == {"t-0": "out of memory"}


@in_loop
async def test_old_segments_are_closed_when_their_time_has_come(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node, file_delete_delay_ms=str(OLD_SEGMENT_MS))
        fill(node, partition)
        old = [segment for segment in log_of(partition).segments() if segment.is_sealed]
        read = partition.read(0, 500)
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
            assert len(cleaner._file_remover) == len(old)
            before = bytes(read.view)
            node.clock.advance(OLD_SEGMENT_MS + 1)
            cleaner._file_remover.delete_due()
            async with asyncio.timeout(WAIT_SECONDS):
                while not all(segment.is_deleted for segment in old):
                    await asyncio.sleep(0.01)
            assert bytes(read.view) == before
            assert len(values(partition)) < KEYS * 4


# --- with a real worker


@in_loop
async def test_a_worker_killed_in_the_middle_changes_nothing_and_the_next_run_works(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        before = values(partition)
        new_file = Path(log_of(partition).directory) / (segment_name(0) + ".new")
        worker = WorkerProcess()
        slow = node.config.log._replace(cleaner_bytes_per_second_max=2000.0)
        cleaner = LogCleaner(node.topics, node.clock, worker, slow, node.files)
        try:
            cleaned = asyncio.ensure_future(cleaner.clean_one())
            async with asyncio.timeout(WAIT_SECONDS):
                while not new_file.exists():
                    await asyncio.sleep(0.01)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            assert not await cleaned
            assert values(partition) == before
            assert leftovers(partition) == []
            assert (worker.deaths, cleaner.failures, cleaner.uncleanable) == (1, 1, {})
            node.clock.advance(RETRY_DELAY_MS)
            cleaner._config = node.config.log
            assert await cleaner.clean_one()
            assert last_values(partition) == {key: value for _, key, value in before}
            assert worker.starts == 2
        finally:
            await cleaner.close()
            await worker.close()


@in_loop
async def test_closing_in_the_middle_leaves_the_log_as_it_is(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await compacted_topic(node)
        fill(node, partition)
        before = values(partition)
        worker = WorkerProcess()
        config = node.config.log._replace(cleaner_bytes_per_second_max=1.0, cleaner_backoff_ms=1)
        cleaner = LogCleaner(node.topics, node.clock, worker, config, node.files)
        async with asyncio.timeout(WAIT_SECONDS):
            while worker.pid is None:
                await asyncio.sleep(0.01)
        await cleaner.close()
        await worker.close()
        assert values(partition) == before


@pytest.mark.parametrize("is_enabled", [True, False])
def test_rounds_begin_by_themselves_if_the_cleaner_is_enabled(tmp_path: Path, is_enabled: bool) -> None:
    @in_loop
    async def run() -> None:
        with QuietNode(tmp_path) as node:
            partition = await compacted_topic(node)
            fill(node, partition)
            worker = InlineWorker()
            async with cleaning(node, worker, cleaner_backoff_ms=1, is_cleaner_enabled=is_enabled) as cleaner:
                async with asyncio.timeout(WAIT_SECONDS):
                    while not cleaner.cleaned_count and not cleaner._task.done():
                        await asyncio.sleep(0.01)
                assert cleaner.cleaned_count == int(is_enabled)

    run()
