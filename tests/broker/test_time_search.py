"""A search for a timestamp: its result is valid for the log as it was when the search began."""

import os
import random
import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from msgspec.structs import replace

from kwire.broker.partition import Partition
from kwire.broker.partition.time_search import search_largest_time, search_time
from storage.batch.format import HEADER_BYTES, NONE, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records
from storage.errors import StorageError
from storage.log.log import Log
from storage.segment.time_search import TimestampAndOffset
from tests.support.batches import make_batch, split_batches
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

SEGMENT_BYTES = 1024 * 1024


def append(partition: Partition, timestamp_ms: int, size_bytes: int = 10) -> None:
    batch = make_batch(timestamp_ms=timestamp_ms, value=bytes(size_bytes))
    partition.append(batch, check_batch(batch))


def time_of(log: Log, timestamp_ms: int) -> TimestampAndOffset | None:
    return search_time(log, timestamp_ms, log.log_end_offset)()


def largest_of(log: Log) -> TimestampAndOffset | None:
    return search_largest_time(log, log.log_end_offset)()


async def three_segments(node: QuietNode) -> Partition:
    """Offset n at n * 100 ms; the last segment is open."""
    partition = await node.create_partition(segment_bytes=str(SEGMENT_BYTES))
    for number in range(5):
        append(partition, number * 100, SEGMENT_BYTES // 2 - 1000)
    assert log_of(partition).segment_count == 3
    return partition


@in_loop
async def test_every_segment_is_searched_and_no_descriptor_stays(node: QuietNode) -> None:
    partition = await three_segments(node)
    log_of(partition).release()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        assert time_of(log_of(partition), number * 100 - 50 if number else 0) == (number * 100, number)
    assert time_of(log_of(partition), 401) is None
    assert largest_of(log_of(partition)) == TimestampAndOffset(400, 4)
    assert len(os.listdir("/proc/self/fd")) == before


@in_loop
async def test_appends_rolls_and_releases_do_not_touch_a_search_that_has_begun(node: QuietNode) -> None:
    partition = await three_segments(node)
    log = log_of(partition)
    upto = log.log_end_offset
    searches = [search_time(log, wanted, upto) for wanted in (100, 400, 401)] + [search_largest_time(log, upto)]
    for number in range(5, 9):
        append(partition, number * 100, SEGMENT_BYTES // 2 - 1000)
    log.release()
    assert log.segment_count == 5
    assert [search() for search in searches] == [(100, 1), (400, 4), None, (400, 4)]
    assert time_of(log, 401) == (500, 5)


@in_loop
async def test_search_finds_everything_after_a_restart(node: QuietNode) -> None:
    await three_segments(node)
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    partition = topic.partitions[0]
    assert time_of(log_of(partition), 350) == (400, 4)
    append(partition, 500)
    assert time_of(log_of(partition), 450) == (500, 5)
    assert time_of(log_of(partition), 150) == (200, 2)


@in_loop
async def test_only_what_is_visible_is_found(node: QuietNode) -> None:
    partition = await three_segments(node)
    log = log_of(partition)
    for upto in range(6):
        expected = TimestampAndOffset((upto - 1) * 100, upto - 1) if upto else None
        assert search_largest_time(log, upto)() == expected
        for number in range(5):
            found = search_time(log, number * 100, upto)()
            assert found == (TimestampAndOffset(number * 100, number) if number < upto else None)


@in_loop
async def test_the_largest_time_is_that_of_a_record_which_is_still_there(node: QuietNode) -> None:
    partition = await node.create_partition()
    for timestamp_ms in (500, 900, 300, 400, 400, 100):
        append(partition, timestamp_ms)
    assert largest_of(log_of(partition)) == (900, 1)
    log_of(partition).advance_log_start_offset(2)
    assert largest_of(log_of(partition)) == (400, 3)
    log_of(partition).advance_log_start_offset(5)
    assert largest_of(log_of(partition)) == (100, 5)
    log_of(partition).advance_log_start_offset(6)
    assert largest_of(log_of(partition)) is None


def emptied(batch: memoryview) -> memoryview:
    """What compaction leaves of a batch whose records are all gone: its header, for the sake of its producer."""
    view = memoryview(bytearray(batch[:HEADER_BYTES]))
    view[:] = replace(parse_header(batch), batch_length=HEADER_BYTES - 12, record_count=0).pack()
    struct.pack_into(">I", view, 17, crc32c(view[21:]))
    return view


@pytest.mark.parametrize("compression", [NONE, ZSTD])
@in_loop
async def test_batches_without_records_and_gaps_are_passed_over(node: QuietNode, compression: int) -> None:
    partition = await node.create_partition()
    append(partition, 100)
    empty = emptied(make_batch(3, timestamp_ms=900, compression=compression))
    log_of(partition).append(empty, parse_header(empty), 0, 0)
    append(partition, 200)
    assert not list(read_records(empty, 1024))
    assert partition.log_end_offset == 5
    assert [time_of(log_of(partition), wanted) for wanted in (50, 150, 201, 900)] == [(100, 0), (200, 4), None, None]
    assert largest_of(log_of(partition)) == (200, 4)


@in_loop
async def test_records_without_a_time_are_never_found(node: QuietNode) -> None:
    partition = await node.create_partition()
    append(partition, -1)
    assert largest_of(log_of(partition)) is None
    assert time_of(log_of(partition), 0) is None
    append(partition, 7)
    append(partition, -1)
    assert largest_of(log_of(partition)) == (7, 1)


@in_loop
async def test_a_search_agrees_with_a_look_at_every_record(node: QuietNode) -> None:
    partition = await node.create_partition(index_interval_bytes="200")
    dice = random.Random(4)
    times: list[int] = []
    for _ in range(120):
        some = [dice.randrange(-1, 400) for _ in range(dice.randrange(1, 4))]
        batch = memoryview(build_batch([Record(None, b"value", one) for one in some]))
        partition.append(batch, check_batch(batch))
        times += some
    log = log_of(partition)
    # Batches end where they end, so only their bounds can be watermarks.
    bounds = [0, *(parse_header(batch).last_offset + 1 for batch in batches_of(log))]
    for _ in range(60):
        start, upto = (
            dice.randrange(log.log_start_offset, min(log.log_start_offset + 9, len(times))),
            dice.choice(bounds),
        )
        log.advance_log_start_offset(start)
        visible = [(timestamp_ms, offset) for offset, timestamp_ms in enumerate(times) if start <= offset < upto]
        wanted = dice.randrange(0, 410)
        assert search_time(log, wanted, upto)() == next((one for one in visible if one[0] >= wanted), None)
        best = max(visible, key=lambda one: (one[0], -one[1]), default=(-1, -1))
        assert search_largest_time(log, upto)() == (best if best[0] >= 0 else None)


def batches_of(log: Log) -> list[memoryview]:
    return split_batches(log.read(log.log_start_offset, 1024 * 1024, log.log_end_offset).view)


@in_loop
async def test_a_search_knows_when_its_files_are_others_by_now(node: QuietNode) -> None:
    partition = await three_segments(node)
    log = log_of(partition)
    search = search_time(log, 0, log.log_end_offset)
    assert not search.is_outdated(log)
    append(partition, 500, SEGMENT_BYTES // 3)
    append(partition, 600, SEGMENT_BYTES // 3)
    assert log.segment_count == 4
    assert not search.is_outdated(log)
    assert search() == (0, 0)
    assert not search.is_outdated(log)
    # Compaction puts other files in the place of these before it tells the log.
    exchanged = search_time(log, 0, log.log_end_offset)
    first = next(log.segments())
    os.truncate(first.path, first.size_bytes - 1)
    with suppress(StorageError):
        exchanged()
    assert exchanged.is_outdated(log)
    log.advance_log_start_offset(2)
    log.drop_segments()
    assert search.is_outdated(log)
