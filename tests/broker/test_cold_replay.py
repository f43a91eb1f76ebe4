"""A coordinator's replay does not touch pages on the loop that have to be read from the disk."""

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.coordinator import internal_topic_log as coordinator_log
from kwire.coordinator.internal_topic_log import InternalTopicLog
from kwire.coordinator.log_records import KeyValue, Paused, Replayed
from storage.batch.record_batch import parse_header
from storage.disk.files import Files
from storage.errors import DiskFailure
from tests.support.node import QuietNode, in_loop

WAIT_SECONDS = 20.0
REPLAY_BYTES = 10_000
RECORDS: list[KeyValue] = [(f"key {number}".encode(), bytes(300)) for number in range(200)]


class ColdFiles(Files):
    """Nothing is in memory that no thread has read."""

    def __init__(self) -> None:
        self.warm: set[tuple[str, int]] = set()
        self.is_broken = False

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        if self.is_broken:
            raise OSError(5, os.strerror(5))
        size = super().preadv(fd, buffers, position)
        path = os.readlink(f"/proc/self/fd/{fd}")
        self.warm.update((path, byte) for byte in range(position, position + size))
        return size

    def is_cached(self, fd: int, start: int, end: int) -> bool | None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        return all((path, byte) in self.warm for byte in range(start, end))


async def replayed(log: InternalTopicLog) -> list[Replayed]:
    """As the runtime does it: a turn ends where the replay pauses."""
    found: list[Replayed] = []
    async with asyncio.timeout(WAIT_SECONDS):
        for one in log.replay(0):
            if isinstance(one, Paused):
                await asyncio.sleep(0.001)
            else:
                found.append(one)
    return found


async def stored(tmp_path: Path) -> QuietNode:
    """A node with records that it has not written itself, so that they may have left the memory."""
    files = ColdFiles()
    node = QuietNode(tmp_path, files=files)
    await node.topics.offsets_topic()
    log = InternalTopicLog(node.topics, OFFSETS_TOPIC)
    for one in RECORDS:
        log.append(0, [one], node.clock.now_ms())
    node.restart()
    return node


@in_loop
async def test_records_are_read_by_threads_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_log, "REPLAY_BYTES", REPLAY_BYTES)
    with await stored(tmp_path) as node:
        files = node.files
        assert isinstance(files, ColdFiles)
        (path,) = tmp_path.glob(f"**/{OFFSETS_TOPIC}-0/*.log")
        touched: list[tuple[str, int]] = []
        position = 0

        def parsed(view: memoryview, at: int) -> object:
            nonlocal position
            header = parse_header(view, at)
            # Replayed in order, so the place in the file is the sum of what came before.
            touched.append((str(path), position))
            assert touched[-1] in files.warm
            position += header.size_bytes
            return header

        monkeypatch.setattr(coordinator_log, "parse_header", parsed)
        reads = ColdReads(DiskLanes().read)
        try:
            assert await replayed(InternalTopicLog(node.topics, OFFSETS_TOPIC, reads)) == RECORDS
            assert len(touched) == len(RECORDS)
            assert reads.count > 0
        finally:
            reads.close()


@in_loop
async def test_a_disk_that_fails_ends_the_replay_and_the_next_one_may_work(tmp_path: Path) -> None:
    with await stored(tmp_path) as node:
        files = node.files
        assert isinstance(files, ColdFiles)
        reads = ColdReads(DiskLanes().read)
        log = InternalTopicLog(node.topics, OFFSETS_TOPIC, reads)
        try:
            files.is_broken = True
            with pytest.raises(DiskFailure):
                await replayed(log)
            files.is_broken = False
            assert await replayed(log) == RECORDS
        finally:
            reads.close()
