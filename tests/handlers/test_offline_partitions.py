"""What the APIs that touch a partition answer while the partition is offline; its neighbour is served."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

OFFLINE = [(0, ErrorCode.KAFKA_STORAGE_ERROR), (1, ErrorCode.NONE)]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[QuietNode]:
    """A node with two directories, for moves between them."""
    with QuietNode(tmp_path / "a", more_dirs=[tmp_path / "b"]) as node:
        yield node


async def lose_first(node: QuietNode) -> None:
    """Partition 0 of topic t has lost its folder, partition 1 has a record."""
    topic = await node.create("t", 2)
    for partition in topic.partitions:
        batch = make_batch(timestamp_ms=0)
        partition.append(batch, check_batch(batch))
    lost = log_of(topic.partitions[0]).directory
    node.close()
    shutil.rmtree(lost)
    node._starts += 1
    node._open()
    check = node.store.check(node.topics.catalogue.folder_ids(), [])
    check.update_folder_list(is_all_online=True)
    assert check.report.lost == ["t-0"]


def codes(partitions: list[Any]) -> list[tuple[int, ErrorCode]]:
    indexes = [one.partition if hasattr(one, "partition") else one.partition_index for one in partitions]
    return [(index, ErrorCode(one.error_code)) for index, one in zip(indexes, partitions, strict=True)]


@in_loop
async def test_apis_of_records_answer_a_storage_error(two: QuietNode) -> None:
    await lose_first(two)
    wanted = [DeleteRecordsPartition(partition_index=index, offset=0) for index in range(2)]
    deleted = await two.ask(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=1000), 2
    )
    assert codes(deleted.topics[0].partitions) == OFFLINE
    described = await two.ask(DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])]), 0)
    assert codes(described.topics[0].partitions) == OFFLINE
    epochs = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(2)]
    ends = await two.ask(
        OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=epochs)]), 4
    )
    assert codes(ends.topics[0].partitions) == OFFLINE


@in_loop
async def test_it_has_no_place_and_does_not_move(two: QuietNode) -> None:
    await lose_first(two)
    answer = await two.ask(DescribeLogDirsRequest(topics=None), 4)
    shown = [one.partition_index for result in answer.results for topic in result.topics for one in topic.partitions]
    assert shown == [1]
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0])]
    target = str(two.config.log.data_dirs[1])
    moved = await two.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=topics)]), 2)
    assert codes(moved.results[0].partitions) == OFFLINE[:1]


@in_loop
async def test_it_has_no_leader(node: QuietNode) -> None:
    await lose_first(node)
    metadata = await node.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    described = await node.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10), 0)
    for answer in (metadata, described):
        first, second = answer.topics[0].partitions
        assert (first.error_code, first.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert first.offline_replicas == first.replica_nodes == second.replica_nodes
        assert (second.error_code, second.offline_replicas) == (0, [])
        assert second.leader_id >= 0


@in_loop
async def test_its_topic_can_be_deleted_and_made_again(node: QuietNode) -> None:
    await lose_first(node)
    await node.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    assert node.topics.offline_partitions == {}
    topic = await node.create("t", 2)
    assert [partition.log_end_offset for partition in topic.partitions] == [0, 0]
