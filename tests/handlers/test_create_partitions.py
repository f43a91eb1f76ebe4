"""CreatePartitions: a topic grows, and never shrinks."""

import asyncio
import errno
from pathlib import Path

import pytest

from kwire.broker.topics.names import PARTITIONS_MAX
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.errors import ErrorCode
from kwire.wire.apis import CREATE_PARTITIONS
from kwire.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.node import NODE_ID, QuietNode, in_every_version, in_loop

ENDS = [0, 3]


def topic(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=one) for one in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


async def widen(
    node: QuietNode, version: int, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    results: list[CreatePartitionsTopicResult] = (await node.ask(request, version)).results
    assert [one.name for one in results] == list(dict.fromkeys(one.name for one in topics))
    for one in results:
        assert bool(one.error_code) == bool(one.error_message)
    return results


def counts(node: QuietNode) -> dict[str, int]:
    return {topic.name: len(topic.partitions) for topic in node.topics}


@in_every_version(CREATE_PARTITIONS)
@in_loop
async def test_topic_grows_to_the_total_asked_for(node: QuietNode, version: int) -> None:
    await node.create("a")
    await node.create("b", 2)
    results = await widen(node, version, topic("a", 4), topic("b", 3, [[NODE_ID]]))
    assert [one.error_code for one in results] == [ErrorCode.NONE, ErrorCode.NONE]
    assert counts(node) == {"a": 4, "b": 3}
    node.restart()
    assert counts(node) == {"a": 4, "b": 3}


@in_every_version(CREATE_PARTITIONS)
@in_loop
async def test_validation_changes_nothing(node: QuietNode, version: int) -> None:
    await node.create("t")
    good, bad = await widen(node, version, topic("t", 4), topic("missing", 2), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert counts(node) == {"t": 1}


@in_loop
async def test_what_cannot_be_is_refused(node: QuietNode) -> None:
    await node.create("t", 3)
    await node.topics.offsets_topic()
    before = counts(node)
    here = [NODE_ID]
    cases = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: [topic("missing", 2)],
        ErrorCode.INVALID_PARTITIONS: [
            topic("t", 3),
            topic("t", 2),
            topic("t", 0),
            topic("t", -1),
            topic("t", PARTITIONS_MAX + 1),
            topic(OFFSETS_TOPIC, 100),
        ],
        ErrorCode.INVALID_REPLICA_ASSIGNMENT: [
            topic("t", 5, []),
            topic("t", 5, [here]),
            topic("t", 5, [here, here, here]),
            topic("t", 4, [[NODE_ID + 1]]),
            topic("t", 4, [[NODE_ID, NODE_ID + 1]]),
            topic("t", 4, [[]]),
        ],
    }
    for version in CREATE_PARTITIONS.versions:
        for code, asked in cases.items():
            for one in asked:
                for validate_only in (True, False):
                    (result,) = await widen(node, version, one, validate_only=validate_only)
                    assert result.error_code == code
    assert counts(node) == before


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_topic_that_comes_twice_is_refused_and_the_others_are_not(node: QuietNode, version: int) -> None:
    await node.create("twice")
    await node.create("once")
    results = await widen(node, version, topic("twice", 2), topic("once", 2), topic("twice", 3))
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert counts(node) == {"twice": 1, "once": 2}


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_two_who_widen_at_the_same_time_do_not_shrink_it(node: QuietNode, version: int) -> None:
    await node.create("t")
    results = await asyncio.gather(widen(node, version, topic("t", 5)), widen(node, version, topic("t", 3)))
    assert sorted(result[0].error_code for result in results) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert counts(node) == {"t": 5}
    node.restart()
    assert counts(node) == {"t": 5}


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_full_disk_leaves_the_topic_as_it_was(tmp_path: Path, version: int) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        await node.create("t")
        files.break_down("pwrite", errno.ENOSPC)
        (one,) = await widen(node, version, topic("t", 2))
        assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert counts(node) == {"t": 1}
