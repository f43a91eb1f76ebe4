"""DescribeQuorum: a quorum of one."""

import inspect
from pathlib import Path

import pytest

from kwire.broker.admin.metadata_log import METADATA_TOPIC
from kwire.broker.chunked_answers import PARTITIONS_PER_CHUNK
from kwire.errors import ErrorCode
from kwire.wire.apis import DESCRIBE_QUORUM
from kwire.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, QuorumPartitionData, TopicData
from kwire.wire.types import ZERO_UUID
from tests.support.node import (
    DIRECTORY_ID,
    NODE_ID,
    FakePeer,
    QuietNode,
    in_every_version,
    in_loop,
    received,
    running_node,
)


def request(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=index) for index in indexes])
            for name, indexes in topics
        ]
    )


async def described(node: QuietNode, version: int) -> QuorumPartitionData:
    answer = await node.ask(request((METADATA_TOPIC, [0])), version)
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index, partition.error_code) == (METADATA_TOPIC, 0, ErrorCode.NONE)
    found: QuorumPartitionData = partition
    return found


@in_every_version(DESCRIBE_QUORUM)
@in_loop
async def test_this_node_leads_and_is_the_only_voter(node: QuietNode, version: int) -> None:
    before = await described(node, version)
    await node.create("t")
    node.restart()
    now = await described(node, version)
    assert (now.leader_id, now.leader_epoch, now.observers) == (NODE_ID, 1, [])
    assert now.high_watermark == before.high_watermark + 1 == node.metastore.revision
    (voter,) = now.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, now.high_watermark)
    time_ms = node.clock.now_ms() if version >= 1 else -1
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (time_ms, time_ms)
    assert voter.replica_directory_id == (DIRECTORY_ID if version >= 2 else ZERO_UUID)


@in_loop
async def test_listener_of_the_voter_is_the_one_the_client_knows(tmp_path: Path) -> None:
    host, port = FakePeer.endpoint
    settings = (
        f"listeners=front://127.0.0.1:9192,BACK://127.0.0.1:{port}",
        "listener.security.protocol.map=front:PLAINTEXT,BACK:PLAINTEXT",
    )
    with QuietNode(tmp_path, *settings) as node:
        answer = await node.ask(request((METADATA_TOPIC, [0])), 2)
        (voter,) = answer.nodes
        (listener,) = voter.listeners
        assert (voter.node_id, listener.name, listener.host, listener.port) == (NODE_ID, "BACK", host, port)
    with QuietNode(tmp_path, settings[0].replace(str(port), "9292"), settings[1]) as node:
        answer = await node.ask(request((METADATA_TOPIC, [0])), 2)
        assert answer.nodes[0].listeners[0].name == "FRONT"


@in_every_version(DESCRIBE_QUORUM)
@in_loop
async def test_nothing_else_has_a_quorum(node: QuietNode, version: int) -> None:
    await node.create("t")
    cases: list[list[tuple[str, list[int]]]] = [
        [("t", [0])],
        [(METADATA_TOPIC, [1])],
        [(METADATA_TOPIC, [0, 1])],
        [(METADATA_TOPIC, [0]), ("t", [0])],
        [(METADATA_TOPIC, [0]), (METADATA_TOPIC, [0])],
        [(METADATA_TOPIC, [])],
        [],
    ]
    for asked in cases:
        answer = await node.ask(request(*asked), version)
        assert (answer.error_code, answer.nodes) == (ErrorCode.NONE, [])
        assert [
            (topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in answer.topics
        ] == asked
        for topic in answer.topics:
            for one in topic.partitions:
                assert (one.error_code, one.leader_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
                assert one.error_message or version < 2


@in_every_version(DESCRIBE_QUORUM)
@in_loop
async def test_many_topics_are_refused_in_turns(node: QuietNode, version: int) -> None:
    asked: list[tuple[str, list[int]]] = [(f"missing-{number}", [0]) for number in range(700)]
    waiting = node.start(request(*asked), version)
    assert inspect.isawaitable(waiting)
    answer = received(await waiting, version)
    assert [topic.topic_name for topic in answer.topics] == [name for name, _ in asked]
    assert {topic.partitions[0].error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@in_loop
async def test_many_partitions_of_one_topic_are_refused_in_portions(node: QuietNode) -> None:
    count = 2 * PARTITIONS_PER_CHUNK + 1
    answer = await node.ask(request((METADATA_TOPIC, list(range(count)))), 2)
    assert [topic.topic_name for topic in answer.topics] == [METADATA_TOPIC] * 3
    assert [one.partition_index for topic in answer.topics for one in topic.partitions] == list(range(count))


@pytest.mark.timeout(60)
@in_loop
async def test_directory_and_features_stay_the_same_from_start_to_start(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        async with running_node(tmp_path) as node:
            services = node._shared.services
            found.append((services.metadata_log.directory_id, services.features.finalized))
    assert found[0] == found[1]
    assert found[0][0] != ZERO_UUID
    assert found[0][1].epoch > 0
