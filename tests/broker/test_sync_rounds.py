"""Sync rounds: one at a time, with all dirty logs, and nothing is acknowledged or readable before it is on disk."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.broker.partition import Partition, sync_rounds
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.record_batch import check_batch
from storage.errors import StorageFailed
from storage.log.syncing import FILES_ONE_BY_ONE_MAX
from tests.support.batches import make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

WAIT_SECONDS = 10.0


class SlowDisk(FaultyFiles):
    """Syncs wait at a gate; `entered` counts those that have come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self._passes = 0

    def let_pass(self, count: int) -> None:
        """So many get past the gate though it is shut."""
        self._passes = count

    def forget_the_past(self) -> None:
        while self.entered.acquire(blocking=False):
            pass

    def shut(self) -> None:
        """Nobody gets past the gate from now on."""
        self.gate.clear()
        self.forget_the_past()

    def duplicate(self, fd: int) -> int:
        self._enter("duplicate")
        return super().duplicate(fd)

    def fdatasync(self, fd: int) -> None:
        self.entered.release()
        if self._passes:
            self._passes -= 1
        else:
            assert self.gate.wait(WAIT_SECONDS)
        super().fdatasync(fd)


class World:
    """A node whose partitions are synced by real rounds on a disk that waits when it is told to."""

    def __init__(self, node: QuietNode, disk: SlowDisk, rounds: SyncRounds) -> None:
        self.node = node
        self.disk = disk
        self.rounds = rounds

    async def entered(self) -> None:
        """A sync is at the gate."""
        assert await asyncio.to_thread(self.disk.entered.acquire, timeout=WAIT_SECONDS)

    async def settled(self) -> None:
        await asyncio.wait_for(self.rounds.idle(), WAIT_SECONDS)


@asynccontextmanager
async def made_world(directory: Path, *settings: str) -> AsyncIterator[World]:
    disk = SlowDisk()
    rounds = SyncRounds(disk, [str(directory)], DiskLanes().sync)
    with QuietNode(directory, *settings, files=disk, syncs=rounds) as node:
        try:
            yield World(node, disk, rounds)
        finally:
            disk.repair()
            disk.gate.set()
            rounds.close()


def append(partition: Partition, count: int = 1) -> int:
    """The offset behind what was appended."""
    batch = make_batch(count, timestamp_ms=0)
    return partition.append(batch, check_batch(batch)).last_offset + 1


