"""Partitions: appends, their validation, and the rise of the high watermark as the only signal."""

import errno
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from kwire.broker.partition import Partition, code_of
from kwire.errors import ErrorCode, KafkaError
from storage import errors
from storage.batch.format import CRC_POSITION, CRC_START, LOG_APPEND_TIME, MAX_TIMESTAMP_POSITION
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records
from storage.log.log import Appended
from tests.support.batches import headers, make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

HOUR_MS = 60 * 60 * 1000


def append(partition: Partition, batch: memoryview | None = None, *, count: int = 1) -> Appended:
    batch = make_batch(count, timestamp_ms=0) if batch is None else batch
    return partition.append(batch, check_batch(batch))


def refusal(partition: Partition, batch: memoryview) -> ErrorCode:
    with pytest.raises((KafkaError, errors.StorageError)) as caught:
        append(partition, batch)
    assert partition.log_end_offset == 0
    assert partition.high_watermark == 0
    assert partition.appended_bytes == 0
    error = caught.value
    if isinstance(error, KafkaError):
        return error.code
    assert isinstance(error, errors.StorageError)
    return code_of(error)


@in_loop
async def test_append_raises_the_watermark_and_tells_the_watchers(node: QuietNode) -> None:
    partition = await node.create_partition()
    seen: list[int] = []

    def watcher(risen: Partition) -> None:
        assert risen is partition
        seen.append(risen.high_watermark)

    partition.watch(watcher)
    assert append(partition, count=3).base_offset == 0
    assert append(partition).base_offset == 3
    assert seen == [3, 4]
    partition.unwatch(watcher)
    append(partition)
    assert seen == [3, 4]
    assert partition.high_watermark == 5


@in_loop
async def test_batch_is_stored_with_its_place_and_epoch(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, count=2)
    batch = make_batch(3, timestamp_ms=7)
    append(partition, batch)
    assert parse_header(batch).base_offset == 2
    stored = partition.read(2, 10_000).view
    assert stored == batch
    assert [header.partition_leader_epoch for header in headers(stored)] == [partition.leader_epoch]
    assert partition.appended_bytes == log_of(partition).size_bytes


@in_loop
async def test_nothing_at_or_above_the_watermark_is_read(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition)
    append(partition)
    partition.high_watermark = 1
    assert [header.base_offset for header in headers(partition.read(0, 10_000).view)] == [0]
    assert len(partition.read(1, 10_000).view) == 0
    partition.advance(2)
    assert [header.base_offset for header in headers(partition.read(0, 10_000).view)] == [0, 1]


@in_loop
async def test_read_outside_the_log_is_out_of_range(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition)
    for offset in (-1, 2):
        with pytest.raises(errors.OffsetOutOfRange):
            partition.read(offset, 1)
    assert len(partition.read(1, 1).view) == 0


@in_loop
async def test_read_is_bounded_but_gives_one_batch_if_asked_to(node: QuietNode) -> None:
    partition = await node.create_partition()
    for _ in range(3):
        append(partition)
    size = log_of(partition).size_bytes // 3
    assert len(partition.read(0, 2 * size + 1).view) == 2 * size
    assert len(partition.read(0, 1).view) == size
    assert len(partition.read(0, 1, at_least_one=False).view) == 0


@in_loop
async def test_watermark_is_known_when_the_log_is_opened(node: QuietNode) -> None:
    append(await node.create_partition(), count=5)
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    partition = topic.partitions[0]
    assert not partition.is_open
    assert len(headers(partition.read(0, 10_000).view)) == 1
    assert partition.high_watermark == 5


@in_loop
async def test_call_comes_once_when_the_watermark_gets_there(node: QuietNode) -> None:
    partition = await node.create_partition()
    calls: list[str] = []
    partition.on_reached(0, lambda _: calls.append("at once"))
    partition.on_reached(1, lambda _: calls.append("one"))
    partition.on_reached(3, lambda _: calls.append("three"))
    assert calls == ["at once"]
    append(partition)
    assert calls == ["at once", "one"]
    append(partition)
    assert calls == ["at once", "one"]
    append(partition, count=5)
    append(partition)
    assert calls == ["at once", "one", "three"]


