"""DeleteRecords: the deletion is durable before any client sees it."""

import asyncio
import errno
import threading
from pathlib import Path
from random import Random

import pytest

from kwire.broker.admin.delete_records import HIGH_WATERMARK, Deletion, delete_records
from kwire.broker.maintenance.retention import Retention
from kwire.broker.partition import Partition, maintenance
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import check_batch
from storage.errors import OffsetOutOfRange
from storage.log.log import Log
from storage.log.start_offset import LogStartUpdate
from tests.support.batches import make_batch, run_now
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

WAIT_SECONDS = 10.0
LANES = DiskLanes()


def append(partition: Partition, count: int = 1, size_bytes: int = 10) -> None:
    batch = make_batch(count, value=bytes(size_bytes), timestamp_ms=0)
    partition.append(batch, check_batch(batch))


async def delete(partition: Partition, offset: int, timeout_seconds: float = WAIT_SECONDS) -> int | ErrorCode:
    (outcome,) = await delete_records([Deletion(partition, offset)], timeout_seconds, LANES.settle)
    return outcome.code if isinstance(outcome, KafkaError) else outcome


@in_loop
async def test_readers_are_kept_away_and_the_rest_stays(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, 5)
    append(partition, 5)
    assert await delete(partition, 7) == 7
    with pytest.raises(OffsetOutOfRange):
        partition.read(6, 1000)
    assert partition.read(7, 1000).next_offset == 10


@in_loop
async def test_the_start_never_goes_back(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, 5)
    assert await delete(partition, 4) == 4
    assert await delete(partition, 2) == 4
    assert await delete(partition, 0) == 4
    assert partition.log_start_offset == 4


@in_loop
async def test_everything_that_can_be_read_may_go(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, 5)
    assert await delete(partition, HIGH_WATERMARK) == 5
    append(partition, 2)
    assert partition.read(5, 1000).next_offset == 7


@in_loop
async def test_a_log_without_records_starts_at_zero(node: QuietNode) -> None:
    partition = await node.create_partition()
    assert await delete(partition, HIGH_WATERMARK) == 0
    assert await delete(partition, 0) == 0
    assert await delete(partition, 1) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("seed", range(10))
def test_what_was_said_to_be_gone_does_not_come_back_after_a_power_cut(seed: int) -> None:
    disk, directory = SimulatedDisk(), Path("/data")

    @in_loop
    async def delete_some() -> None:
        node = QuietNode(directory, files=SimulatedFiles(disk))
        partition = await node.create_partition(segment_bytes=str(1024 * 1024))
        for _ in range(4):
            append(partition, 2, 400_000)
        assert await delete(partition, 5) == 5
        node.cold_reads.close()

    @in_loop
    async def look(left: SimulatedDisk) -> None:
        with QuietNode(directory, files=SimulatedFiles(left)) as node:
            topic = node.topics.get("t")
            assert topic is not None
            log = log_of(topic.partitions[0])
            assert (log.log_start_offset, log.log_end_offset) == (5, 8)

    delete_some()
    look(disk.after_power_cut(Random(seed)))


@in_loop
async def test_a_disk_that_fails_is_told_and_the_deletion_may_be_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        partition = await node.create_partition()
        append(partition, 5)
        files.break_down("pwrite", errno.ENOSPC)
        assert await delete(partition, 3) is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log_start_offset == 0
        files.repair()
        assert await delete(partition, 3) == 3
        node.restart()
        topic = node.topics.get("t")
        assert topic is not None
        assert topic.partitions[0].log_start_offset == 3


@in_loop
async def test_a_log_that_is_put_away_meanwhile_is_opened_again(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await node.create_partition()
    append(partition, 5)
    parked: list[bool] = []

    class Parking(LogStartUpdate):
        def __init__(self, log: Log, offset: int) -> None:
            super().__init__(log, offset)
            if not parked:
                parked.append(node.topics.park(partition))

    monkeypatch.setattr(maintenance, "LogStartUpdate", Parking)
    assert await delete(partition, 3) == 3
    assert parked == [True]
    assert partition.log_start_offset == 3


@in_loop
async def test_a_log_that_is_put_away_again_and_again_is_given_up(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await node.create_partition()
    append(partition, 5)

    class Parked(LogStartUpdate):
        def run(self) -> bool:
            return False

    monkeypatch.setattr(maintenance, "LogStartUpdate", Parked)
    assert await delete(partition, 3) is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_a_topic_deleted_meanwhile_is_unknown(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    append(partition, 5)
    go_on = threading.Event()

    class Slow(LogStartUpdate):
        def run(self) -> bool:
            assert go_on.wait(WAIT_SECONDS)
            return super().run()

    monkeypatch.setattr(maintenance, "LogStartUpdate", Slow)
    deleting = asyncio.ensure_future(delete(partition, 3))
    await asyncio.sleep(0)
    await node.topics.delete(topic)
    go_on.set()
    assert await deleting is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_disk_that_hangs_is_not_waited_for_longer_than_asked(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await node.create_partition()
    append(partition, 5)
    go_on = threading.Event()

    class Hanging(LogStartUpdate):
        def run(self) -> bool:
            return go_on.wait(WAIT_SECONDS) and super().run()

    monkeypatch.setattr(maintenance, "LogStartUpdate", Hanging)
    try:
        assert await delete(partition, 3, timeout_seconds=0.01) is ErrorCode.REQUEST_TIMED_OUT
        assert partition.log_start_offset == 0
    finally:
        go_on.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while partition.log_start_offset < 3:
            await asyncio.sleep(0.001)


@in_loop
async def test_the_loop_goes_on_while_the_disk_is_busy(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await node.create_partition()
    append(partition, 5)
    threads: list[threading.Thread] = []

    class Looking(LogStartUpdate):
        def run(self) -> bool:
            threads.append(threading.current_thread())
            return super().run()

    monkeypatch.setattr(maintenance, "LogStartUpdate", Looking)
    assert await delete(partition, 3) == 3
    assert threads
    assert threading.main_thread() not in threads


@in_loop
async def test_files_below_the_start_go_with_the_next_round_of_retention(node: QuietNode) -> None:
    partition = await node.create_partition(segment_bytes=str(1024 * 1024), retention_ms="-1")
    for _ in range(4):
        append(partition, 2, 400_000)
    assert log_of(partition).segment_count == 4
    assert await delete(partition, 5) == 5
    kept = Retention(node.topics, node.clock, run_now, 60_000, node.store, node.files)
    try:
        await kept.round()
    finally:
        kept.close()
    assert (log_of(partition).segment_count, partition.log_start_offset) == (2, 5)
    assert kept.deleted_segments == 2


@in_loop
async def test_each_partition_is_judged_on_its_own(node: QuietNode) -> None:
    topic = await node.create("t", 3)
    compacted = await node.create_partition("c", cleanup_policy="compact")
    for partition in topic.partitions:
        append(partition, 5)
    outcomes = await delete_records(
        [
            Deletion(topic.partitions[0], 2),
            Deletion(compacted, 0),
            Deletion(topic.partitions[1], 6),
            Deletion(topic.partitions[2], HIGH_WATERMARK),
        ],
        WAIT_SECONDS,
        node.lanes.settle,
    )
    assert [one.code if isinstance(one, KafkaError) else one for one in outcomes] == [
        2,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        5,
    ]
