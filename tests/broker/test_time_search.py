"""A search for a time: what it finds is what was there when it began, whatever the loop does to the log meanwhile."""

import os

from kwire.broker.partition import Partition
from kwire.broker.time_search import search_largest_time, search_time
from storage.batch import check_batch
from storage.log import TimestampAndOffset
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop

SEGMENT_BYTES = 1024 * 1024


def append(partition: Partition, timestamp_ms: int, size_bytes: int = 10) -> None:
    batch = make_batch(timestamp_ms=timestamp_ms, value=bytes(size_bytes))
    partition.append(batch, check_batch(batch))


async def three_segments(node: QuietNode) -> Partition:
    """Offset n at n * 100 ms; the last segment is open."""
    partition = await node.create_partition(segment_bytes=str(SEGMENT_BYTES))
    for number in range(5):
        append(partition, number * 100, SEGMENT_BYTES // 2 - 1000)
    assert partition.log.segment_count == 3
    return partition


@in_loop
async def test_every_segment_is_searched_and_no_descriptor_stays(node: QuietNode) -> None:
    partition = await three_segments(node)
    partition.log.release()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        assert search_time(partition.log, number * 100 - 50 if number else 0)() == (number * 100, number)
    assert search_time(partition.log, 401)() is None
    assert search_largest_time(partition.log)() == TimestampAndOffset(400, 4)
    assert len(os.listdir("/proc/self/fd")) == before


@in_loop
async def test_appends_rolls_and_releases_do_not_touch_a_search_that_has_begun(node: QuietNode) -> None:
    partition = await three_segments(node)
    log = partition.log
    searches = [search_time(log, 100), search_time(log, 400), search_time(log, 401), search_largest_time(log)]
    for number in range(5, 9):
        append(partition, number * 100, SEGMENT_BYTES // 2 - 1000)
    log.release()
    assert log.segment_count == 5
    assert [search() for search in searches] == [(100, 1), (400, 4), None, (400, 4)]
    assert search_time(log, 401)() == (500, 5)


@in_loop
async def test_search_finds_everything_after_a_restart(node: QuietNode) -> None:
    await three_segments(node)
    node.restart()
    topic = node.topics.get("t")
    assert topic is not None
    partition = topic.partitions[0]
    assert search_time(partition.log, 350)() == (400, 4)
    append(partition, 500)
    assert search_time(partition.log, 450)() == (500, 5)
    assert search_time(partition.log, 150)() == (200, 2)
