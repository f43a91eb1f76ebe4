"""AlterPartitionReassignments: a replica stays where it is."""

import inspect

from kwire.broker.chunked_answers import PARTITIONS_PER_CHUNK
from kwire.errors import ErrorCode
from kwire.wire.apis import ALTER_PARTITION_REASSIGNMENTS
from kwire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.node import NODE_ID, QuietNode, in_every_version, in_loop, received

OTHER = NODE_ID + 1
MANY = 700
Targets = list[tuple[int, list[int] | None]]


def request(topics: list[tuple[str, Targets]], *, may_change_factor: bool = True) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=ids) for index, ids in targets],
            )
            for name, targets in topics
        ],
    )


async def alter(node: QuietNode, version: int, topics: list[tuple[str, Targets]]) -> list[tuple[str, int, int]]:
    answer = await node.ask(request(topics), version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    results = []
    for topic in answer.responses:
        for one in topic.partitions:
            assert bool(one.error_code) == bool(one.error_message)
            results.append((topic.name, one.partition_index, one.error_code))
    return results


@in_every_version(ALTER_PARTITION_REASSIGNMENTS)
@in_loop
async def test_target_where_the_replica_is_already_is_accepted(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    assert await alter(node, version, [("t", [(1, [NODE_ID]), (0, [NODE_ID])])]) == [
        ("t", 1, ErrorCode.NONE),
        ("t", 0, ErrorCode.NONE),
    ]
    assert await alter(node, version, []) == []
    (topic,) = (await node.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics
    assert [one.replica_nodes for one in topic.partitions] == [[NODE_ID], [NODE_ID]]


@in_every_version(ALTER_PARTITION_REASSIGNMENTS)
@in_loop
async def test_no_other_target_is_possible(node: QuietNode, version: int) -> None:
    await node.create("t")
    targets = [[OTHER], [NODE_ID, OTHER], [OTHER, NODE_ID], [NODE_ID, NODE_ID], [], [-1]]
    for replicas in targets:
        assert await alter(node, version, [("t", [(0, replicas)])]) == [("t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]


@in_every_version(ALTER_PARTITION_REASSIGNMENTS)
@in_loop
async def test_there_is_nothing_to_cancel(node: QuietNode, version: int) -> None:
    await node.create("t")
    assert await alter(node, version, [("t", [(0, None)])]) == [("t", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]


@in_every_version(ALTER_PARTITION_REASSIGNMENTS)
@in_loop
async def test_every_partition_is_judged_on_its_own(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    here: list[int] | None = [NODE_ID]
    asked: list[tuple[str, Targets]] = [
        ("missing", [(0, here), (1, None)]),
        ("t", [(0, here), (2, here), (-1, None), (1, [OTHER]), (0, None)]),
        ("t", [(0, here)]),
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(node, version, asked) == [
        ("missing", 0, unknown),
        ("missing", 1, unknown),
        ("t", 0, ErrorCode.NONE),
        ("t", 2, unknown),
        ("t", -1, unknown),
        ("t", 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, ErrorCode.NONE),
    ]


@in_every_version(ALTER_PARTITION_REASSIGNMENTS)
@in_loop
async def test_caller_is_told_again_whether_the_factor_may_change(node: QuietNode, version: int) -> None:
    for may_change in (True, False) if version else (True,):
        answer = await node.ask(request([], may_change_factor=may_change), version)
        assert answer.allow_replication_factor_change == may_change


@in_every_version(ALTER_PARTITION_REASSIGNMENTS)
@in_loop
async def test_many_topics_are_answered_in_turns(node: QuietNode, version: int) -> None:
    await node.create("t")
    asked: list[tuple[str, Targets]] = [("t", [(0, [NODE_ID])])] * MANY
    waiting = node.start(request(asked), version)
    assert inspect.isawaitable(waiting)
    answer = received(await waiting, version)
    assert [topic.partitions[0].error_code for topic in answer.responses] == [ErrorCode.NONE] * MANY


@in_loop
async def test_many_partitions_of_one_topic_are_answered_in_portions(node: QuietNode) -> None:
    await node.create("t")
    targets: Targets = [(index, [NODE_ID]) for index in range(2 * PARTITIONS_PER_CHUNK + 1)]
    answer = await node.ask(request([("t", targets)]), 1)
    assert [topic.name for topic in answer.responses] == ["t"] * 3
    told = [one.partition_index for topic in answer.responses for one in topic.partitions]
    assert told == [index for index, _ in targets]
