"""ListOffsets: offsets by position and by time, and nothing made up."""

import inspect
import threading

import pytest

from kwire.broker.partition import Partition, TimeSearch
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.handlers import list_offsets
from kwire.wire.apis import LIST_OFFSETS
from kwire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from storage.batch.format import GZIP, NONE
from storage.batch.record_batch import check_batch
from storage.segment.time_search import TimestampAndOffset
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_every_version, in_loop
from tests.support.partition_log import log_of, lose_log
from tests.support.transactions import TransactionalProducer

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NOTHING = (-1, -1, -1)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def append(partition: Partition, count: int, timestamp_ms: int, compression: int = NONE) -> None:
    batch = make_batch(count, timestamp_ms=timestamp_ms, compression=compression)
    partition.append(batch, check_batch(batch))


def request(topic: Topic | str, timestamp: int, *, epoch: int = -1, index: int = 0) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    name = topic if isinstance(topic, str) else topic.name
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[asked])])


async def one_of(node: QuietNode, asked: ListOffsetsRequest, version: int) -> ListOffsetsPartitionResponse:
    (topic,) = (await node.ask(asked, version)).topics
    assert topic.name == asked.topics[0].name
    (one,) = topic.partitions
    assert isinstance(one, ListOffsetsPartitionResponse)
    assert one.partition_index == asked.topics[0].partitions[0].partition_index
    return one


