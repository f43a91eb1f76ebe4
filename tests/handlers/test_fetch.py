"""Fetch: whole batches from an offset on, now or when there are enough of them."""

import asyncio
import gc
import inspect
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.chunked_answers import OPENS_PER_CHUNK
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.handlers.fetch.handler import _READ_WEIGHT, WARM_UPS_MAX
from kwire.wire.apis import FETCH
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from kwire.wire.types import ZERO_UUID
from storage.batch.record_batch import check_batch
from storage.errors import LogClosed, StorageFailed
from storage.segment.segment import LogRead
from tests.support.batches import headers, make_batch
from tests.support.node import TEST_TIMEOUT_S, QuietNode, in_every_version, in_loop, received
from tests.support.partition_log import log_of

ENDS = [4, 18]
# Far beyond what a test may take: only a wake can end such a wait.
LONG_MS = 600_000
LARGE = 2**31 - 1


def at(offset: int, partition: int = 0, *, max_bytes: int = LARGE, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


def request(topic: Topic | None, *partitions: FetchPartition, name: str = "", **more: Any) -> FetchRequest:
    """Every version takes what it needs, the name or the id. Waits for nothing unless told to."""
    asked = FetchTopic(
        topic=topic.name if topic else name,
        topic_id=topic.topic_id if topic else b"\x01" * 16,
        partitions=list(partitions),
    )
    return FetchRequest(topics=[asked], **{"max_wait_ms": 0, "min_bytes": 1, **more})


def append(partition: Partition, count: int = 1, value: bytes = b"value") -> int:
    """The size of the batch."""
    batch = make_batch(count, timestamp_ms=0, value=value)
    partition.append(batch, check_batch(batch))
    return len(batch)


def offsets(data: PartitionData) -> list[int]:
    """The base offsets of the batches in an answer."""
    assert data.records is not None
    return [header.base_offset for header in headers(memoryview(data.records))]


async def fetch(node: QuietNode, asked: FetchRequest, version: int) -> list[PartitionData]:
    """The answers for the partitions of the one topic."""
    answer = await node.ask(asked, version)
    assert (answer.error_code, answer.session_id, answer.throttle_time_ms) == (ErrorCode.NONE, 0, 0)
    (topic,) = answer.responses
    assert topic.topic == (asked.topics[0].topic if version < 13 else "")
    assert topic.topic_id == (asked.topics[0].topic_id if version >= 13 else ZERO_UUID)
    assert [one.partition_index for one in topic.partitions] == [one.partition for one in asked.topics[0].partitions]
    responses: list[PartitionData] = topic.partitions
    return responses


async def refusal(node: QuietNode, asked: FetchRequest, version: int) -> ErrorCode:
    (one,) = await fetch(node, asked, version)
    assert one.high_watermark == one.last_stable_offset == -1
    assert one.log_start_offset == -1
    assert one.records is not None
    assert len(one.records) == 0
    return ErrorCode(one.error_code)


@in_loop
async def test_records_come_back_in_every_version(node: QuietNode) -> None:
    topic = await node.create("t", 3)
    for _ in range(3):
        append(topic.partitions[0], 2)
    append(topic.partitions[2], value=b"x" * 1000)
    for version in FETCH.versions:
        first, empty, third = await fetch(node, request(topic, at(2), at(0, 1), at(0, 2)), version)
        assert offsets(first) == [2, 4]
        assert offsets(empty) == []
        assert offsets(third) == [0]
        assert (first.error_code, empty.error_code, third.error_code) == (0, 0, 0)
        assert (first.high_watermark, empty.high_watermark, third.high_watermark) == (6, 0, 1)
        assert first.last_stable_offset == 6
        assert first.log_start_offset == (0 if version >= 5 else -1)
        assert first.preferred_read_replica == -1


@in_loop
async def test_offset_inside_a_batch_gets_the_whole_batch(node: QuietNode) -> None:
    topic = await node.create("t")
    append(topic.partitions[0], 5)
    append(topic.partitions[0], 5)
    for version in FETCH.versions:
        (one,) = await fetch(node, request(topic, at(7)), version)
        assert offsets(one) == [5]


@in_loop
async def test_offset_outside_the_log_is_out_of_range(node: QuietNode) -> None:
    topic = await node.create("t")
    append(topic.partitions[0], 5)
    log_of(topic.partitions[0]).advance_log_start_offset(2)
    for version in FETCH.versions:
        for offset in (-1, 0, 1, 6):
            assert await refusal(node, request(topic, at(offset)), version) is ErrorCode.OFFSET_OUT_OF_RANGE
        (one,) = await fetch(node, request(topic, at(2)), version)
        assert one.log_start_offset == (2 if version >= 5 else -1)
        (one,) = await fetch(node, request(topic, at(5)), version)
        assert (one.error_code, offsets(one)) == (ErrorCode.NONE, [])


@in_loop
async def test_unknown_topics_and_partitions_are_told_apart(node: QuietNode) -> None:
    topic = await node.create("t")
    for version in FETCH.versions:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
        assert await refusal(node, request(None, at(0), name="missing", max_wait_ms=LONG_MS), version) is unknown
        for index in (1, -1):
            asked = request(topic, at(0, index), max_wait_ms=LONG_MS)
            assert await refusal(node, asked, version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_leader_epoch_is_checked_since_version_9(node: QuietNode) -> None:
    await node.create("t")
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    assert topic.partitions[0].leader_epoch == 1
    for version in FETCH.versions:
        if version < 9:
            assert (await fetch(node, request(topic, at(0, epoch=7)), version))[0].error_code == ErrorCode.NONE
            continue
        assert await refusal(node, request(topic, at(0, epoch=0)), version) is ErrorCode.FENCED_LEADER_EPOCH
        assert await refusal(node, request(topic, at(0, epoch=2)), version) is ErrorCode.UNKNOWN_LEADER_EPOCH
        for epoch in (1, -1):
            assert (await fetch(node, request(topic, at(0, epoch=epoch)), version))[0].error_code == ErrorCode.NONE


@in_loop
async def test_list_of_aborted_transactions_is_for_read_committed(node: QuietNode) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])
    for version in FETCH.versions:
        (one,) = await fetch(node, request(topic, at(0)), version)
        assert one.aborted_transactions is None
        (one,) = await fetch(node, request(topic, at(0), isolation_level=1), version)
        assert one.aborted_transactions == []


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_limits_hold_except_for_the_first_batch(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path, "fetch.max.bytes=2000") as node:
        topic = await node.create("t", 3)
        sizes = {append(partition, value=b"x" * 300) for partition in topic.partitions for _ in range(10)}
        (size,) = sizes

        async def counts(*partitions: FetchPartition, **more: Any) -> list[int]:
            return [len(offsets(one)) for one in await fetch(node, request(topic, *partitions, **more), version)]

        assert await counts(at(0, max_bytes=2 * size), at(0, 1, max_bytes=size)) == [2, 1]
        # One batch is given although it is too large, so that a reader gets on; a second is not.
        for tiny in (1, 0, -1):
            assert await counts(at(0, max_bytes=tiny), at(0, 1, max_bytes=tiny)) == [1, 0]
            assert await counts(at(0), at(0, 1), max_bytes=tiny) == [1, 0]
        assert await counts(at(10), at(0, 1, max_bytes=1)) == [0, 1]
        assert await counts(at(0, max_bytes=2 * size), at(0, 1), at(0, 2), max_bytes=4 * size) == [2, 2, 0]
        # The server's own limit is the smallest here.
        assert await counts(at(0), at(0, 1)) == [2000 // size, 0]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_fetch_waits_until_enough_bytes_are_there(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    first, second = topic.partitions
    size = append(first)
    waiting = asyncio.ensure_future(
        node.start(request(topic, at(0), at(0, 1), min_bytes=3 * size, max_wait_ms=LONG_MS), version)
    )
    append(second)
    await asyncio.sleep(0)
    assert not waiting.done()
    append(first)
    answer = received(await waiting, version)
    assert [offsets(one) for one in answer.responses[0].partitions] == [[0, 1], [0]]
    assert [one.high_watermark for one in answer.responses[0].partitions] == [2, 1]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_fetch_answers_with_what_is_there_when_its_time_is_up(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])
    began = asyncio.get_running_loop().time()
    (one,) = await fetch(node, request(topic, at(0), min_bytes=10_000, max_wait_ms=30), version)
    assert asyncio.get_running_loop().time() - began >= 0.029
    assert offsets(one) == [0]
    (one,) = await fetch(node, request(topic, at(1), min_bytes=1, max_wait_ms=1), version)
    assert (one.error_code, offsets(one), one.high_watermark) == (ErrorCode.NONE, [], 1)


