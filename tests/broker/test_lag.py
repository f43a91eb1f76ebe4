"""Consumer lag: in offsets and in seconds, of open and of closed logs."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kwire.broker.admin import lag
from kwire.broker.admin.lag import Lag, Lags, Reader, time_of
from kwire.broker.partition import Partition
from storage.batch.record_batch import check_batch, parse_header
from storage.errors import DiskFailure
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.transactions import TransactionalProducer

SECOND_MS = 1000


def lags_of(node: QuietNode) -> Lags:
    return Lags(node.topics, node.store, node.files, node.cold_reads, node.clock)


def put(node: QuietNode, partition: Partition, count: int = 1, age_ms: int = 0) -> None:
    """Append records whose first was made so long ago; they are one millisecond apart."""
    batch = make_batch(count, timestamp_ms=node.clock.now_ms() - age_ms)
    partition.append(batch, check_batch(batch))


def park(node: QuietNode, partition: Partition) -> None:
    assert node.topics.park(partition)
    assert not partition.is_open


async def one(lags: Lags, reader: Reader) -> Lag:
    (found,) = await lags.measure([reader])
    assert found is not None
    return found


@in_loop
async def test_lag_is_what_lies_between_the_offset_and_the_high_watermark(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        for age_ms in (30_000, 20_000, 10_000):
            put(node, partition, age_ms=age_ms)
        lags = lags_of(node)
        assert await lags.measure([Reader("t", 0, offset) for offset in range(4)]) == [
            Lag(0, 3, 3, 30.0),
            Lag(0, 3, 2, 20.0),
            Lag(0, 3, 1, 10.0),
            Lag(0, 3, 0, 0.0),
        ]


@in_loop
async def test_who_has_caught_up_is_zero_behind_for_ever(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition)
        node.clock.advance(3_600_000)
        lags = lags_of(node)
        assert await one(lags, Reader("t", 0, 1)) == Lag(0, 1, 0, 0.0)
        # Committed for a log that had more records once.
        assert await one(lags, Reader("t", 0, 99)) == Lag(0, 1, 0, 0.0)


@in_loop
async def test_seconds_grow_while_a_reader_stands_still(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        put(node, await node.create_partition("t"))
        lags = lags_of(node)
        for seconds in (0.0, 5.0, 10.0):
            assert (await one(lags, Reader("t", 0, 0))).seconds == seconds
            node.clock.advance(5 * SECOND_MS)


@in_loop
async def test_a_record_from_the_future_is_zero_seconds_old(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        put(node, await node.create_partition("t"), age_ms=-60_000)
        assert await one(lags_of(node), Reader("t", 0, 0)) == Lag(0, 1, 1, 0.0)


@in_loop
async def test_seconds_are_unknown_when_the_records_have_no_time(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        batch = make_batch(timestamp_ms=-1)
        partition.append(batch, check_batch(batch))
        assert await one(lags_of(node), Reader("t", 0, 0)) == Lag(0, 1, 1, None)


@in_loop
async def test_the_append_time_counts_where_the_topic_keeps_it(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t", message_timestamp_type="LogAppendTime")
        put(node, partition, count=3, age_ms=86_400_000)
        node.clock.advance(2 * SECOND_MS)
        found = await lags_of(node).measure([Reader("t", 0, offset) for offset in range(3)])
        assert [lag.seconds for lag in found if lag is not None] == [2.0, 2.0, 2.0]


@in_loop
async def test_below_the_log_start_the_oldest_record_that_is_left_counts(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t", kwire_retention_messages="2")
        for age_ms in (40_000, 30_000, 20_000, 10_000):
            put(node, partition, age_ms=age_ms)
        assert partition.log_start_offset == 2
        assert await one(lags_of(node), Reader("t", 0, 0)) == Lag(2, 4, 4, 20.0)


@in_loop
async def test_where_nothing_is_left_to_read_nobody_waits(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t", kwire_retention_messages="0")
        put(node, partition, count=3)
        assert partition.log_start_offset == 3
        assert await one(lags_of(node), Reader("t", 0, 1)) == Lag(3, 3, 2, 0.0)


@in_loop
async def test_there_is_no_lag_in_what_does_not_exist(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        readers = [
            Reader("nowhere", 0, 0),
            Reader("t", 1, 0),
            Reader("t", -1, 0),
            Reader("t", 0, 0, topic_id=b"of an older one."),
            Reader("t", 0, 0, topic_id=topic.topic_id),
        ]
        assert await lags_of(node).measure(readers) == [None, None, None, None, Lag(0, 0, 0, 0.0)]


@in_loop
async def test_a_new_topic_of_an_old_name_has_times_of_its_own(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        lags = lags_of(node)
        put(node, await node.create_partition("t"), age_ms=50_000)
        assert (await one(lags, Reader("t", 0, 0))).seconds == 50.0
        topic = node.topics.get("t")
        assert topic is not None
        await node.topics.delete(topic)
        put(node, await node.create_partition("t"), age_ms=3_000)
        assert (await one(lags, Reader("t", 0, 0))).seconds == 3.0


@in_loop
async def test_logs_of_readers_that_have_caught_up_are_not_opened(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 3)
        for partition in topic.partitions[:2]:
            put(node, partition, count=2)
            park(node, partition)
        lags = lags_of(node)
        for _ in range(2):
            found = await lags.measure([Reader("t", index, 2) for index in range(3)])
            assert found == [Lag(0, 2, 0, 0.0), Lag(0, 2, 0, 0.0), Lag(0, 0, 0, 0.0)]
            assert not any(partition.is_open for partition in topic.partitions)


@in_loop
async def test_a_log_is_opened_once_for_a_reader_that_is_behind(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition, age_ms=10_000)
        park(node, partition)
        lags = lags_of(node)
        assert await one(lags, Reader("t", 0, 0)) == Lag(0, 1, 1, 10.0)
        assert partition.is_open
        park(node, partition)
        node.clock.advance(SECOND_MS)
        assert await one(lags, Reader("t", 0, 0)) == Lag(0, 1, 1, 11.0)
        assert not partition.is_open


@in_loop
async def test_what_was_appended_to_a_log_and_parked_between_two_looks_is_seen(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        lags = lags_of(node)
        for count in range(1, 4):
            put(node, partition)
            park(node, partition)
            assert await one(lags, Reader("t", 0, count)) == Lag(0, count, 0, 0.0)


@in_loop
async def test_lag_is_known_after_a_restart(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition, age_ms=10_000)
        put(node, partition, age_ms=5_000)
        node.restart()
        assert await lags_of(node).measure([Reader("t", 0, 1), Reader("t", 0, 2)]) == [
            Lag(0, 2, 1, 5.0),
            Lag(0, 2, 0, 0.0),
        ]


@in_loop
async def test_a_round_opens_and_looks_no_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "OPENS_PER_ROUND", 2)
    monkeypatch.setattr(lag, "CHECKPOINTS_PER_ROUND", 3)
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 5)
        for partition in topic.partitions:
            put(node, partition, age_ms=7_000)
            park(node, partition)
        lags = lags_of(node)
        readers = [Reader("t", index, 0) for index in range(5)]
        known, unknown = Lag(0, 1, 1, 7.0), Lag(0, 1, 1, None)
        assert await lags.measure(readers) == [known, known, unknown, None, None]
        assert await lags.measure(readers) == [known, known, known, known, unknown]
        assert await lags.measure(readers) == [known] * 5


@in_loop
async def test_what_is_remembered_is_bounded_and_what_is_used_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "TIMES_MAX", 2)
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        for age_ms in (40_000, 30_000, 20_000):
            put(node, partition, age_ms=age_ms)
        lags = lags_of(node)
        for offset in (0, 1, 0, 2, 0):
            assert (await one(lags, Reader("t", 0, offset))).seconds == 40.0 - 10 * offset
        assert sorted(offset for _, offset in lags._times._values) == [0, 2]


@in_loop
async def test_records_that_cannot_be_read_have_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition)

        def fail(self: Partition, offset: int, max_bytes: int) -> None:
            raise DiskFailure("read: the disk is gone")

        monkeypatch.setattr(Partition, "read", fail)
        assert await one(lags_of(node), Reader("t", 0, 0)) == Lag(0, 1, 1, None)


@in_loop
async def test_pages_that_are_not_in_memory_are_fetched_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition, age_ms=4_000)
        warmed: list[int] = []
        monkeypatch.setattr(
            Partition, "cold_start", lambda self, offset: None if warmed else lambda: warmed.append(offset)
        )
        assert await one(lags_of(node), Reader("t", 0, 0)) == Lag(0, 1, 1, 4.0)
        assert warmed == [0]


@in_loop
async def test_many_readers_are_measured_in_turns(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition, age_ms=1_000)
        count = 3 * lag.READERS_PER_CHUNK
        found = await lags_of(node).measure([Reader("t", 0, 0)] * count + [Reader("t", 0, 1)])
        assert found == [Lag(0, 1, 1, 1.0)] * count + [Lag(0, 1, 0, 0.0)]


@pytest.mark.parametrize(("offset", "expected_ms"), [(0, 1000), (5, 1050), (10, 1100)])
def test_times_inside_a_batch_lie_between_its_first_and_its_last(offset: int, expected_ms: int) -> None:
    header = replace(parse_header(make_batch(11, timestamp_ms=1000)), max_timestamp=1100)
    assert time_of(header, offset) == expected_ms


def test_the_time_behind_a_gap_is_that_of_the_next_batch() -> None:
    header = replace(parse_header(make_batch(3, timestamp_ms=1000)), base_offset=10)
    assert time_of(header, 4) == 1000


@in_loop
async def test_what_is_not_decided_yet_keeps_nobody_waiting(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        put(node, partition, age_ms=30_000)
        producer = TransactionalProducer(partition, 7)
        producer.send(3, now_ms=node.clock.now_ms() - 20_000)
        put(node, partition, age_ms=10_000)
        expected = [Lag(0, 5, 1, 30.0), Lag(0, 5, 0, 0.0), Lag(0, 5, 0, 0.0), Lag(0, 5, 0, 0.0)]
        readers = [Reader("t", 0, offset) for offset in (0, 1, 3, 5)]
        lags = lags_of(node)
        assert await lags.measure(readers) == expected
        park(node, partition)
        assert await lags.measure(readers) == expected
        node.restart()
        # A checkpoint does not tell where the transaction began.
        assert await lags_of(node).measure(readers) == expected
        topic = node.topics.get("t")
        assert topic is not None
        producer.partition = topic.partitions[0]
        producer.commit()
        assert [one and one.offsets for one in await lags_of(node).measure(readers)] == [6, 5, 3, 1]
