"""DescribeLogDirs: which partitions are in which directory, how large they are, and how full the volumes are."""

import os
from pathlib import Path

import pytest

from kwire.broker.admin import log_dirs
from kwire.broker.partition import Partition
from kwire.config import InvalidConfig, load
from kwire.handlers import describe_log_dirs
from kwire.wire.messages.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_every_version, in_loop
from tests.support.partition_log import log_of

KAFKA_STORAGE_ERROR = 56
LATEST = 5
# Before the time at which the node's clock stands.
THEN_MS = 1_600_000_000_000
ALL = DescribeLogDirsRequest(topics=None)


def append_to(partition: Partition, batch: memoryview | None = None) -> None:
    batch = make_batch(timestamp_ms=THEN_MS) if batch is None else batch
    partition.append(batch, check_batch(batch))


def only(topic: str, *partitions: int) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=list(partitions))])


def sizes(answer: DescribeLogDirsResponse) -> dict[tuple[str, str, int], int]:
    return {
        (result.log_dir, topic.name, partition.partition_index): partition.partition_size
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


@in_every_version(DESCRIBE_LOG_DIRS)
@in_loop
async def test_partitions_are_told_with_their_sizes(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    append_to(topic.partitions[1], make_batch(3, timestamp_ms=THEN_MS))
    answer = await node.ask(ALL, version)
    assert answer.throttle_time_ms == 0
    assert answer.error_code == 0
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (0, str(node.directory))
    size_bytes = log_of(topic.partitions[1]).size_bytes
    assert size_bytes > 0
    assert sizes(answer) == {(result.log_dir, "t", 0): 0, (result.log_dir, "t", 1): size_bytes}
    for partition in result.topics[0].partitions:
        assert (partition.offset_lag, partition.is_future_key) == (0, False)
    stats = os.statvfs(node.directory)
    assert result.total_bytes == (stats.f_blocks * stats.f_frsize if version >= 4 else -1)
    assert (0 < result.usable_bytes <= result.total_bytes) if version >= 4 else result.usable_bytes == -1
    assert result.is_cordoned is False


@in_loop
async def test_only_what_is_asked_for_and_exists_is_told(node: QuietNode) -> None:
    await node.create("t", 3)
    await node.create("u")
    answer = await node.ask(only("t", 2, 0, 2, 7, -1), LATEST)
    assert [key[1:] for key in sizes(answer)] == [("t", 0), ("t", 2)]
    assert sizes(await node.ask(only("missing", 0), LATEST)) == {}
    nothing = await node.ask(DescribeLogDirsRequest(topics=[]), LATEST)
    assert [(result.log_dir, result.topics) for result in nothing.results] == [(str(node.directory), [])]


@in_loop
async def test_sizes_of_logs_that_are_not_open_are_measured(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    append_to(topic.partitions[0], make_batch(5, timestamp_ms=THEN_MS))
    size_bytes = log_of(topic.partitions[0]).size_bytes
    del topic
    node.restart()
    assert not node.topics.open_partitions
    before = node.topics.stored_bytes.copy()
    assert before == {}
    answer = await node.ask(ALL, LATEST)
    assert sizes(answer) == {(str(node.directory), "t", 0): size_bytes, (str(node.directory), "t", 1): 0}
    assert not node.topics.open_partitions
    assert node.topics.stored_bytes == {"t-0": size_bytes}


@in_every_version(DESCRIBE_LOG_DIRS)
@in_loop
async def test_large_answers_are_the_same(node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        topic = await node.create(f"t{number}", 4)
        append_to(topic.partitions[number % 4])
    whole = await node.ask(ALL, version)
    monkeypatch.setattr(describe_log_dirs, "WEIGHT_PER_CHUNK", 3)
    monkeypatch.setattr(log_dirs, "PARTITIONS_PER_CHUNK", 3)
    monkeypatch.setattr(log_dirs, "FOLDERS_PER_JOB", 2)
    node.topics.stored_bytes.clear()
    in_portions = await node.ask(ALL, version)
    for answer in (whole, in_portions):
        for result in answer.results:
            result.usable_bytes = 0  # it changes all the time
    assert in_portions == whole


@in_loop
async def test_a_directory_that_is_offline_has_an_error_and_no_partitions(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("no directory")
    with QuietNode(tmp_path / "good", more_dirs=[bad]) as node:
        await node.create("t")
        good, offline = (await node.ask(ALL, LATEST)).results
        assert (good.log_dir, good.error_code) == (str(tmp_path / "good"), 0)
        assert [topic.name for topic in good.topics] == ["t"]
        assert (offline.log_dir, offline.error_code, offline.topics) == (str(bad), KAFKA_STORAGE_ERROR, [])
        assert (offline.total_bytes, offline.usable_bytes) == (-1, -1)


@in_loop
async def test_partitions_of_several_directories_are_told_where_they_will_be(tmp_path: Path) -> None:
    with QuietNode(tmp_path / "a", more_dirs=[tmp_path / "b"]) as node:
        topic = await node.create("t", 6)
        before = sizes(await node.ask(ALL, LATEST))
        assert len(before) == 6
        assert len({key[0] for key in before}) == 2
        for partition in topic.partitions:
            append_to(partition)
        assert set(sizes(await node.ask(ALL, LATEST))) == set(before)


@in_loop
async def test_cordoned_directories_say_so(tmp_path: Path) -> None:
    with QuietNode(tmp_path / "a", f"cordoned.log.dirs={tmp_path / 'b'}", more_dirs=[tmp_path / "b"]) as node:
        topic = await node.create("t", 4)
        for partition in topic.partitions:
            append_to(partition)
        first, second = (await node.ask(ALL, LATEST)).results
        assert (first.is_cordoned, second.is_cordoned) == (False, True)
        assert second.topics == []


@in_loop
async def test_all_directories_can_be_cordoned_and_only_those_there_are(tmp_path: Path) -> None:
    with QuietNode(tmp_path / "a", "cordoned.log.dirs=*", more_dirs=[tmp_path / "b"]) as node:
        assert [one.is_cordoned for one in (await node.ask(ALL, LATEST)).results] == [True, True]
        append_to(await node.create_partition("t"))  # what exists has to be somewhere
    with pytest.raises(InvalidConfig, match=r"cordoned\.log\.dirs.*must be one of log\.dirs"):
        load(data_dir=str(tmp_path / "a"), settings=[f"cordoned.log.dirs={tmp_path / 'c'}"])


@in_loop
async def test_a_folder_that_cannot_be_read_is_measured_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        topic = await node.create("t")
        append_to(topic.partitions[0])
        size_bytes = log_of(topic.partitions[0]).size_bytes
        del topic
        node.restart()
        files.fail_next("listdir")
        assert list(sizes(await node.ask(ALL, LATEST)).values()) == [0]
        assert list(sizes(await node.ask(ALL, LATEST)).values()) == [size_bytes]