@in_loop
async def test_watchers_may_come_and_go_while_they_are_told(node: QuietNode) -> None:
    partition = await node.create_partition()
    told: list[str] = []

    def late(_: Partition) -> None:
        told.append("late")

    def once(_: Partition) -> None:
        told.append("once")
        partition.unwatch(once)
        partition.watch(late)

    partition.watch(once)
    append(partition)
    assert told == ["once"]
    append(partition)
    assert told == ["once", "late"]


@in_loop
async def test_duplicate_is_answered_with_its_first_place_and_tells_nobody(node: QuietNode) -> None:
    partition = await node.create_partition()
    told: list[int] = []
    partition.watch(lambda risen: told.append(risen.high_watermark))

    def batch(sequence: int) -> memoryview:
        return make_batch(2, timestamp_ms=0, producer_id=7, producer_epoch=0, base_sequence=sequence)

    append(partition, batch(0))
    append(partition, batch(2))
    again = append(partition, batch(0))
    assert (again.base_offset, again.is_duplicate) == (0, True)
    assert told == [2, 4]
    assert partition.log_end_offset == 4
    assert partition.appended_bytes == log_of(partition).size_bytes


@in_loop
async def test_too_large_a_batch_is_refused(node: QuietNode) -> None:
    batch = make_batch(timestamp_ms=0, value=b"x" * 200)
    fits = await node.create_partition("fits", max_message_bytes=str(len(batch)))
    too_small = await node.create_partition("small", max_message_bytes=str(len(batch) - 1))
    append(fits, make_batch(timestamp_ms=0, value=b"x" * 200))
    assert refusal(too_small, batch) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "distance_ms", "is_taken"),
    [
        (1000, 2000, 0, True),
        (1000, 2000, -1000, True),
        (1000, 2000, -1001, False),
        (1000, 2000, 2000, True),
        (1000, 2000, 2001, False),
    ],
)
@in_loop
async def test_timestamp_must_be_near_the_clock(
    node: QuietNode, before_ms: int, after_ms: int, distance_ms: int, is_taken: bool
) -> None:
    topic = await node.create("t")
    bounds = {"message.timestamp.before.max.ms": str(before_ms), "message.timestamp.after.max.ms": str(after_ms)}
    await node.topics.configure(topic, bounds)
    partition = topic.partitions[0]
    batch = make_batch(timestamp_ms=node.clock.now_ms() + distance_ms)
    if is_taken:
        append(partition, batch)
    else:
        assert refusal(partition, batch) is ErrorCode.INVALID_TIMESTAMP


@in_loop
async def test_by_default_the_past_is_taken_and_the_far_future_is_not(node: QuietNode) -> None:
    partition = await node.create_partition()
    future_ms = node.clock.now_ms() + HOUR_MS
    assert refusal(partition, make_batch(timestamp_ms=future_ms + 1)) is ErrorCode.INVALID_TIMESTAMP
    append(partition, make_batch(timestamp_ms=future_ms))
    append(partition, make_batch(timestamp_ms=0))
    node.clock.advance(1)
    append(partition, make_batch(timestamp_ms=future_ms + 1))


@in_loop
async def test_record_without_a_timestamp_is_near_enough(node: QuietNode) -> None:
    topic = await node.create("t")
    await node.topics.configure(topic, {"message.timestamp.before.max.ms": "1000"})
    append(topic.partitions[0], make_batch(timestamp_ms=-1))


@in_loop
async def test_log_append_time_is_the_clocks(node: QuietNode) -> None:
    topic = await node.create("t")
    await node.topics.configure(topic, {"message.timestamp.type": "LogAppendTime"})
    partition = topic.partitions[0]
    node.clock.advance(5)
    # Whatever the producer says, even what would be too far away.
    batch = make_batch(2, timestamp_ms=node.clock.now_ms() + 10 * HOUR_MS)
    assert append(partition, batch).log_append_time_ms == node.clock.now_ms()
    view = partition.read(0, 10_000).view
    (header,) = headers(view)
    assert header.timestamp_type == LOG_APPEND_TIME
    assert {record.timestamp_ms for record in read_records(view, 1000)} == {node.clock.now_ms()}
    assert header.max_timestamp == node.clock.now_ms()


