"""One leader check: every API that only the leader of a partition answers refuses when this node does not lead it."""

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop

LATEST = -1


def fetch() -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[asked])])


def list_offsets() -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])


def offset_for_leader_epoch() -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])


def delete_records() -> DeleteRecordsRequest:
    asked = DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=1000)


def produce() -> ProduceRequest:
    data = PartitionProduceData(index=0, records=make_batch(1, timestamp_ms=0))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def describe_producers() -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (fetch(), 11),
        (list_offsets(), 8),
        (offset_for_leader_epoch(), 4),
        (delete_records(), 2),
        (describe_producers(), 0),
        (produce(), 9),
    ],
    ids=lambda one: type(one).__name__,
)
@in_loop
async def test_a_partition_that_is_led_elsewhere_is_refused(node: QuietNode, request_: Any, version: int) -> None:
    topic = await node.create("t")
    assert await code_of_answer(node, request_, version) is ErrorCode.NONE
    topic.partitions[0].accepted_epochs = ()
    assert await code_of_answer(node, request_, version) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def code_of_answer(node: QuietNode, request: Any, version: int) -> ErrorCode:
    answer = await node.ask(request, version)
    if isinstance(request, ProduceRequest):
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)
    topics = answer.responses if isinstance(request, FetchRequest) else answer.topics
    return ErrorCode(topics[0].partitions[0].error_code)
