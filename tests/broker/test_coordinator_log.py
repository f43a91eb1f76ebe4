"""The coordinators' log: what was appended comes back, all of it and in order."""

import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.coordinator import internal_topic_log as coordinator_log
from kwire.coordinator.internal_topic_log import InternalTopicLog
from kwire.coordinator.log_records import PendingRecord, ProducerIdAndEpoch, TransactionEnd
from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header
from storage.errors import CoordinatorFenced, DamagedLog, InvalidProducerEpoch
from storage.segment.reads import LogRead
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

KeyValue = tuple[bytes, bytes | None]


def records(number: int) -> list[KeyValue]:
    """What batch `number` holds: 1 to 4 records, some of them marks of deletion."""
    return [
        (f"key {number}.{place}".encode(), None if (number + place) % 3 == 0 else b"v" * number)
        for place in range(number % 4 + 1)
    ]


def plain_records(log: InternalTopicLog) -> Iterator[KeyValue]:
    return (one for one in log.replay(0) if isinstance(one, tuple))


async def open_log(node: QuietNode) -> InternalTopicLog:
    await node.topics.offsets_topic()
    return InternalTopicLog(node.topics, OFFSETS_TOPIC)


@pytest.mark.parametrize("replay_bytes", [1, 700, 1024 * 1024])
@in_loop
async def test_many_batches_come_back_in_order(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, replay_bytes: int
) -> None:
    monkeypatch.setattr(coordinator_log, "REPLAY_BYTES", replay_bytes)
    log = await open_log(node)
    expected: list[KeyValue] = []
    end = 0
    for number in range(300):
        batch = records(number)
        expected += batch
        end += len(batch)
        assert log.append(3, batch, node.clock.now_ms()) == end
    log.append(4, [(b"elsewhere", b"")], node.clock.now_ms())
    assert list(log.replay(3)) == expected
    node.restart()
    log = InternalTopicLog(node.topics, OFFSETS_TOPIC)
    assert list(log.replay(3)) == expected
    assert log.append(3, [(b"next", b"")], node.clock.now_ms()) == end + 1
    assert list(log.replay(3))[-1] == (b"next", b"")


@in_loop
async def test_replay_crosses_segments(node: QuietNode) -> None:
    log = await open_log(node)
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    await node.topics.configure(topic, {**topic.configs, "segment.bytes": str(1024 * 1024)})
    expected = [(f"{number}".encode(), b"x" * 400_000) for number in range(6)]
    for record in expected:
        log.append(0, [record], node.clock.now_ms())
    assert log_of(topic.partitions[0]).segment_count == 3
    assert list(log.replay(0)) == expected


@in_loop
async def test_replay_begins_where_the_log_begins(node: QuietNode) -> None:
    log = await open_log(node)
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    for number in range(4):
        log.append(0, [(f"{number}".encode(), b"")], node.clock.now_ms())
    log_of(topic.partitions[0]).advance_log_start_offset(2)
    assert [key for key, _ in plain_records(log)] == [b"2", b"3"]


@in_loop
async def test_records_without_a_key_are_left_out(node: QuietNode) -> None:
    log = await open_log(node)
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    # Nobody can append such a thing to a compacted topic, but it may be there from before it was one.
    partition = topic.partitions[0]
    partition.settings = replace(partition.settings, is_compacted=False)
    batch = memoryview(build_batch([Record(None, b"noise", 0), Record(b"key", b"value", 0)]))
    partition.append(batch, check_batch(batch))
    assert list(log.replay(0)) == [(b"key", b"value")]


@in_loop
async def test_shard_that_cannot_be_read_to_its_end_is_not_called_loaded(node: QuietNode) -> None:
    log = await open_log(node)
    log.append(0, [(b"a", b"")], node.clock.now_ms())
    log.append(0, [(b"b", b"")], node.clock.now_ms())
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    topic.partitions[0].high_watermark = 1  # the rest is not safe yet
    with pytest.raises(DamagedLog):
        list(log.replay(0))


@in_loop
async def test_empty_and_missing_shards_replay_nothing(node: QuietNode) -> None:
    missing = InternalTopicLog(node.topics, OFFSETS_TOPIC)
    assert list(missing.replay(0)) == []
    log = await open_log(node)
    assert list(log.replay(0)) == []
    assert list(log.replay(10_000)) == []


@in_loop
async def test_append_without_the_topic_says_so(node: QuietNode) -> None:
    log = InternalTopicLog(node.topics, OFFSETS_TOPIC)
    with pytest.raises(LookupError):
        log.append(0, [(b"key", b"")], 0)
    log = await open_log(node)
    with pytest.raises(LookupError):
        log.append(10_000, [(b"key", b"")], 0)