@in_loop
async def test_nothing_is_waited_for_without_need(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    size = append(topic.partitions[0])
    asked = [
        request(topic, at(0), min_bytes=size, max_wait_ms=LONG_MS),
        request(topic, at(1), min_bytes=0, max_wait_ms=LONG_MS),
        request(topic, at(1), min_bytes=1, max_wait_ms=0),
        request(topic, at(1), min_bytes=1, max_wait_ms=-1),
        # An error is told at once, although the other partition could be waited for.
        request(topic, at(0, 1), at(9), max_wait_ms=LONG_MS),
        request(topic, max_wait_ms=LONG_MS),
        FetchRequest(topics=[], max_wait_ms=LONG_MS, min_bytes=1),
    ]
    for one in asked:
        assert not inspect.isawaitable(node.start(one, 12))


@in_loop
async def test_nothing_is_waited_for_when_the_limits_are_the_reason(node: QuietNode) -> None:
    """A consumer whose least is as large as its most would otherwise wait although there is plenty."""
    topic = await node.create("t")
    size = append(topic.partitions[0])
    append(topic.partitions[0])
    for limit in (LARGE, size + 1):
        asked = request(topic, at(0, max_bytes=size + 1), min_bytes=size + 1, max_wait_ms=LONG_MS, max_bytes=limit)
        answer = node.start(asked, 12)
        assert not inspect.isawaitable(answer)
        assert offsets(answer.responses[0].partitions[0]) == [0]


@in_loop
async def test_nothing_is_waited_for_at_the_end_of_a_segment(node: QuietNode) -> None:
    topic = await node.create("t", 1, segment_bytes=str(1024 * 1024))
    for _ in range(3):
        append(topic.partitions[0], value=b"x" * 600_000)
    assert log_of(topic.partitions[0]).segment_count == 3
    answer = node.start(request(topic, at(0), min_bytes=1_000_000, max_wait_ms=LONG_MS), 12)
    assert not inspect.isawaitable(answer)
    assert offsets(answer.responses[0].partitions[0]) == [0]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_deletion_of_the_topic_ends_the_wait_with_an_error(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    waiting = asyncio.ensure_future(node.start(request(topic, at(0), max_wait_ms=LONG_MS), version))
    await node.topics.delete(topic)
    answer = received(await waiting, version)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.responses[0].partitions[0].error_code == code


@in_loop
async def test_client_that_goes_away_leaves_no_watcher(node: QuietNode) -> None:
    partition = await node.create_partition()
    topic = node.topics.get("t")
    waiting = asyncio.ensure_future(node.start(request(topic, at(0), max_wait_ms=LONG_MS), 12))
    assert len(partition._watchers or ()) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert not partition._watchers
    append(partition)


@in_loop
async def test_client_that_goes_away_in_the_turn_of_the_wake_harms_nobody(node: QuietNode) -> None:
    partition = await node.create_partition()
    waiting = asyncio.ensure_future(node.start(request(node.topics.get("t"), at(0), max_wait_ms=LONG_MS), 12))
    append(partition)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@in_loop
async def test_wait_that_is_over_leaves_nothing_to_the_garbage_collector(node: QuietNode) -> None:
    partition = await node.create_partition()
    waiting = node.start(request(node.topics.get("t"), at(0), max_wait_ms=LONG_MS), 12)
    known = weakref.ref(waiting)
    gc.disable()
    try:
        append(partition)
        await waiting
        del waiting
        await asyncio.sleep(0)  # the turn that woke us up has it in hand
        assert known() is None
    finally:
        gc.enable()


class ColdPages:
    """Every read is cold until it was warmed up this many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, warm_ups_needed: int) -> None:
        self.warm_ups_needed = warm_ups_needed
        monkeypatch.setattr(LogRead, "is_warm", lambda read: self.warm_ups_needed <= 0)
        monkeypatch.setattr(LogRead, "warm_up", self.warm_up)

    def warm_up(self, read: LogRead | None = None) -> None:
        self.warm_ups_needed -= 1


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_pages_from_the_disk_are_fetched_before_the_answer(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    topic = await node.create("t", 2)
    for partition in topic.partitions:
        append(partition)
    ColdPages(monkeypatch, 2)
    answer = node.start(request(topic, at(0), at(0, 1)), version)
    assert inspect.isawaitable(answer)
    first, second = received(await answer, version).responses[0].partitions
    assert (offsets(first), offsets(second)) == ([0], [0])
    assert node.cold_reads.count == 2


@in_loop
async def test_pages_that_will_not_stay_in_memory_are_sent_all_the_same(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])
    cold = ColdPages(monkeypatch, 1_000_000)
    (one,) = await fetch(node, request(topic, at(0)), 12)
    assert offsets(one) == [0]
    assert node.cold_reads.count == 1_000_000 - cold.warm_ups_needed == WARM_UPS_MAX


@in_loop
async def test_start_that_will_not_stay_in_memory_is_read_all_the_same(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])
    monkeypatch.setattr(Partition, "cold_start", lambda partition, offset: lambda: None)
    (one,) = await fetch(node, request(topic, at(0), max_wait_ms=LONG_MS), 12)
    assert offsets(one) == [0]
    assert node.cold_reads.count == WARM_UPS_MAX


@in_loop
async def test_deletion_while_pages_are_fetched_is_told_like_any_other(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = await node.create("doomed")
    kept = await node.create("kept")
    for topic in (doomed, kept):
        append(topic.partitions[0])

    is_deleted = threading.Event()

    def warm_up(read: LogRead) -> None:
        assert is_deleted.wait(TEST_TIMEOUT_S)
        raise LogClosed("deleted")

    monkeypatch.setattr(LogRead, "is_warm", lambda read: node.topics.get("doomed") is None)
    monkeypatch.setattr(LogRead, "warm_up", warm_up)
    asked = request(doomed, at(0))
    asked.topics += request(kept, at(0)).topics
    waiting = asyncio.ensure_future(node.start(asked, 12))
    await node.topics.delete(doomed)
    is_deleted.set()
    answer = received(await waiting, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offsets(answer.responses[1].partitions[0]) == [0]


@in_loop
async def test_fetch_that_was_cold_may_wait_as_any_other(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create("t")
    size = append(topic.partitions[0])
    ColdPages(monkeypatch, 1)
    waiting = asyncio.ensure_future(node.start(request(topic, at(0), min_bytes=2 * size, max_wait_ms=LONG_MS), 12))
    while not topic.partitions[0]._watchers:
        await asyncio.sleep(0)
    append(topic.partitions[0])
    answer = received(await waiting, 12)
    assert offsets(answer.responses[0].partitions[0]) == [0, 1]


@in_every_version(FETCH)
@in_loop
async def test_partition_asked_for_twice_is_answered_once_for_what_was_said_last(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    for _ in range(3):
        append(topic.partitions[0])
    asked = request(topic, at(0), at(0, 1), at(2))
    asked.topics += request(topic, at(0, 1)).topics
    asked.topics += request(None, at(0), name="missing").topics
    answer = await node.ask(asked, version)
    assert len(answer.responses) == 2
    first, second = answer.responses[0].partitions
    assert (first.partition_index, offsets(first)) == (0, [2])
    assert (second.partition_index, offsets(second)) == (1, [])


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_topic_that_is_not_there_does_not_end_the_wait_for_others(node: QuietNode, version: int) -> None:
    """Its reader would ask again at once, and again, until it knows better."""
    topic = await node.create("t")
    asked = request(topic, at(0), at(0, 7), max_wait_ms=LONG_MS)
    asked.topics += request(None, at(0), name="missing").topics
    waiting = asyncio.ensure_future(node.start(asked, version))
    await asyncio.sleep(0)
    assert not waiting.done()
    append(topic.partitions[0])
    answer = received(await waiting, version)
    first, second = answer.responses[0].partitions
    assert (offsets(first), second.error_code) == ([0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.responses[1].partitions[0].error_code == unknown


@in_every_version(FETCH)
@in_loop
async def test_leader_is_named_to_those_with_another_epoch_since_version_16(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    node.restart()
    answer = await node.ask(request(node.topics.get("t"), at(0, epoch=0), at(9, 1, epoch=1)), version)
    fenced, other = answer.responses[0].partitions
    has_leader = version >= 16
    assert (fenced.current_leader.leader_id, fenced.current_leader.leader_epoch) == ((1, 1) if has_leader else (-1, -1))
    assert (other.current_leader.leader_id, other.current_leader.leader_epoch) == (-1, -1)
    endpoints = [(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints]
    assert endpoints == ([(1, "broker.example", 9092, None)] if has_leader and fenced.error_code else [])


@in_every_version(FETCH)
@in_loop
async def test_follower_is_told_that_it_has_no_copy(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])
    follower: dict[str, Any] = {"replica_id": 7} if version < 15 else {"replica_state": ReplicaState(replica_id=7)}
    code = await refusal(node, request(topic, at(0), **follower), version)
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 9:
        code = await refusal(node, request(topic, at(0, epoch=0), **follower), version)
        assert code is ErrorCode.UNKNOWN_LEADER_EPOCH
        code = await refusal(node, request(topic, at(0, epoch=1), **follower), version)
        assert code is ErrorCode.UNKNOWN_LEADER_EPOCH


@in_every_version(FETCH)
@in_loop
async def test_log_that_went_another_way_is_told_since_version_12(node: QuietNode, version: int) -> None:
    append(await node.create_partition("t"), 3)
    node.restart()
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    append(topic.partitions[0], 2)
    assert log_of(topic.partitions[0]).epochs.entries == [(0, 0), (2, 3)]

    async def said(offset: int, epoch: int) -> PartitionData:
        asked = at(offset)
        asked.last_fetched_epoch = epoch
        (one,) = await fetch(node, request(topic, asked, max_wait_ms=LONG_MS), version)
        return one

    for offset, epoch in ((0, 0), (3, 0), (3, 2)):
        one = await said(offset, epoch)
        assert (one.error_code, offsets(one)[0], one.diverging_epoch.epoch) == (0, offset, -1)
    if version < 12:
        assert offsets(await said(3, 9)) == [3]
        return
    for offset, epoch, told in ((4, 0, (0, 3)), (3, 1, (0, 3)), (5, 1, (0, 3))):
        one = await said(offset, epoch)
        assert (one.error_code, offsets(one), one.high_watermark) == (0, [], 5)
        assert (one.diverging_epoch.epoch, one.diverging_epoch.end_offset) == told
    assert (await said(3, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    log_of(topic.partitions[0]).advance_log_start_offset(1)
    assert (await said(0, 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@in_every_version(FETCH)
@in_loop
async def test_broken_disk_is_told_so_that_old_clients_try_again(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t")
    append(topic.partitions[0])

    def fail(partition: Partition, *args: Any, **more: Any) -> LogRead:
        raise StorageFailed("the disk is gone")

    monkeypatch.setattr(Partition, "read", fail)
    code = await refusal(node, request(topic, at(0)), version)
    assert code is (ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 6 else ErrorCode.KAFKA_STORAGE_ERROR)


@in_every_version(FETCH)
@in_loop
async def test_topics_compressed_with_zstd_are_for_versions_that_know_it(node: QuietNode, version: int) -> None:
    topic = await node.create("t", compression_type="zstd")
    append(topic.partitions[0])
    if version < 10:
        code = await refusal(node, request(topic, at(0)), version)
        assert code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        (one,) = await fetch(node, request(topic, at(0)), version)
        assert offsets(one) == [0]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_many_partitions_are_looked_at_in_turns(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create("t", 40)
    for partition in topic.partitions:
        assert partition.log_end_offset == 0
    for partition in topic.partitions[::2]:
        append(partition)
    whole = node.start(request(topic, *(at(0, index) for index in range(40))), version)
    assert not inspect.isawaitable(whole)
    monkeypatch.setattr("kwire.handlers.fetch.handler._CHUNK_WEIGHT", 5 * _READ_WEIGHT)
    for max_wait_ms in (0, LONG_MS):
        asked = request(topic, *(at(0, index) for index in range(40)), max_wait_ms=max_wait_ms)
        waiting = node.start(asked, version)
        assert inspect.isawaitable(waiting)
        assert received(await waiting, version) == received(whole, version)
    waiting = node.start(
        request(topic, *(at(1, 2 * index) for index in range(20)), max_wait_ms=LONG_MS, min_bytes=1), version
    )
    answering = asyncio.ensure_future(waiting)
    while not topic.partitions[38]._watchers:
        await asyncio.sleep(0)
    append(topic.partitions[38])
    answer = received(await answering, version)
    assert [offsets(one) for one in answer.responses[0].partitions] == [[]] * 19 + [[1]]


@in_loop
async def test_many_logs_are_opened_in_turns(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 3 * OPENS_PER_CHUNK)
        node.restart()
        topic = node.topics.get("t")
        assert topic is not None
        waiting = node.start(request(topic, *(at(0, index) for index in range(3 * OPENS_PER_CHUNK))), 12)
        assert sum(partition.is_open for partition in topic.partitions) == OPENS_PER_CHUNK
        assert len(received(await waiting, 12).responses[0].partitions) == 3 * OPENS_PER_CHUNK