@in_loop
async def test_create_time_tells_no_append_time(node: QuietNode) -> None:
    partition = await node.create_partition()
    assert append(partition).log_append_time_ms == -1


@in_loop
async def test_append_that_fails_tells_nobody_and_leaves_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        partition = await node.create_partition()
        append(partition)
        told: list[int] = []
        partition.watch(lambda risen: told.append(risen.high_watermark))
        files.fail_next("pwrite", errno.ENOSPC)
        with pytest.raises(errors.DiskFailure):
            append(partition)
        assert told == []
        assert partition.high_watermark == partition.log_end_offset == 1
        append(partition)
        assert told == [2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CorruptBatch(), ErrorCode.CORRUPT_MESSAGE),
        (errors.DecompressionFailed(), ErrorCode.CORRUPT_MESSAGE),
        (errors.InvalidBatch(), ErrorCode.INVALID_RECORD),
        (errors.UnsupportedMagic(), ErrorCode.INVALID_RECORD),
        (errors.UnsupportedCompression(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (errors.InvalidTimestamp(), ErrorCode.INVALID_TIMESTAMP),
        (errors.OffsetOutOfRange(1, 2, 3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (errors.OutOfOrderSequence(), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (errors.InvalidProducerEpoch(), ErrorCode.INVALID_PRODUCER_EPOCH),
        (errors.LogClosed(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (errors.DiskFailure("full", errno.ENOSPC), ErrorCode.KAFKA_STORAGE_ERROR),
        (errors.StorageFailed("sync"), ErrorCode.KAFKA_STORAGE_ERROR),
        (errors.DamagedLog(), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_client_is_told_what_kind_of_error_it_was(error: errors.StorageError, code: ErrorCode) -> None:
    assert code_of(error) is code


@in_loop
async def test_compacted_topic_takes_only_records_with_keys(node: QuietNode) -> None:
    partition = await node.create_partition(cleanup_policy="compact")
    keyless = memoryview(build_batch([Record(b"key", b"", 0), Record(None, b"", 0)]))
    assert refusal(partition, keyless) is ErrorCode.INVALID_RECORD
    append(partition, memoryview(build_batch([Record(b"key", None, 0)])))


@in_loop
async def test_time_that_a_producer_left_out_is_filled_in(node: QuietNode) -> None:
    partition = await node.create_partition()
    batch = memoryview(build_batch([Record(None, b"a", 5), Record(None, b"b", 9)]))
    struct.pack_into(">q", batch, MAX_TIMESTAMP_POSITION, -1)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[CRC_START:]))
    append(partition, batch)
    assert [header.max_timestamp for header in headers(partition.read(0, 1000).view)] == [9]


@in_loop
async def test_ring_holds_to_the_record_and_over_restarts(node: QuietNode) -> None:
    """S0-18: a full buffer drops its oldest record for each one that comes."""
    partition = await node.create_partition(kwire_retention_messages="7")
    for number in range(1, 30):
        append(partition)
        assert partition.log_start_offset == max(0, number - 7)
        assert partition.high_watermark == number
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    again = topic.partitions[0]
    assert (again.log_start_offset, again.high_watermark) == (22, 29)


@in_loop
async def test_parked_partition_goes_on_where_it_was(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, count=3)
    held = partition.read(0, 10_000).view
    expected = bytes(held)
    assert partition.maintenance().park()
    assert (partition.is_open, partition.high_watermark, partition.size_bytes) == (False, 3, len(expected))
    node.store.forget_log("t", 0)
    assert append(partition).base_offset == 3
    assert bytes(held) == expected == bytes(partition.read(0, len(expected)).view)


@in_loop
async def test_partition_made_anew_knows_how_far_it_may_be_read(node: QuietNode) -> None:
    """Its topic was put away and nobody held it; whoever remembers an offset asks the next object for it."""
    partition = await node.create_partition()
    append(partition, count=3)
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    told: list[KafkaError | None] = []
    topic.partitions[0].on_reached(3, told.append)
    assert told == [None]


@in_loop
async def test_deleted_partition_opens_no_log_any_more(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    untouched = topic.partitions[1]
    await node.topics.delete(topic)
    with pytest.raises(errors.LogClosed):
        append(untouched)
    assert not list(node.directory.glob("t-1*"))