@in_loop
async def test_record_that_is_too_large_is_refused_and_leaves_nothing(node: QuietNode) -> None:
    log = await open_log(node)
    with pytest.raises(KafkaError) as caught:
        log.append(0, [(b"key", bytes(2 * 1024 * 1024))], node.clock.now_ms())
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert list(log.replay(0)) == []


@in_loop
async def test_commit_is_told_when_the_watermark_is_there(node: QuietNode) -> None:
    log = await open_log(node)
    told: list[str] = []
    log.on_committed(0, 2, lambda _: told.append("two"))
    end = log.append(0, [(b"a", b"")], node.clock.now_ms())
    log.on_committed(0, end, lambda _: told.append("one"))
    assert told == ["one"]
    log.append(0, [(b"b", b"")], node.clock.now_ms())
    assert told == ["one", "two"]


@in_loop
async def test_gap_before_something_damaged_ends_the_replay(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await open_log(node)
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    partition = topic.partitions[0]
    for number in range(4):
        log.append(0, [(f"{number}".encode(), b"")], node.clock.now_ms())
    read = log_of(partition).read

    def read_up_to_the_gap(offset: int, max_bytes: int, upto: int, *, at_least_one: bool = True) -> LogRead:
        return read(offset, max_bytes, min(upto, 2), at_least_one=at_least_one)

    monkeypatch.setattr(type(log_of(partition)), "read", staticmethod(read_up_to_the_gap))
    replay = plain_records(log)
    assert [next(replay)[0] for _ in range(2)] == [b"0", b"1"]
    with pytest.raises(DamagedLog):
        next(replay)


@pytest.mark.parametrize("replay_bytes", [1, 1024 * 1024])
@in_loop
async def test_transactions_come_back_as_such(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, replay_bytes: int
) -> None:
    monkeypatch.setattr(coordinator_log, "REPLAY_BYTES", replay_bytes)
    log = await open_log(node)
    now_ms = node.clock.now_ms()
    assert log.append(0, [(b"a", b"1")], now_ms) == 1
    assert log.append_pending(0, ProducerIdAndEpoch(7, 0), [(b"a", b"2"), (b"b", b"2")], now_ms) == 3
    assert log.append_pending(0, ProducerIdAndEpoch(8, 3), [(b"a", b"3")], now_ms) == 4
    assert log.append_pending(0, ProducerIdAndEpoch(7, 0), [(b"c", b"4")], now_ms) == 5
    assert log.append_marker(0, ProducerIdAndEpoch(7, 0), 0, True) == 6
    assert log.append(0, [(b"a", None)], now_ms) == 7
    assert log.append_marker(0, ProducerIdAndEpoch(8, 4), 0, False) == 8
    expected = [
        (b"a", b"1"),
        PendingRecord(7, b"a", b"2"),
        PendingRecord(7, b"b", b"2"),
        PendingRecord(8, b"a", b"3"),
        PendingRecord(7, b"c", b"4"),
        TransactionEnd(7, True),
        (b"a", None),
        TransactionEnd(8, False),
    ]
    assert list(log.replay(0)) == expected
    node.restart()
    log = InternalTopicLog(node.topics, OFFSETS_TOPIC)
    assert list(log.replay(0)) == expected
    assert list(plain_records(log)) == [(b"a", b"1"), (b"a", None)]


@in_loop
async def test_producer_that_was_replaced_is_not_taken(node: QuietNode) -> None:
    log = await open_log(node)
    log.append_pending(0, ProducerIdAndEpoch(7, 0), [(b"a", b"")], 0)
    log.append_marker(0, ProducerIdAndEpoch(7, 2), 5, False)
    with pytest.raises(InvalidProducerEpoch):
        log.append_pending(0, ProducerIdAndEpoch(7, 1), [(b"a", b"")], 0)
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(0, ProducerIdAndEpoch(7, 1), 5, True)
    with pytest.raises(CoordinatorFenced):
        log.append_marker(0, ProducerIdAndEpoch(7, 2), 4, True)
    assert log.append_pending(0, ProducerIdAndEpoch(7, 2), [(b"b", b"")], 0) == 3
    with pytest.raises(LookupError):
        log.append_marker(10_000, ProducerIdAndEpoch(7, 2), 5, True)
    assert [type(one) for one in log.replay(0)] == [PendingRecord, TransactionEnd, PendingRecord]


@in_loop
async def test_control_batch_of_another_kind_is_passed_over(node: QuietNode) -> None:
    """A log that was once a Kafka broker's may hold such."""
    log = await open_log(node)
    topic = node.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    leader_change = Record(struct.pack(">hh", 0, 2), b"", 0)
    batch = memoryview(build_batch([leader_change], is_control=True))
    topic.partitions[0].append(batch, parse_header(batch))
    log.append(0, [(b"a", b"")], 0)
    assert list(log.replay(0)) == [(b"a", b"")]
