"""What only a log of this process does: it reads cold pages in the read lane, and its errors are those of the disk."""

import asyncio
from pathlib import Path

import pytest

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.concurrency.disk_lanes import DiskLanes, LaneClosed
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.local import LocalLog
from storage.errors import StorageError
from tests.support.events import TOPIC_ID, lone_partition, validate_now
from tests.support.node import QuietNode, in_loop


def fail() -> None:
    raise StorageError("the disk does not answer")


@in_loop
async def test_an_error_of_the_disk_is_reported_as_a_kafka_error(tmp_path: Path) -> None:
    lanes = DiskLanes()
    log = LocalLog(ColdReads(lanes.read), validate_now, lone_partition(tmp_path), TOPIC_ID)
    with pytest.raises(KafkaError) as caught:
        await log.in_thread(fail).wait()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    lanes.read.close(1.0)


@in_loop
async def test_the_loop_gets_a_turn_after_each_log_that_is_opened(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 3)
        turns: list[int] = []
        for index in range(3):
            asyncio.get_running_loop().call_soon(turns.append, index)
            await topic.stream(index).ready()
            assert turns == list(range(index + 1))
        asyncio.get_running_loop().call_soon(turns.append, 3)
        await topic.stream(0).ready()
        assert turns == [0, 1, 2]


@in_loop
async def test_a_reader_that_waits_does_not_outlive_the_read_lane(tmp_path: Path) -> None:
    lanes = DiskLanes()
    cold_reads = ColdReads(lanes.read)
    log = LocalLog(cold_reads, validate_now, lone_partition(tmp_path), TOPIC_ID)
    cold_reads.close()
    with pytest.raises(LaneClosed):
        await log.in_thread(lambda: None).wait()
