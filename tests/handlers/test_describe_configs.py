"""DescribeConfigs: every setting, where it comes from, and what it means."""

from pathlib import Path
from typing import Any

from kwire.config import SETTINGS, ConfigSource, Kind
from kwire.errors import ErrorCode
from kwire.topic_config import TOPIC_SETTINGS
from kwire.wire.messages import DESCRIBE_CONFIGS
from kwire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.support.node import NODE_ID, QuietNode, in_loop

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
HERE = str(NODE_ID)


def resource(kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)


async def describe(
    node: QuietNode, version: int, *resources: DescribeConfigsResource, **more: Any
) -> list[DescribeConfigsResult]:
    answer = await node.ask(DescribeConfigsRequest(resources=list(resources), **more), version)
    results: list[DescribeConfigsResult] = answer.results
    assert [(one.resource_type, one.resource_name) for one in results] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    for one in results:
        assert bool(one.error_code) == bool(one.error_message)
    return results


async def entries(
    node: QuietNode, version: int, asked: DescribeConfigsResource, **more: Any
) -> dict[str, DescribeConfigsResourceResult]:
    (one,) = await describe(node, version, asked, **more)
    assert one.error_code == ErrorCode.NONE
    return {config.name: config for config in one.configs}


@in_loop
async def test_topic_tells_every_setting_and_its_source(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "log.retention.hours=2", "broker.rack=left") as node:
        await node.create("t", 1, segment_ms="7")
        for version in DESCRIBE_CONFIGS.versions:
            told = await entries(node, version, resource(TOPIC, "t"))
            assert list(told) == list(TOPIC_SETTINGS)
            assert (told["segment.ms"].value, told["segment.ms"].config_source) == (
                "7",
                ConfigSource.DYNAMIC_TOPIC_CONFIG,
            )
            assert (told["retention.ms"].value, told["retention.ms"].config_source) == (
                str(2 * 60 * 60 * 1000),
                ConfigSource.STATIC_BROKER_CONFIG,
            )
            assert (told["max.message.bytes"].value, told["max.message.bytes"].config_source) == (
                "1048588",
                ConfigSource.DEFAULT_CONFIG,
            )
            assert not any(one.read_only or one.is_sensitive for one in told.values())


@in_loop
async def test_node_tells_every_setting_and_lets_none_be_changed(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "num.partitions=4") as node:
        for version in DESCRIBE_CONFIGS.versions:
            told = await entries(node, version, resource(BROKER, HERE))
            assert set(SETTINGS) <= set(told)
            assert told["num.partitions"].value == "4"
            assert told["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
            assert told["message.max.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
            assert all(one.read_only for one in told.values())


@in_loop
async def test_some_settings_can_be_picked(node: QuietNode) -> None:
    await node.create("t")
    for version in DESCRIBE_CONFIGS.versions:
        asked = resource(TOPIC, "t", ["segment.ms", "no.such", "cleanup.policy"])
        assert list(await entries(node, version, asked)) == ["cleanup.policy", "segment.ms"]
        assert list(await entries(node, version, resource(BROKER, HERE, ["node.id"]))) == ["node.id"]
        assert len(await entries(node, version, resource(TOPIC, "t", []))) == len(TOPIC_SETTINGS)


@in_loop
async def test_synonyms_come_when_asked_for(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "log.retention.hours=2") as node:
        await node.create("t", 1, retention_ms="5")
        for version in DESCRIBE_CONFIGS.versions:
            asked = resource(TOPIC, "t", ["retention.ms"])
            assert (await entries(node, version, asked))["retention.ms"].synonyms == []
            told = (await entries(node, version, asked, include_synonyms=True))["retention.ms"]
            assert [(one.name, one.value, one.source) for one in told.synonyms] == [
                ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
                ("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
                ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
            ]


@in_loop
async def test_types_and_documentation_come_with_version_3(node: QuietNode) -> None:
    await node.create("t")
    asked = resource(TOPIC, "t", ["retention.ms", "cleanup.policy"])
    for version in DESCRIBE_CONFIGS.versions:
        told = await entries(node, version, asked)
        if version < 3:
            continue
        assert told["retention.ms"].config_type == Kind.LONG
        assert told["cleanup.policy"].config_type == Kind.LIST
        assert told["retention.ms"].documentation is None
        told = await entries(node, version, asked, include_documentation=True)
        assert told["retention.ms"].documentation


@in_loop
async def test_everything_at_once_can_be_encoded(node: QuietNode) -> None:
    await node.create("t")
    for version in DESCRIBE_CONFIGS.versions:
        await describe(
            node,
            version,
            resource(TOPIC, "t"),
            resource(BROKER, HERE),
            resource(BROKER, ""),
            include_synonyms=True,
            include_documentation=True,
        )


@in_loop
async def test_cluster_has_no_dynamic_defaults(node: QuietNode) -> None:
    for version in DESCRIBE_CONFIGS.versions:
        assert await entries(node, version, resource(BROKER, "")) == {}


@in_loop
async def test_what_is_not_here_is_refused_one_by_one(node: QuietNode) -> None:
    await node.create("t")
    for version in DESCRIBE_CONFIGS.versions:
        results = await describe(
            node,
            version,
            resource(TOPIC, "missing"),
            resource(BROKER, str(NODE_ID + 1)),
            resource(BROKER, "x"),
            resource(BROKER_LOGGER, HERE),
            resource(GROUP, "g"),
            resource(0, ""),
            resource(TOPIC, "t"),
        )
        assert [one.error_code for one in results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            *[ErrorCode.INVALID_REQUEST] * 5,
            ErrorCode.NONE,
        ]
        assert all(not one.configs for one in results[:-1])


@in_loop
async def test_what_is_told_can_be_written_back(node: QuietNode) -> None:
    """Tools read the settings of one topic and give them to another."""
    await node.create("t")
    told = await entries(node, 4, resource(TOPIC, "t"))
    copied = {name: one.value for name, one in told.items() if one.value is not None}
    await node.create("copy", 1, **copied)