async def find(node: QuietNode, topic: Topic, timestamp: int, version: int) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch, the last only where the version carries it."""
    one = await one_of(node, request(topic, timestamp), version)
    assert one.error_code == ErrorCode.NONE
    return one.timestamp, one.offset, one.leader_epoch


async def refusal(node: QuietNode, asked: ListOffsetsRequest, version: int) -> ErrorCode:
    one = await one_of(node, asked, version)
    assert (one.timestamp, one.offset, one.leader_epoch) == NOTHING
    return ErrorCode(one.error_code)


async def two_epochs(node: QuietNode) -> Topic:
    """Offsets 0-2 at 100-102 ms under epoch 0, 3-4 at 300-301 ms and 5 at 200 ms under epoch 1; the log begins at 1."""
    topic = await node.create("t")
    append(topic.partitions[0], 3, 100)
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    append(again.partitions[0], 2, 300, GZIP)
    append(again.partitions[0], 1, 200)
    log_of(again.partitions[0]).advance_log_start_offset(1)
    return again


@in_loop
async def test_ends_of_the_log_are_found(node: QuietNode) -> None:
    topic = await two_epochs(node)
    for version in LIST_OFFSETS.versions:
        knows_epochs = version >= 4
        assert await find(node, topic, LATEST, version) == (-1, 6, 1 if knows_epochs else -1)
        assert await find(node, topic, EARLIEST, version) == (-1, 1, 0 if knows_epochs else -1)


@in_loop
async def test_ends_of_an_empty_log_are_found(node: QuietNode) -> None:
    topic = await node.create("t")
    for version in LIST_OFFSETS.versions:
        assert await find(node, topic, LATEST, version) == (-1, 0, 0 if version >= 4 else -1)
        assert await find(node, topic, EARLIEST, version) == (-1, 0, 0 if version >= 4 else -1)
        assert await find(node, topic, 0, version) == NOTHING
        if version >= 7:
            assert await find(node, topic, MAX_TIMESTAMP, version) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (101, 1, 0)),
        (101, (101, 1, 0)),
        (102, (102, 2, 0)),
        (103, (300, 3, 1)),
        (301, (301, 4, 1)),
        (302, NOTHING),
        (2**62, NOTHING),
    ],
)
@in_loop
async def test_time_finds_the_first_record_at_or_after_it(
    node: QuietNode, timestamp: int, expected: tuple[int, int, int]
) -> None:
    topic = await two_epochs(node)
    for version in LIST_OFFSETS.versions:
        found = await find(node, topic, timestamp, version)
        assert found == (expected if version >= 4 else (*expected[:2], -1))


@in_loop
async def test_nothing_above_the_watermark_is_found(node: QuietNode) -> None:
    topic = await two_epochs(node)
    topic.partitions[0].high_watermark = 3
    for version in LIST_OFFSETS.versions:
        assert (await find(node, topic, LATEST, version))[1] == 3
        assert await find(node, topic, 103, version) == NOTHING
        if version >= 7:
            assert await find(node, topic, MAX_TIMESTAMP, version) == (102, 2, 0)


@in_every_version(LIST_OFFSETS)
@in_loop
async def test_readers_of_committed_data_find_nothing_from_an_open_transaction_on(
    node: QuietNode, version: int
) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    producer = TransactionalProducer(partition, 7)
    append(partition, 1, 100)
    producer.send(now_ms=200)
    append(partition, 1, 300)

    async def find_both(timestamp: int) -> list[tuple[int, int]]:
        found = []
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            asked = request(topic, timestamp)
            # Version 1 has none, and is of those who read everything.
            asked.isolation_level = isolation if version >= 2 else READ_UNCOMMITTED
            one = await one_of(node, asked, version)
            assert one.error_code == ErrorCode.NONE
            found.append((one.timestamp, one.offset))
        return found

    def told(committed: tuple[int, int], everything: tuple[int, int]) -> list[tuple[int, int]]:
        return [committed if version >= 2 else everything, everything]

    assert await find_both(LATEST) == told((-1, 1), (-1, 3))
    assert await find_both(EARLIEST) == told((-1, 0), (-1, 0))
    assert await find_both(50) == told((100, 0), (100, 0))
    assert await find_both(150) == told((-1, -1), (200, 1))
    assert await find_both(250) == told((-1, -1), (300, 2))
    if version >= 7:
        assert await find_both(MAX_TIMESTAMP) == told((100, 0), (300, 2))
    producer.commit()
    assert await find_both(LATEST) == told((-1, 4), (-1, 4))
    assert await find_both(150) == told((200, 1), (200, 1))


@in_loop
async def test_special_positions_are_known_from_their_version_on(node: QuietNode) -> None:
    topic = await two_epochs(node)
    found = {
        MAX_TIMESTAMP: (7, (301, 4, 1)),
        EARLIEST_LOCAL: (8, (-1, 1, 0)),
        LATEST_TIERED: (9, NOTHING),
        EARLIEST_PENDING_UPLOAD: (11, NOTHING),
    }
    for version in LIST_OFFSETS.versions:
        for position, (first_version, expected) in found.items():
            if version >= first_version:
                assert await find(node, topic, position, version) == expected
            else:
                assert await refusal(node, request(topic, position), version) is ErrorCode.UNSUPPORTED_VERSION
        assert await refusal(node, request(topic, -7), version) is ErrorCode.UNSUPPORTED_VERSION


@in_loop
async def test_leader_epoch_is_checked_since_version_4(node: QuietNode) -> None:
    topic = await two_epochs(node)
    for version in LIST_OFFSETS.versions:
        if version < 4:
            assert (await one_of(node, request(topic, LATEST, epoch=9), version)).error_code == ErrorCode.NONE
            continue
        assert await refusal(node, request(topic, LATEST, epoch=0), version) is ErrorCode.FENCED_LEADER_EPOCH
        assert await refusal(node, request(topic, LATEST, epoch=2), version) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await one_of(node, request(topic, LATEST, epoch=1), version)).error_code == ErrorCode.NONE


@in_loop
async def test_unknown_topics_and_partitions_are_refused(node: QuietNode) -> None:
    topic = await node.create("t")
    for version in LIST_OFFSETS.versions:
        for asked in (request("missing", LATEST), request(topic, LATEST, index=1), request(topic, LATEST, index=-1)):
            assert await refusal(node, asked, version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_partitions_are_judged_one_by_one(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    append(topic.partitions[1], 4, 0)
    asked = request(topic, LATEST)
    asked.topics[0].partitions += [
        ListOffsetsPartition(partition_index=7, timestamp=LATEST),
        ListOffsetsPartition(partition_index=1, timestamp=LATEST),
    ]
    asked.topics += request("missing", LATEST).topics
    for version in LIST_OFFSETS.versions:
        known, missing = (await node.ask(asked, version)).topics
        assert [(one.partition_index, one.error_code, one.offset) for one in known.partitions] == [
            (0, ErrorCode.NONE, 0),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (1, ErrorCode.NONE, 4),
        ]
        assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_log_that_cannot_be_read_is_a_storage_error(node: QuietNode) -> None:
    topic = await node.create("t")
    append(topic.partitions[0], 1, 0)
    for path in (node.directory / "t-0").glob("*.log"):
        path.unlink()
    for version in LIST_OFFSETS.versions:
        # What the log knows by heart is told all the same.
        assert (await find(node, topic, LATEST, version))[1] == 1
        assert await refusal(node, request(topic, 0), version) is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_positions_are_told_at_once_and_times_looked_for_by_a_thread(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await two_epochs(node)
    threads = set()
    look = TimeSearch.__call__

    def watched(search: TimeSearch) -> TimestampAndOffset | None:
        threads.add(threading.current_thread())
        return look(search)

    monkeypatch.setattr(TimeSearch, "__call__", watched)
    for position in (LATEST, EARLIEST, EARLIEST_LOCAL):
        assert not inspect.isawaitable(node.start(request(topic, position), 8))
    for timestamp in (0, MAX_TIMESTAMP):
        await node.ask(request(topic, timestamp), 8)
    assert threads
    assert threading.main_thread() not in threads


@in_loop
async def test_topic_deleted_during_the_search_is_unknown(node: QuietNode) -> None:
    topic = await two_epochs(node)
    answer = node.start(request(topic, 0), 8)
    await node.topics.delete(topic)
    (one,) = (await answer).topics[0].partitions
    assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_many_partitions_are_searched_in_turns(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "SEARCHES_PER_CHUNK", 2)
    topic = await node.create("t", 5)
    for count, partition in enumerate(topic.partitions):
        append(partition, count + 1, 100)
    asked = request(topic, 100)
    asked.topics[0].partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=100 + index) for index in (4, 9, 2, 0, 3, 1)
    ]
    (answered,) = (await node.ask(asked, 8)).topics
    assert [(one.partition_index, one.offset) for one in answered.partitions] == [
        (4, 4),
        (9, -1),
        (2, 2),
        (0, 0),
        (3, 3),
        (1, 1),
    ]


@in_loop
async def test_a_partition_named_twice_is_refused(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    asked = request(topic, LATEST)
    asked.topics[0].partitions += [ListOffsetsPartition(partition_index=index, timestamp=0) for index in (1, 0)]
    asked.topics += request("u", LATEST).topics + request("u", EARLIEST).topics
    for version in LIST_OFFSETS.versions:
        codes = [one.error_code for answer in (await node.ask(asked, version)).topics for one in answer.partitions]
        again = ErrorCode.INVALID_REQUEST
        assert codes == [again, ErrorCode.NONE, again, again, again]


@in_loop
async def test_a_search_whose_files_went_away_is_made_again(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await two_epochs(node)
    look = TimeSearch.__call__
    log = log_of(topic.partitions[0])

    def moving(search: TimeSearch) -> TimestampAndOffset | None:
        found = look(search)
        if found is not None and found.offset < 3:
            # As retention does while the thread looks.
            log.log_start_offset = found.offset + 1
        return found

    monkeypatch.setattr(TimeSearch, "__call__", moving)
    assert await find(node, topic, 0, 8) == (300, 3, 1)


@in_loop
async def test_a_search_is_not_repeated_for_ever(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await two_epochs(node)
    monkeypatch.setattr(Partition, "is_outdated", lambda partition, search: True)
    for version in LIST_OFFSETS.versions:
        expected = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        assert await refusal(node, request(topic, 0), version) is expected


@in_loop
async def test_a_log_that_cannot_be_opened_any_more_is_a_storage_error(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await two_epochs(node)
    look = TimeSearch.__call__

    def breaking(search: TimeSearch) -> TimestampAndOffset | None:
        lose_log(topic.partitions[0], monkeypatch)
        return look(search)

    monkeypatch.setattr(TimeSearch, "__call__", breaking)
    assert await refusal(node, request(topic, 0), 8) is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_a_closed_segment_that_is_missing_is_a_storage_error(node: QuietNode) -> None:
    topic = await node.create("t", segment_bytes=str(1024 * 1024))
    for _ in range(2):
        batch = make_batch(timestamp_ms=100, value=bytes(600_000))
        topic.partitions[0].append(batch, check_batch(batch))
    (node.directory / "t-0" / f"{0:020d}.log").unlink()
    for version in LIST_OFFSETS.versions:
        assert await refusal(node, request(topic, 0), version) is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_a_log_that_has_lost_all_records_begins_in_the_epoch_in_force(node: QuietNode) -> None:
    topic = await two_epochs(node)
    log_of(topic.partitions[0]).advance_log_start_offset(6)
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    for version in LIST_OFFSETS.versions:
        assert await find(node, again, EARLIEST, version) == (-1, 6, 2 if version >= 4 else -1)
