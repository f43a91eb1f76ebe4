"""Sync rounds whose files the kernel syncs: as with a thread, nothing is readable before it is done."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.broker.partition import Partition, sync_rounds
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.concurrency import chunking
from kwire.concurrency.chunking import yield_to_loop
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import check_batch
from storage.log.syncing import FILES_ONE_BY_ONE_MAX
from tests.support.batches import make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

WAIT_SECONDS = 20.0


class HeldSyncs:
    """A kernel whose syncs end when the test says so."""

    def __init__(self) -> None:
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.begun: list[int] = []
        self.takes_syncs = True
        self.is_held = True
        self.is_closed = False
        self._done: list[tuple[int, int]] = []

    def begin(self, fd: int) -> int | None:
        if not self.takes_syncs:
            return None
        number = len(self.begun)
        self.begun.append(number)
        if not self.is_held:
            self.finish(number)
        return number

    def finish(self, number: int, error_number: int = 0) -> None:
        self._done.append((number, error_number))
        os.eventfd_write(self.event_fd, 1)

    def done(self) -> list[tuple[int, int]]:
        if self._done:
            os.eventfd_read(self.event_fd)
        done, self._done = self._done, []
        return done

    def wait(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True
        os.close(self.event_fd)


class World:
    def __init__(self, node: QuietNode, disk: FaultyFiles, kernel: HeldSyncs, rounds: SyncRounds) -> None:
        self.node = node
        self.disk = disk
        self.kernel = kernel
        self.rounds = rounds

    async def partitions(self, count: int) -> list[Partition]:
        """With one record each: the names of new files are synced by a thread, so what follows is for the kernel."""
        topic = await self.node.create("t", count)
        for partition in topic.partitions:
            append(partition)
        await self.settled()
        assert self.kernel.begun == []
        self.disk.calls.clear()
        return list(topic.partitions)

    async def begun(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.kernel.begun) < count:
                await asyncio.sleep(0)

    async def settled(self) -> None:
        await asyncio.wait_for(self.rounds.idle(), WAIT_SECONDS)


@asynccontextmanager
async def made_world(directory: Path) -> AsyncIterator[World]:
    disk, kernel = FaultyFiles(), HeldSyncs()
    rounds = SyncRounds(disk, [str(directory)], DiskLanes().sync, kernel=kernel)
    with QuietNode(directory, files=disk, syncs=rounds) as node:
        try:
            yield World(node, disk, kernel, rounds)
        finally:
            disk.repair()
            if not rounds._is_closed:
                rounds.close()


def append(partition: Partition) -> int:
    """The offset after what was appended."""
    batch = make_batch(1, timestamp_ms=0)
    return partition.append(batch, check_batch(batch)).last_offset + 1


@in_loop
async def test_nothing_is_readable_before_the_kernel_has_synced_it(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        first, second = await world.partitions(2)
        reached: list[tuple[str, KafkaError | None]] = []
        first.on_reached(append(first), lambda error: reached.append(("first", error)))
        second.on_reached(append(second), lambda error: reached.append(("second", error)))
        await world.begun(2)
        assert (first.high_watermark, second.high_watermark, reached) == (1, 1, [])
        world.kernel.finish(1)
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached:
                await asyncio.sleep(0)
        assert (first.high_watermark, second.high_watermark, reached) == (1, 2, [("second", None)])
        world.kernel.finish(0)
        await world.settled()
        assert (first.high_watermark, reached) == (2, [("second", None), ("first", None)])
        assert world.disk.calls["fdatasync"] == world.disk.calls["syncfs"] == 0


@in_loop
async def test_long_computations_offer_the_processor_while_the_kernel_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made_world(tmp_path) as world:
        (partition,) = await world.partitions(1)
        yields: list[None] = []
        monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))
        monkeypatch.setattr(chunking, "OFFER_PAUSE", 0)
        await yield_to_loop()
        assert len(yields) == 0
        append(partition)
        await world.begun(1)
        await yield_to_loop()
        assert len(yields) == 1
        world.kernel.finish(0)
        await world.settled()
        await yield_to_loop()
        assert len(yields) == 1


@in_loop
async def test_what_arrives_during_a_round_is_in_the_next_one(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        [partition] = await world.partitions(1)
        before = world.rounds.rounds
        append(partition)
        await world.begun(1)
        append(partition)
        append(partition)
        world.kernel.finish(0)
        await world.begun(2)
        assert (partition.high_watermark, partition.synced_offset) == (2, 2)
        world.kernel.finish(1)
        await world.settled()
        assert (partition.high_watermark, world.rounds.rounds - before) == (4, 2)


@in_loop
async def test_an_error_of_the_kernel_ends_the_log(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        broken, sound = await world.partitions(2)
        told: list[KafkaError | None] = []
        broken.on_reached(append(broken), told.append)
        append(sound)
        await world.begun(2)
        world.kernel.finish(0, errno.EIO)
        world.kernel.finish(1)
        await world.settled()
        assert [error and error.code for error in told] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert (broken.high_watermark, sound.high_watermark, world.rounds.failures) == (1, 2, 1)
        assert log_of(broken).gate.failure is not None
        with pytest.raises(Exception, match="sync"):
            append(broken)
        world.kernel.is_held = False
        append(sound)
        await world.settled()
        assert sound.high_watermark == 3


@in_loop
async def test_a_thread_syncs_what_the_kernel_does_not_take(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        [partition] = await world.partitions(1)
        world.kernel.takes_syncs = False
        append(partition)
        await world.settled()
        assert (partition.high_watermark, world.disk.calls["fdatasync"]) == (2, 1)
        world.kernel.takes_syncs = True
        append(partition)
        await world.begun(1)
        world.kernel.finish(0)
        await world.settled()
        assert (partition.high_watermark, world.disk.calls["fdatasync"]) == (3, 1)


@in_loop
async def test_the_kernel_syncs_one_file_of_a_log_or_none(tmp_path: Path) -> None:
    """An error that it met in a part of them could be lost: the kernel reports it once."""
    async with made_world(tmp_path) as world:
        [partition] = await world.partitions(1)
        log = log_of(partition)
        append(partition)
        sync = log.begin_sync()
        assert sync is not None
        [one] = sync.dirty
        sync.dirty.append(one)
        assert sync.begin() is None
        sync.dirty.pop()
        assert sync.begin() == one[2]
        assert sync.end(None) is None
        sync.finish()
        assert partition.synced_offset == 2
        await world.settled()


@in_loop
async def test_a_log_that_another_sync_works_on_waits_for_it_in_a_thread(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        busy, free = await world.partitions(2)
        world.kernel.is_held = False
        gate = log_of(busy).gate
        assert gate.enter()
        assert not gate.enter()
        append(busy)
        free_reached = asyncio.get_running_loop().create_future()
        free.on_reached(append(free), free_reached.set_result)
        assert await asyncio.wait_for(free_reached, WAIT_SECONDS) is None
        assert busy.high_watermark == 1
        assert gate.leave("", None) is None
        await world.settled()
        assert (busy.high_watermark, world.disk.calls["fdatasync"]) == (2, 1)


@in_loop
async def test_many_files_are_synced_with_their_file_system(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        partitions = await world.partitions(FILES_ONE_BY_ONE_MAX + 1)
        for partition in partitions:
            append(partition)
        await world.settled()
        assert world.kernel.begun == []
        assert world.disk.calls["syncfs"] == 1
        assert {partition.high_watermark for partition in partitions} == {2}


@in_loop
async def test_close_finishes_the_round_that_runs(tmp_path: Path) -> None:
    async with made_world(tmp_path) as world:
        [partition] = await world.partitions(1)
        append(partition)
        await world.begun(1)
        world.kernel.finish(0)
        world.rounds.close()
        assert (partition.synced_offset, partition.high_watermark) == (2, 2)
        assert world.kernel.is_closed


@in_loop
async def test_close_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_rounds, "CLOSE_SECONDS", 0.01)
    async with made_world(tmp_path) as world:
        [partition] = await world.partitions(1)
        append(partition)
        await world.begun(1)
        world.rounds.close()
        assert not world.kernel.is_closed
        # The log is not closed as a sound one, which would wait for the disk, too.
        assert log_of(partition).gate.failure is not None
        assert partition.high_watermark == 1
        os.close(world.kernel.event_fd)
