"""CreateTopics: each topic is judged on its own, and is durable before the answer."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.topics.names import PARTITIONS_MAX
from kwire.config import ConfigSource
from kwire.config.resources.topic import TOPIC_SETTINGS
from kwire.errors import ErrorCode
from kwire.wire.apis import CREATE_TOPICS
from kwire.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kwire.wire.types import ZERO_UUID
from tests.support.faulty_files import FaultyFiles
from tests.support.node import NODE_ID, QuietNode, in_every_version, in_loop

ENDS = [2, 7]
DEFAULT = -1


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
    )


async def create(
    node: QuietNode, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    results: list[CreatableTopicResult] = (await node.ask(request, version)).topics
    for one in results:
        assert bool(one.error_code) == bool(one.error_message)
    return results


async def refusal(node: QuietNode, version: int, asked: CreatableTopic) -> ErrorCode:
    """Why it cannot be created, which is also what validation says."""
    (checked,) = await create(node, version, asked, validate_only=True)
    (one,) = await create(node, version, asked)
    assert one.error_code == checked.error_code
    assert (one.name, one.topic_id) == (asked.name, ZERO_UUID)
    assert (one.num_partitions, one.replication_factor) == (-1, -1)
    assert len(node.topics) == 0
    return ErrorCode(one.error_code)


@in_every_version(CREATE_TOPICS)
@in_loop
async def test_topics_are_created_and_stay(node: QuietNode, version: int) -> None:
    results = await create(node, version, topic("a", 3, configs={"retention.ms": "5"}), topic("b"))
    assert [(one.name, one.error_code) for one in results] == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]
    node.restart()
    made = node.topics.get("a")
    assert made is not None
    assert len(made.partitions) == 3
    assert made.configs == {"retention.ms": "5"}
    first = results[0]
    assert first.topic_id == (made.topic_id if version >= 7 else ZERO_UUID)
    if version >= 5:
        assert (first.num_partitions, first.replication_factor) == (3, 1)
        assert first.configs is not None
        assert [config.name for config in first.configs] == sorted(TOPIC_SETTINGS)
        told = {config.name: config for config in first.configs}
        assert told["retention.ms"].value == "5"
        assert told["retention.ms"].config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert told["segment.ms"].config_source == ConfigSource.DEFAULT_CONFIG
        assert not any(config.read_only or config.is_sensitive for config in first.configs)


@in_every_version(CREATE_TOPICS)
@in_loop
async def test_validation_creates_nothing(node: QuietNode, version: int) -> None:
    good, bad = await create(node, version, topic("good", 4), topic("b/d"), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert good.topic_id == ZERO_UUID
    assert good.num_partitions == (4 if version >= 5 else -1)
    assert len(node.topics) == 0


@pytest.mark.parametrize("version", [4, 7])
@in_loop
async def test_minus_one_asks_for_the_defaults(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path, "num.partitions=6") as node:
        (one,) = await create(node, version, topic("t", DEFAULT, DEFAULT))
        assert one.error_code == ErrorCode.NONE
        made = node.topics.get("t")
        assert made is not None
        assert len(made.partitions) == 6


@in_loop
async def test_what_cannot_be_created_is_refused(node: QuietNode) -> None:
    cases = {
        ErrorCode.INVALID_TOPIC_EXCEPTION: [topic(""), topic(".."), topic("a/b"), topic("x" * 250)],
        ErrorCode.INVALID_PARTITIONS: [topic("t", 0), topic("t", -2), topic("t", PARTITIONS_MAX + 1)],
        ErrorCode.INVALID_REPLICATION_FACTOR: [topic("t", 1, 0), topic("t", 1, 2), topic("t", 1, -2)],
        ErrorCode.INVALID_CONFIG: [
            topic("t", configs={"no.such": "1"}),
            topic("t", configs={"retention.ms": "x"}),
            topic("t", configs={"retention.ms": None}),
            topic("t", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}),
        ],
    }
    for version in CREATE_TOPICS.versions:
        for code, asked in cases.items():
            for one in asked:
                assert await refusal(node, version, one) is code


@in_loop
async def test_assignment_must_name_this_node_for_every_partition(node: QuietNode) -> None:
    def assigned(assignments: dict[int, list[int]], partitions: int = DEFAULT, replicas: int = DEFAULT) -> Any:
        return topic("t", partitions, replicas, assignments=assignments)

    here = [NODE_ID]
    cases = {
        ErrorCode.INVALID_REQUEST: [assigned({0: here}, partitions=1), assigned({0: here}, replicas=1)],
        ErrorCode.INVALID_REPLICA_ASSIGNMENT: [
            assigned({0: [NODE_ID + 1]}),
            assigned({0: []}),
            assigned({0: [NODE_ID, NODE_ID]}),
            assigned({0: here, 1: [NODE_ID, NODE_ID + 1]}),
            assigned({1: here}),
            assigned({0: here, 2: here}),
            assigned({-1: here, 0: here}),
        ],
    }
    for version in CREATE_TOPICS.versions:
        for code, asked in cases.items():
            for one in asked:
                assert await refusal(node, version, one) is code
    (one,) = await create(node, 7, assigned({1: here, 0: here}))
    assert (one.error_code, one.num_partitions) == (ErrorCode.NONE, 2)


@in_loop
async def test_partition_given_twice_is_refused(node: QuietNode) -> None:
    asked = topic("t", DEFAULT, DEFAULT, assignments={0: [NODE_ID]})
    asked.assignments *= 2
    for version in CREATE_TOPICS.versions:
        assert await refusal(node, version, asked) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_existing_names_and_their_looks_are_taken(node: QuietNode, version: int) -> None:
    await node.create("a.b")
    results = await create(node, version, topic("a.b"), topic("a_b"), topic("new"))
    assert [one.error_code for one in results] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_name_that_comes_twice_is_refused_and_the_others_are_not(node: QuietNode, version: int) -> None:
    results = await create(node, version, topic("twice"), topic("once"), topic("twice", 2))
    assert [(one.name, one.error_code) for one in results] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    ]
    assert [one.name for one in node.topics] == ["once"]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_names_that_look_the_same_are_not_both_created(node: QuietNode, version: int) -> None:
    results = await create(node, version, topic("a.b"), topic("a_b"), topic("c"))
    assert [one.error_code for one in results] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert sorted(one.name for one in node.topics) == ["a.b", "c"]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_of_two_who_want_the_same_topic_one_gets_it(node: QuietNode, version: int) -> None:
    first, second = await asyncio.gather(
        create(node, version, topic("t"), topic("first")), create(node, version, topic("t"), topic("second"))
    )
    assert sorted([first[0].error_code, second[0].error_code]) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert (first[1].error_code, second[1].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert sorted(one.name for one in node.topics) == ["first", "second", "t"]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_full_disk_is_told_per_topic(tmp_path: Path, version: int) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        files.break_down("pwrite", errno.ENOSPC)
        results = await create(node, version, topic("a"), topic("b"))
        assert [one.error_code for one in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert len(node.topics) == 0


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_nothing_asked_nothing_answered(node: QuietNode, version: int) -> None:
    assert await create(node, version) == []


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_who_creates_a_topic_that_exists_is_told_so_whatever_else_is_wrong(node: QuietNode, version: int) -> None:
    await node.create("t")
    for asked in (
        topic("t", 0),
        topic("t", 1, 3),
        topic("t", configs={"no.such": "1"}),
        topic("t", configs={"retention.ms": None}),
        topic("t", DEFAULT, DEFAULT, assignments={0: [NODE_ID + 1]}),
    ):
        (one,) = await create(node, version, asked)
        assert one.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_the_first_thing_that_is_wrong_is_told(node: QuietNode, version: int) -> None:
    cases = {
        ErrorCode.INVALID_TOPIC_EXCEPTION: topic("b/d", 0, 0, configs={"no.such": "1"}),
        ErrorCode.INVALID_CONFIG: topic("t", 0, 0, configs={"no.such": "1"}),
        ErrorCode.INVALID_REPLICATION_FACTOR: topic("t", 0, 0),
        ErrorCode.INVALID_PARTITIONS: topic("t", 0, 3),
    }
    for code, asked in cases.items():
        assert await refusal(node, version, asked) is code


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_the_catalogues_own_name_is_not_a_topic(node: QuietNode, version: int) -> None:
    assert await refusal(node, version, topic("__cluster_metadata")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_all_settings_without_a_value_are_named(node: QuietNode, version: int) -> None:
    asked = topic("t", configs={"retention.ms": None, "segment.ms": "x", "flush.ms": None})
    (one,) = await create(node, version, asked)
    assert one.error_code == ErrorCode.INVALID_CONFIG
    assert one.error_message is not None
    assert "retention.ms, flush.ms" in one.error_message


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_more_partitions_than_there_can_be_are_refused_as_assignments_too(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.broker.topics.names.PARTITIONS_MAX", 3)
    asked = topic("t", DEFAULT, DEFAULT, assignments={index: [NODE_ID] for index in range(4)})
    assert await refusal(node, version, asked) is ErrorCode.INVALID_PARTITIONS
