"""AlterReplicaLogDirs: partitions move between directories, each judged on its own, and stay there after a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode
from kwire.wire.messages.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_every_version, in_loop
from tests.support.partition_log import log_of

LATEST = 2
# Before the time at which the node's clock stands.
THEN_MS = 1_600_000_000_000


@pytest.fixture
def two(tmp_path: Path) -> Iterator[QuietNode]:
    """A node with the directories a and b; whatever is new goes to a."""
    with QuietNode(tmp_path / "a", more_dirs=[tmp_path / "b"]) as node:
        yield node


def to(path: Path | str, **partitions: list[int]) -> AlterReplicaLogDir:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in partitions.items()]
    return AlterReplicaLogDir(path=str(path), topics=topics)


async def ask(node: QuietNode, *dirs: AlterReplicaLogDir, version: int = LATEST) -> dict[tuple[str, int], int]:
    answer = await node.ask(AlterReplicaLogDirsRequest(dirs=list(dirs)), version)
    assert answer.throttle_time_ms == 0
    codes = [
        ((topic.topic_name, one.partition_index), one.error_code)
        for topic in answer.results
        for one in topic.partitions
    ]
    assert len(dict(codes)) == len(codes)
    return dict(codes)


def fill(partition: Partition, count: int = 3) -> None:
    for _ in range(count):
        batch = make_batch(timestamp_ms=THEN_MS)
        partition.append(batch, check_batch(batch))


def other_dir(node: QuietNode, partition: Partition) -> Path:
    here = Path(log_of(partition).directory).parent
    return next(path for path in node.config.log.data_dirs if path != here)


@in_every_version(ALTER_REPLICA_LOG_DIRS)
@in_loop
async def test_a_partition_moves_and_stays_there(two: QuietNode, version: int) -> None:
    partition = await two.create_partition("t", file_delete_delay_ms="0")
    fill(partition)
    there = other_dir(two, partition)
    assert await ask(two, to(there, t=[0]), version=version) == {("t", 0): ErrorCode.NONE}
    await two.relocations.idle()
    assert log_of(partition).directory == str(there / "t-0")
    assert partition.high_watermark == 3
    fill(partition)
    two.restart()
    topic = two.topics.get("t")
    assert topic is not None
    assert log_of(topic.partitions[0]).directory == str(there / "t-0")
    assert topic.partitions[0].log_end_offset == 6
    # It is asked to be where it is.
    assert await ask(two, to(there, t=[0]), version=version) == {("t", 0): ErrorCode.NONE}
    assert two.relocations.moving_count == 0


@in_loop
async def test_each_partition_is_judged_on_its_own(two: QuietNode, tmp_path: Path) -> None:
    topic = await two.create("t", 2)
    fill(topic.partitions[0])
    there = other_dir(two, topic.partitions[0])
    codes = await ask(two, to(there, t=[0, 2, -1], missing=[0]), to(tmp_path / "nowhere", t=[1], missing=[1]))
    assert codes == {
        ("t", 0): ErrorCode.NONE,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND,
        ("missing", 1): ErrorCode.LOG_DIR_NOT_FOUND,
    }
    await two.relocations.idle()
    assert await ask(two) == {}


@in_loop
async def test_the_directory_that_is_named_last_counts(two: QuietNode) -> None:
    partition = await two.create_partition("t")
    fill(partition)
    here, there = Path(log_of(partition).directory).parent, other_dir(two, partition)
    assert await ask(two, to(there, t=[0]), to(here, t=[0, 0])) == {("t", 0): ErrorCode.NONE}
    assert two.relocations.moving_count == 0
    assert log_of(partition).directory == str(here / "t-0")


@in_loop
async def test_a_partition_without_records_gets_its_place(two: QuietNode) -> None:
    partition = await two.create_partition("t")
    there = other_dir(two, partition)  # which opens it
    assert await ask(two, to(there, t=[0])) == {("t", 0): ErrorCode.NONE}
    assert log_of(partition).directory == str(there / "t-0")
    two.restart()
    topic = two.topics.get("t")
    assert topic is not None
    fill(topic.partitions[0])
    assert log_of(topic.partitions[0]).directory == str(there / "t-0")
    # And moves on as any other.
    assert await ask(two, to(other_dir(two, topic.partitions[0]), t=[0])) == {("t", 0): ErrorCode.NONE}
    await two.relocations.idle()
    assert log_of(topic.partitions[0]).directory != str(there / "t-0")
    assert topic.partitions[0].log_end_offset == 3


@in_loop
async def test_a_move_is_shown_as_a_future_replica_until_it_is_done(two: QuietNode) -> None:
    partition = await two.create_partition("t")
    fill(partition)
    there = other_dir(two, partition)
    two.relocations.bytes_per_second_max = 1  # it will not get far
    for _ in range(3):
        batch = make_batch(timestamp_ms=THEN_MS, value=bytes(500_000))
        partition.append(batch, check_batch(batch))
    await ask(two, to(there, t=[0]))
    answer = await two.ask(DescribeLogDirsRequest(topics=None), 5)
    shown = {
        (result.log_dir, one.is_future_key): (one.partition_size, one.offset_lag)
        for result in answer.results
        for topic in result.topics
        for one in topic.partitions
    }
    here = str(Path(log_of(partition).directory).parent)
    assert set(shown) == {(here, False), (str(there), True)}
    assert shown[here, False] == (log_of(partition).size_bytes, 0)
    size_bytes, lag = shown[str(there), True]
    assert 0 <= size_bytes <= log_of(partition).size_bytes
    assert 0 <= lag <= 6
    # Told to stay, it leaves nothing behind.
    assert await ask(two, to(here, t=[0])) == {("t", 0): ErrorCode.NONE}
    assert two.relocations.moving_count == 0
    assert not [path for path in there.iterdir() if path.name.startswith("t-0")]


@in_loop
async def test_nothing_moves_to_or_beside_an_offline_directory(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("no directory")
    with QuietNode(tmp_path / "a", more_dirs=[tmp_path / "b", bad]) as node:
        partition = await node.create_partition("t")
        fill(partition)
        here = Path(log_of(partition).directory).parent
        there = tmp_path / ("b" if here.name == "a" else "a")
        for path in (bad, there):
            assert await ask(node, to(path, t=[0])) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        # Where it is it may stay.
        assert await ask(node, to(here, t=[0])) == {("t", 0): ErrorCode.NONE}


@in_loop
async def test_nothing_moves_to_a_cordoned_directory(tmp_path: Path) -> None:
    with QuietNode(tmp_path / "a", f"cordoned.log.dirs={tmp_path / 'b'}", more_dirs=[tmp_path / "b"]) as node:
        fill(await node.create_partition("t"))
        codes = await ask(node, to(tmp_path / "b", t=[0]))
        assert codes == {("t", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT}
