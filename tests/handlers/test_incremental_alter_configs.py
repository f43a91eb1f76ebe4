"""IncrementalAlterConfigs: single settings of topics, changed durably or not at all."""

import asyncio
import errno
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from kwire.wire.messages import INCREMENTAL_ALTER_CONFIGS
from kwire.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.node import NODE_ID, QuietNode, in_every_version, in_loop

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
VERSIONS = list(INCREMENTAL_ALTER_CONFIGS.versions)

Operation = tuple[int, str, str | None]


def resource(name: str, *operations: Operation, kind: int = TOPIC) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(config_operation=operation, name=setting, value=value)
            for operation, setting, value in operations
        ],
    )


async def alter(
    node: QuietNode, version: int, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses: list[AlterConfigsResourceResponse] = (await node.ask(request, version)).responses
    assert [(one.resource_type, one.resource_name) for one in responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    for one in responses:
        assert bool(one.error_code) == bool(one.error_message)
    return responses


async def code_of(node: QuietNode, version: int, *operations: Operation) -> ErrorCode:
    (one,) = await alter(node, version, resource("t", *operations))
    return ErrorCode(one.error_code)


def configs(node: QuietNode, name: str = "t") -> dict[str, str]:
    topic = node.topics.get(name)
    assert topic is not None
    return dict(topic.configs)


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_settings_are_set_and_go_back_to_their_default(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 1, retention_ms="5")
    operations = (SET, "segment.ms", "7"), (SET, "retention.ms", "6")
    assert await code_of(node, version, *operations) is ErrorCode.NONE
    assert configs(node) == {"retention.ms": "6", "segment.ms": "7"}
    assert topic.partitions[0].settings.segment_ms == 7
    assert await code_of(node, version, (DELETE, "retention.ms", None), (DELETE, "flush.ms", None)) is ErrorCode.NONE
    assert configs(node) == {"segment.ms": "7"}
    node.restart()
    assert configs(node) == {"segment.ms": "7"}


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_lists_grow_and_shrink(node: QuietNode, version: int) -> None:
    await node.create("t")
    steps: list[tuple[Operation, str]] = [
        # The default is what is added to.
        ((APPEND, "cleanup.policy", "compact"), "delete,compact"),
        ((APPEND, "cleanup.policy", "compact"), "delete,compact"),
        ((SUBTRACT, "cleanup.policy", "delete"), "compact"),
        ((SUBTRACT, "cleanup.policy", "delete"), "compact"),
        ((APPEND, "cleanup.policy", " delete , compact"), "compact,delete"),
    ]
    for operation, expected in steps:
        assert await code_of(node, version, operation) is ErrorCode.NONE
        assert configs(node) == {"cleanup.policy": expected}


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_validation_changes_nothing(node: QuietNode, version: int) -> None:
    await node.create("t")
    good, bad = await alter(
        node,
        version,
        resource("t", (SET, "retention.ms", "1")),
        resource("missing", (SET, "retention.ms", "1")),
        validate_only=True,
    )
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (refused,) = await alter(node, version, resource("t", (SET, "retention.ms", "x")), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert configs(node) == {}


@in_loop
async def test_what_cannot_be_is_refused_as_a_whole(node: QuietNode) -> None:
    await node.create("t", 1, retention_ms="5")
    good: Operation = (SET, "segment.ms", "7")
    cases: dict[ErrorCode, list[tuple[Operation, ...]]] = {
        ErrorCode.INVALID_CONFIG: [
            (good, (SET, "no.such", "1")),
            (good, (SET, "retention.ms", "soon")),
            (good, (APPEND, "retention.ms", "1")),
            (good, (SUBTRACT, "no.such", "1")),
            (good, (APPEND, "cleanup.policy", "shred")),
            ((SET, "min.compaction.lag.ms", "9"), (SET, "max.compaction.lag.ms", "8")),
        ],
        ErrorCode.INVALID_REQUEST: [
            (good, good),
            (good, (SET, "retention.ms", None)),
            (good, (APPEND, "cleanup.policy", None)),
            (good, (4, "retention.ms", "1")),
            (good, (-1, "retention.ms", "1")),
        ],
    }
    for version in VERSIONS:
        for code, requests in cases.items():
            for operations in requests:
                assert await code_of(node, version, *operations) is code
    assert configs(node) == {"retention.ms": "5"}


@in_loop
async def test_only_topics_can_be_changed(node: QuietNode) -> None:
    await node.create("t")
    for version in VERSIONS:
        results = await alter(
            node,
            version,
            resource(str(NODE_ID), (SET, "num.partitions", "3"), kind=BROKER),
            resource("g", (SET, "x", "y"), kind=GROUP),
            resource("missing", (SET, "retention.ms", "1")),
            resource("t", (SET, "retention.ms", "1")),
        )
        assert [one.error_code for one in results] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_topic_that_comes_twice_is_refused_and_the_others_are_not(node: QuietNode, version: int) -> None:
    await node.create("twice")
    await node.create("once")
    change: Operation = (SET, "retention.ms", "1")
    results = await alter(node, version, *(resource(name, change) for name in ("twice", "once", "twice")))
    assert [one.error_code for one in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert (configs(node, "twice"), configs(node, "once")) == ({}, {"retention.ms": "1"})


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_two_who_change_at_the_same_time_do_not_undo_each_other(node: QuietNode, version: int) -> None:
    await node.create("t")
    codes = await asyncio.gather(
        code_of(node, version, (SET, "retention.ms", "1")), code_of(node, version, (SET, "segment.ms", "2"))
    )
    expected = {"retention.ms": "1"} if codes[0] is ErrorCode.NONE else {"segment.ms": "2"}
    assert sorted(codes) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert configs(node) == expected
    node.restart()
    assert configs(node) == expected


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_full_disk_leaves_the_topic_as_it_was(tmp_path: Path, version: int) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        await node.create("t")
        files.break_down("pwrite", errno.ENOSPC)
        assert await code_of(node, version, (SET, "retention.ms", "1")) is ErrorCode.KAFKA_STORAGE_ERROR
        assert configs(node) == {}


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_no_change_is_no_error(node: QuietNode, version: int) -> None:
    await node.create("t", 1, retention_ms="5")
    assert await code_of(node, version) is ErrorCode.NONE
    assert configs(node) == {"retention.ms": "5"}
    assert await alter(node, version) == []