@in_loop
async def test_nothing_is_readable_before_the_disk_has_it(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition()
        world.disk.shut()
        told: list[KafkaError | None] = []
        partition.on_reached(append(partition, 3), told.append)
        await world.entered()
        assert (partition.high_watermark, partition.readable_bytes, told) == (0, 0, [])
        assert not partition.read(0, 10_000).view
        world.disk.gate.set()
        await world.settled()
        assert (partition.high_watermark, told) == (3, [None])
        assert partition.readable_bytes == partition.appended_bytes == len(partition.read(0, 10_000).view)


@in_loop
async def test_what_arrives_during_a_round_shares_the_next_one(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t", 3)
        append(topic.partitions[0])
        await world.settled()
        world.disk.shut()
        append(topic.partitions[0])
        await world.entered()
        before = world.rounds.rounds
        for _ in range(5):
            for partition in topic.partitions:
                append(partition)
        assert [one.high_watermark for one in topic.partitions] == [1, 0, 0]
        world.disk.gate.set()
        await world.settled()
        assert [one.high_watermark for one in topic.partitions] == [7, 5, 5]
        assert world.rounds.rounds == before + 2


@in_loop
async def test_a_small_sync_is_told_while_a_large_one_of_the_same_round_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_rounds, "REPORT_SECONDS", 0.0)
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t", 2)
        large, small = topic.partitions
        for partition in topic.partitions:
            append(partition)
        await world.settled()
        before = world.rounds.rounds
        world.disk.shut()
        world.disk.let_pass(1)
        append(large, 100)
        reached = asyncio.get_running_loop().create_future()
        small.on_reached(append(small), reached.set_result)
        assert await asyncio.wait_for(reached, WAIT_SECONDS) is None
        assert (small.high_watermark, large.high_watermark) == (2, 1)
        assert world.rounds.rounds == before
        append(small)
        assert small.high_watermark == 2
        world.disk.gate.set()
        await world.settled()
        assert (small.high_watermark, large.high_watermark) == (3, 101)
        assert world.rounds.rounds == before + 2


@in_loop
async def test_page_cache_is_enough_where_the_topic_says_so(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition(kwire_log_sync="os")
        append(partition)
        assert partition.high_watermark == 1
        await world.settled()
        assert world.rounds.rounds == 0


@in_loop
async def test_flush_messages_lets_every_nth_record_wait_for_the_disk(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition(kwire_log_sync="os", flush_messages="3")
        append(partition, 2)
        assert partition.high_watermark == 2
        append(partition, 2)
        assert partition.high_watermark == 2
        await world.settled()
        assert (partition.high_watermark, partition.synced_offset) == (4, 4)
        append(partition)
        assert (partition.high_watermark, partition.synced_offset) == (5, 4)


@in_loop
async def test_flush_ms_bounds_how_long_records_are_unsynced(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition(kwire_log_sync="os", flush_ms="20")
        world.disk.forget_the_past()
        append(partition)
        assert (partition.high_watermark, partition.synced_offset) == (1, 0)
        await world.entered()
        await world.settled()
        assert partition.synced_offset == 1


@in_loop
async def test_failed_sync_is_told_and_never_tried_again(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t", 2)
        broken, sound = topic.partitions
        for partition in topic.partitions:
            append(partition)
            await world.settled()
        world.disk.fail_next("fdatasync", errno.EIO)
        told: list[KafkaError | None] = []
        broken.on_reached(append(broken), told.append)
        await world.settled()
        assert [error and error.code for error in told] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert (broken.high_watermark, world.rounds.failures) == (1, 1)
        assert not broken.read(1, 10_000).view
        with pytest.raises(Exception, match="sync"):
            append(broken)
        # Asked for the same offset again, it is refused at once; nothing reaches the disk.
        syncs = world.disk.calls["fdatasync"]
        broken.on_reached(2, told.append)
        assert len(told) == 2
        assert world.disk.calls["fdatasync"] == syncs
        append(sound)
        await world.settled()
        assert sound.high_watermark == 2


@in_loop
async def test_a_wait_for_a_stuck_disk_ends_with_its_own_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_rounds, "TIMEOUT_CHECK_SECONDS", 0.001)
    async with made_world(tmp_path) as world:
        clock, partition = world.node.clock, await world.node.create_partition()
        world.disk.shut()
        impatient: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        late: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        patient: list[KafkaError | None] = []
        partition.on_reached(append(partition), impatient.set_result, 10)
        partition.on_reached(append(partition), patient.append, 60_000)
        await world.entered()
        # The round runs for long already when the third begins to wait, and the first two have waited as long.
        clock.advance(59_000)
        partition.on_reached(append(partition), late.set_result, 10)
        error = await asyncio.wait_for(impatient, WAIT_SECONDS)
        assert error is not None
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert (late.done(), patient) == (False, [])
        clock.advance(10)
        error = await asyncio.wait_for(late, WAIT_SECONDS)
        assert error is not None
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert not patient
        world.disk.gate.set()
        await world.settled()
        assert patient == [None]
        assert partition.high_watermark == 3


@in_loop
async def test_deleted_topic_answers_those_who_wait(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t")
        partition = topic.partitions[0]
        world.disk.shut()
        append(partition)
        await world.entered()
        told: list[KafkaError | None] = []
        partition.on_reached(append(partition), told.append)
        world.disk.gate.set()
        await world.node.topics.delete(topic)
        await world.settled()
        assert len(told) == 1


@pytest.mark.parametrize("acks", [-1, 1])
@in_loop
async def test_produce_waits_for_the_disk(tmp_path: Path, acks: int) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t", 2)
        world.disk.shut()
        data = [PartitionProduceData(index=index, records=make_batch(2, timestamp_ms=0)) for index in (0, 1)]
        request = ProduceRequest(
            acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(topic_id=topic.topic_id, partition_data=data)]
        )
        asking = asyncio.ensure_future(world.node.ask(request, 13))
        await world.entered()
        assert not asking.done()
        world.disk.gate.set()
        answer = await asyncio.wait_for(asking, WAIT_SECONDS)
        assert [one.base_offset for one in answer.responses[0].partition_responses] == [0, 0]
        await world.settled()


@in_loop
async def test_batch_sent_again_while_the_first_is_unsynced_waits_for_the_same_sync(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t")
        world.disk.shut()

        def send() -> "asyncio.Future[object]":
            batch = make_batch(1, timestamp_ms=0, producer_id=7, producer_epoch=0, base_sequence=0)
            data = [PartitionProduceData(index=0, records=batch)]
            topics = [TopicProduceData(topic_id=topic.topic_id, partition_data=data)]
            return asyncio.ensure_future(
                world.node.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 13)
            )

        first, second = send(), send()
        await world.entered()
        assert not first.done()
        assert not second.done()
        world.disk.gate.set()
        await asyncio.wait_for(asyncio.gather(first, second), WAIT_SECONDS)
        assert topic.partitions[0].high_watermark == 1
        await world.settled()


@in_loop
async def test_produce_is_told_of_a_failed_sync(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t")
        append(topic.partitions[0])
        await world.settled()
        world.disk.fail_next("fdatasync", errno.EIO)
        data = [PartitionProduceData(index=0, records=make_batch(timestamp_ms=0))]
        topics = [TopicProduceData(topic_id=topic.topic_id, partition_data=data)]
        answer = await world.node.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 13)
        (one,) = answer.responses[0].partition_responses
        assert (one.error_code, one.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@in_loop
async def test_failed_file_system_ends_logs_that_were_not_in_the_round(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        world.rounds._all_open = lambda: tuple(world.node.topics.open_partitions)
        topic = await world.node.create("t", FILES_ONE_BY_ONE_MAX + 2)
        idle, *busy = topic.partitions
        append(idle)
        await world.settled()
        world.disk.fail_next("syncfs", errno.EIO)
        for partition in busy:
            append(partition)
        await world.settled()
        assert not any(partition.is_writable for partition in topic.partitions)
        assert [partition.high_watermark for partition in topic.partitions] == [1, *[0] * len(busy)]


@in_loop
async def test_time_limits_hold_while_no_descriptor_is_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_rounds, "RETRY_SECONDS", 0.01)
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition()
        append(partition)
        await world.settled()
        world.disk.break_down("duplicate", errno.EMFILE)
        answered: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        partition.on_reached(append(partition), answered.set_result, 30)
        world.node.clock.advance(30)
        error = await asyncio.wait_for(answered, WAIT_SECONDS)
        assert error is not None
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        world.disk.repair()
        async with asyncio.timeout(WAIT_SECONDS):
            while partition.high_watermark < 2:
                await asyncio.sleep(0.001)


@in_loop
async def test_sync_that_the_log_does_not_believe_is_not_told_as_done(tmp_path: Path) -> None:
    """Another sync of the log fails while this one is on its way back to the loop."""
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition()
        world.disk.shut()
        told: list[KafkaError | None] = []
        partition.on_reached(append(partition), told.append)
        await world.entered()
        log_of(partition).poison(StorageFailed("sync of another file"))
        world.disk.gate.set()
        await world.settled()
        assert [error and error.code for error in told] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert partition.high_watermark == 0


@in_loop
async def test_topic_that_becomes_synced_has_its_tail_synced(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        topic = await world.node.create("t", kwire_log_sync="os")
        partition = topic.partitions[0]
        append(partition)
        await world.node.topics.configure(topic, {})
        await world.settled()
        assert partition.synced_offset == 1


@in_loop
async def test_idle_page_cache_log_is_synced_and_then_parked(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        partition = await world.node.create_partition(kwire_log_sync="os")
        append(partition)
        assert not world.node.topics.park(partition)
        await world.settled()
        assert world.node.topics.park(partition)
