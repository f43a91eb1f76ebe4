"""DeleteRecords: the log start moves, durably, and nothing else does."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.errors import ErrorCode
from kwire.handlers import delete_records as handler
from kwire.wire.apis import DELETE_RECORDS
from kwire.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_every_version, in_loop

ENDS = [0, 2]
HIGH_WATERMARK = -1
EARLIEST = -2


def append(partition: Partition, count: int) -> None:
    batch = make_batch(count, timestamp_ms=0)
    partition.append(batch, check_batch(batch))


def request(*wanted: tuple[str, dict[int, int]], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets.items()
                ],
            )
            for name, offsets in wanted
        ],
        timeout_ms=timeout_ms,
    )


Told = dict[str, list[tuple[int, int, ErrorCode]]]


async def ask(node: QuietNode, asked: DeleteRecordsRequest, version: int) -> Told:
    """By topic: partition, low watermark, error."""
    answer = await node.ask(asked, version)
    assert answer.throttle_time_ms == 0
    told = {
        topic.name: [(one.partition_index, one.low_watermark, ErrorCode(one.error_code)) for one in topic.partitions]
        for topic in answer.topics
    }
    assert len(told) == len(answer.topics)
    return told


async def delete(node: QuietNode, offset: int, version: int, name: str = "t", index: int = 0) -> tuple[int, ErrorCode]:
    told = await ask(node, request((name, {index: offset})), version)
    ((answered, low_watermark, code),) = told[name]
    assert answered == index
    return low_watermark, code


async def fetch_error(node: QuietNode, offset: int) -> ErrorCode:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[asked])])
    return ErrorCode((await node.ask(fetch, 4)).responses[0].partitions[0].error_code)


@in_every_version(DELETE_RECORDS)
@in_loop
async def test_records_below_the_offset_are_gone_also_after_a_restart(node: QuietNode, version: int) -> None:
    partition = await node.create_partition()
    append(partition, 10)
    assert await delete(node, 4, version) == (4, ErrorCode.NONE)
    assert await fetch_error(node, 3) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await fetch_error(node, 4) is ErrorCode.NONE
    node.restart()
    assert await fetch_error(node, 3) is ErrorCode.OFFSET_OUT_OF_RANGE
    earliest = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)])],
    )
    assert (await node.ask(earliest, 1)).topics[0].partitions[0].offset == 4


@in_every_version(DELETE_RECORDS)
@in_loop
async def test_minus_one_is_the_high_watermark(node: QuietNode, version: int) -> None:
    partition = await node.create_partition()
    append(partition, 10)
    assert await delete(node, HIGH_WATERMARK, version) == (10, ErrorCode.NONE)
    assert await delete(node, HIGH_WATERMARK, version) == (10, ErrorCode.NONE)
    assert (partition.log_start_offset, partition.log_end_offset) == (10, 10)


@in_every_version(DELETE_RECORDS)
@in_loop
async def test_what_cannot_be_is_refused(node: QuietNode, version: int) -> None:
    partition = await node.create_partition()
    append(partition, 10)
    await node.create("compacted", cleanup_policy="compact")
    await node.topics.offsets_topic()
    cases = {
        ErrorCode.OFFSET_OUT_OF_RANGE: [("t", 0, 11), ("t", 0, -2), ("t", 0, 2**63 - 1), ("t", 0, -(2**63))],
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: [("missing", 0, 0), ("t", 1, 0), ("t", -1, 0), ("b/d", 0, 0), ("", 0, 0)],
        ErrorCode.POLICY_VIOLATION: [("compacted", 0, 0), ("compacted", 0, HIGH_WATERMARK)],
        ErrorCode.INVALID_TOPIC_EXCEPTION: [(OFFSETS_TOPIC, 0, 0)],
    }
    for code, wanted in cases.items():
        for name, index, offset in wanted:
            assert await delete(node, offset, version, name, index) == (-1, code)
    assert partition.log_start_offset == 0


@in_loop
async def test_a_topic_that_is_compacted_and_deleted_from_lets_records_go(node: QuietNode) -> None:
    partition = await node.create_partition(cleanup_policy="compact,delete")
    append_keyed = make_batch(3, timestamp_ms=0)
    # A topic that compacts takes keyed records only; the offsets are what counts here.
    partition.settings = replace(partition.settings, is_compacted=False)
    partition.append(append_keyed, check_batch(append_keyed))
    assert await delete(node, 2, 2) == (2, ErrorCode.NONE)


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_partitions_are_answered_in_their_order_each_on_its_own(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 3)
    for partition in topic.partitions:
        append(partition, 10)
    told = await ask(node, request(("t", {2: 5, 7: 1, 0: 11, 1: -1}), ("missing", {0: 0})), version)
    assert told == {
        "t": [
            (2, 5, ErrorCode.NONE),
            (7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (1, 10, ErrorCode.NONE),
        ],
        "missing": [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_of_a_partition_that_comes_twice_the_last_offset_counts(node: QuietNode, version: int) -> None:
    append(await node.create_partition(), 10)
    asked = request(("t", {0: 9}), ("t", {0: 4}))
    assert await ask(node, asked, version) == {"t": [(0, 4, ErrorCode.NONE)]}


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_records_that_are_not_durable_yet_cannot_be_deleted(tmp_path: Path, version: int) -> None:
    class NoSyncs:
        def add(self, partition: Partition) -> None:
            pass

        def add_within(self, partition: Partition, delay_ms: int) -> None:
            pass

    with QuietNode(tmp_path, syncs=NoSyncs()) as node:
        append(await node.create_partition(), 10)
        assert await delete(node, 1, version) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert await delete(node, HIGH_WATERMARK, version) == (0, ErrorCode.NONE)


@in_loop
async def test_many_partitions_are_done_a_few_at_a_time(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create("t", 35)
    for partition in topic.partitions:
        append(partition, 3)
    monkeypatch.setattr(handler, "LOOKUPS_PER_CHUNK", 10)
    deleting = asyncio.ensure_future(node.ask(request(("t", dict.fromkeys(range(40), 2))), 2))
    turns_taken = 0
    while not deleting.done():
        turns_taken += 1
        await asyncio.sleep(0)
    assert turns_taken > 4
    codes = [one.error_code for one in deleting.result().topics[0].partitions]
    assert codes == [ErrorCode.NONE] * 35 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_no_time_left_is_told(node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    append(await node.create_partition(), 3)
    monkeypatch.setattr(handler, "WAIT_SECONDS_MIN", -1.0)
    assert (await ask(node, request(("t", {0: 1}), timeout_ms=-5), version))["t"] == [
        (0, -1, ErrorCode.REQUEST_TIMED_OUT)
    ]
    monkeypatch.undo()
    # A client that gives no time gets what one node needs to answer.
    assert (await ask(node, request(("t", {0: 1}), timeout_ms=0), version))["t"] == [(0, 1, ErrorCode.NONE)]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_nothing_asked_nothing_answered(node: QuietNode, version: int) -> None:
    assert await ask(node, request(), version) == {}
    assert await ask(node, request(("t", {})), version) == {}
