"""Sizes by topic: those of closed logs are measured a few at a time, without opening a log."""

import asyncio
from pathlib import Path

import pytest

from kwire.broker.partition import Partition
from kwire.broker.topics import stored_sizes
from kwire.broker.topics.stored_sizes import StoredSizes
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop


def append(partition: Partition) -> int:
    batch = make_batch(timestamp_ms=0)
    size_bytes = len(batch)
    partition.append(batch, check_batch(batch))
    return size_bytes


def sizes_of(node: QuietNode) -> StoredSizes:
    return StoredSizes(node.topics, node.store, node.files)


@in_loop
async def test_each_round_measures_some_more_folders(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_sizes, "FOLDERS_PER_ROUND", 2)
    size_bytes = 0
    for number in range(5):
        size_bytes = append(await node.create_partition(f"t{number}"))
    node.restart()
    sizes = sizes_of(node)
    sums = []
    for _ in range(4):
        # Those who ask at the same time wait for the same round.
        await asyncio.gather(sizes.measure(), sizes.measure())
        by_topic, others = await sizes.by_topic(100)
        assert others == 0
        sums.append(sum(by_topic.values()))
    assert sums == [2 * size_bytes, 4 * size_bytes, 5 * size_bytes, 5 * size_bytes]
    assert not node.topics.open_partitions


@in_loop
async def test_log_that_is_opened_and_written_is_not_counted_twice(node: QuietNode) -> None:
    topic = await node.create("t", 3)
    for partition in topic.partitions[:2]:
        size_bytes = append(partition)
    del topic, partition
    node.restart()
    sizes = sizes_of(node)
    await sizes.measure()
    assert await sizes.by_topic(100) == ({"t": 2 * size_bytes}, 0)
    again = node.topics.get("t")
    assert again is not None
    append(again.partitions[0])
    append(again.partitions[2])
    assert await sizes.by_topic(100) == ({"t": 4 * size_bytes}, 0)
    # As one of many that are not told apart, it is the same sum.
    await node.create("u")
    assert await sizes.by_topic(0) == ({}, 4 * size_bytes)


@in_loop
async def test_topics_in_use_keep_their_series_among_many(node: QuietNode) -> None:
    sizes = sizes_of(node)
    parts = [await node.create_partition(f"t{number}") for number in range(5)]
    size_bytes = append(parts[3])
    assert await sizes.by_topic(2) == ({"t3": size_bytes}, 0)
    append(parts[1])
    append(parts[0])
    expected = {"t3": size_bytes, "t1": size_bytes}
    assert await sizes.by_topic(2) == (expected, size_bytes)
    gone = node.topics.get("t3")
    assert gone is not None
    await node.topics.delete(gone)
    assert await sizes.by_topic(2) == ({"t1": size_bytes}, size_bytes)
    assert await sizes.by_topic(2) == ({"t1": size_bytes, "t0": size_bytes}, 0)


@in_loop
async def test_folder_of_a_topic_deleted_while_it_is_measured_is_not_counted(node: QuietNode) -> None:
    append(await node.create_partition("t"))
    node.restart()
    sizes = sizes_of(node)
    topic = node.topics.get("t")
    assert topic is not None
    measuring = asyncio.ensure_future(sizes.measure())
    await asyncio.sleep(0)
    await node.topics.delete(topic)
    await measuring
    assert node.topics.stored_bytes == {}


@in_loop
async def test_a_folder_that_cannot_be_read_is_measured_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        size_bytes = append(await node.create_partition("t"))
        node.restart()
        sizes = sizes_of(node)
        files.fail_next("listdir")
        await sizes.measure()
        assert node.topics.stored_bytes == {}
        await sizes.measure()
        assert await sizes.by_topic(100) == ({"t": size_bytes}, 0)
