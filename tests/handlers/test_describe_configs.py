"""DescribeConfigs: every setting, where it comes from, and what it means."""

import gc
import inspect
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.admin import log_levels
from kwire.config import SETTINGS, ConfigSource, Kind
from kwire.config.resources.group import GROUP_SETTINGS
from kwire.config.resources.topic import TOPIC_SETTINGS
from kwire.errors import ErrorCode
from kwire.wire.apis import DESCRIBE_CONFIGS
from kwire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.support.configs import BROKER, GROUP, HERE, METRICS, SET, TOPIC, described, edit, replace
from tests.support.configs import LOGGER as BROKER_LOGGER
from tests.support.node import NODE_ID, QuietNode, in_loop, received

# The first version with types and documentation.
TYPES_VERSION_MIN = 3

Synonyms = list[tuple[str, str | None, int]]


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


def synonyms(told: DescribeConfigsResourceResult) -> Synonyms:
    return [(one.name, one.value, one.source) for one in told.synonyms]


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
async def test_node_tells_every_setting_and_which_can_be_changed(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "num.partitions=4") as node:
        for version in DESCRIBE_CONFIGS.versions:
            told = await entries(node, version, resource(BROKER, HERE))
            assert set(SETTINGS) <= set(told)
            assert told["num.partitions"].value == "4"
            assert told["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
            assert told["message.max.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
            for name, one in told.items():
                assert one.read_only is (name not in SETTINGS or not SETTINGS[name].is_dynamic), name


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
        if version < TYPES_VERSION_MIN:
            assert {one.config_type for one in told.values()} == {0}
            continue
        assert told["retention.ms"].config_type == Kind.LONG
        assert told["cleanup.policy"].config_type == Kind.LIST
        assert told["retention.ms"].documentation is None
        told = await entries(node, version, asked, include_documentation=True)
        for name in ("retention.ms", "cleanup.policy"):
            assert told[name].documentation == TOPIC_SETTINGS[name].documentation != ""


# Value, source, type and synonyms of settings whose values come from every kind of source.
Facts = tuple[str | None, ConfigSource, Kind, Synonyms]
DEFAULT, STATIC = ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
OF_ALL_BROKERS, OF_TOPIC = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG
MESSAGE_BYTES: Synonyms = [("message.max.bytes", "2000", OF_ALL_BROKERS), ("message.max.bytes", "1048588", DEFAULT)]
RETENTION_HOURS: Synonyms = [("log.retention.hours", "2", STATIC), ("log.retention.hours", "168", DEFAULT)]
TOPIC_FACTS: dict[str, Facts] = {
    "cleanup.policy": ("delete", DEFAULT, Kind.LIST, [("log.cleanup.policy", "delete", DEFAULT)]),
    "compression.type": ("producer", DEFAULT, Kind.STRING, [("compression.type", "producer", DEFAULT)]),
    "max.message.bytes": ("2000", OF_ALL_BROKERS, Kind.INT, MESSAGE_BYTES),
    "min.cleanable.dirty.ratio": (
        "0.5",
        DEFAULT,
        Kind.DOUBLE,
        [("log.cleaner.min.cleanable.ratio", "0.5", DEFAULT)],
    ),
    "preallocate": ("false", DEFAULT, Kind.BOOLEAN, [("log.preallocate", "false", DEFAULT)]),
    "retention.ms": ("7200000", STATIC, Kind.LONG, RETENTION_HOURS),
    "segment.ms": ("7", OF_TOPIC, Kind.LONG, [("segment.ms", "7", OF_TOPIC), ("log.roll.hours", "168", DEFAULT)]),
}
BROKER_FACTS: dict[str, Facts] = {
    "log.retention.hours": ("2", STATIC, Kind.INT, RETENTION_HOURS),
    "log.retention.ms": (None, DEFAULT, Kind.LONG, []),
    "message.max.bytes": ("2000", OF_ALL_BROKERS, Kind.INT, MESSAGE_BYTES),
    "num.partitions": ("4", STATIC, Kind.INT, [("num.partitions", "4", STATIC), ("num.partitions", "1", DEFAULT)]),
}
ALL_BROKERS_FACTS: dict[str, Facts] = {
    "message.max.bytes": ("2000", OF_ALL_BROKERS, Kind.INT, MESSAGE_BYTES[:1]),
}


@in_loop
async def test_everything_at_once_is_told_with_source_type_synonyms_and_documentation(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "log.retention.hours=2", "num.partitions=4") as node:
        await node.create("t", 1, segment_ms="7")
        assert await edit(node, BROKER, "", (SET, "message.max.bytes", "2000")) == (0, None)
        for version in DESCRIBE_CONFIGS.versions:
            has_types = version >= TYPES_VERSION_MIN
            results = await describe(
                node,
                version,
                resource(TOPIC, "t"),
                resource(BROKER, HERE),
                resource(BROKER, ""),
                include_synonyms=True,
                include_documentation=True,
            )
            topic, here, all_brokers = ({one.name: one for one in result.configs} for result in results)
            assert list(topic) == list(TOPIC_SETTINGS)
            assert list(here) == sorted(here)
            assert set(here) >= set(SETTINGS)
            assert list(all_brokers) == list(ALL_BROKERS_FACTS)
            for told, settings, expected in (
                (topic, TOPIC_SETTINGS, TOPIC_FACTS),
                (here, SETTINGS, BROKER_FACTS),
                (all_brokers, SETTINGS, ALL_BROKERS_FACTS),
            ):
                for name, (value, source, kind, names) in expected.items():
                    one = told[name]
                    assert (one.value, one.config_source, synonyms(one)) == (value, source, names), name
                    assert one.config_type == (kind if has_types else 0), name
                for name, one in told.items():
                    assert one.config_source == (one.synonyms[0].source if one.synonyms else DEFAULT), name
                    if has_types:
                        assert (one.config_type, one.documentation) == (
                            settings[name].kind,
                            settings[name].description,
                        ), name
                        assert one.documentation


@in_loop
async def test_what_was_changed_for_all_brokers_is_all_that_is_known_of_them(node: QuietNode) -> None:
    for version in DESCRIBE_CONFIGS.versions:
        assert await entries(node, version, resource(BROKER, "")) == {}
    assert await edit(node, BROKER, "", (SET, "message.max.bytes", "2000"), (SET, "log.roll.ms", "9")) == (0, None)
    assert await edit(node, BROKER, HERE, (SET, "log.retention.ms", "5")) == (0, None)
    for version in DESCRIBE_CONFIGS.versions:
        told = await entries(node, version, resource(BROKER, ""), include_synonyms=True)
        assert {name: (one.value, one.config_source) for name, one in told.items()} == {
            "log.roll.ms": ("9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            "message.max.bytes": ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        }
        assert synonyms(told["log.roll.ms"]) == [("log.roll.ms", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]


@in_loop
async def test_strongest_source_of_a_setting_wins_and_all_are_told(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "log.retention.ms=40", "log.retention.hours=2") as node:
        await node.create("t")
        static = [
            ("log.retention.ms", "40", ConfigSource.STATIC_BROKER_CONFIG),
            ("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
            ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
        ]
        steps: list[tuple[int, str, str, str, ConfigSource]] = [
            (BROKER, "", "log.retention.ms", "30", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (BROKER, HERE, "log.retention.ms", "20", ConfigSource.DYNAMIC_BROKER_CONFIG),
            (TOPIC, "t", "retention.ms", "10", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ]
        expected = static
        for kind, name, setting, value, source in steps:
            assert await edit(node, kind, name, (SET, setting, value)) == (0, None)
            expected = [(setting, value, source), *expected]
            told = (await described(node, TOPIC, "t"))["retention.ms"]
            assert (told.value, told.config_source) == (value, source)
            assert synonyms(told) == expected
            if kind == BROKER:
                told = (await described(node, BROKER, HERE))["log.retention.ms"]
                assert (told.value, told.config_source) == (value, source)
                assert synonyms(told) == expected
        # A weaker name tells nothing of what the stronger ones say.
        assert synonyms((await described(node, BROKER, HERE))["log.retention.hours"]) == static[1:]


@in_loop
async def test_settings_of_a_group_come_from_the_broker_until_it_says_otherwise(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "group.consumer.session.timeout.ms=46000") as node:
        told = await described(node, GROUP, "g")
        assert list(told) == list(GROUP_SETTINGS)
        assert synonyms(told["consumer.session.timeout.ms"]) == [
            ("group.consumer.session.timeout.ms", "46000", ConfigSource.STATIC_BROKER_CONFIG),
            ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
        ]
        assert synonyms(told["share.isolation.level"]) == [
            ("share.isolation.level", "read_uncommitted", ConfigSource.DEFAULT_CONFIG)
        ]
        assert await edit(node, GROUP, "g", (SET, "consumer.session.timeout.ms", "50000")) == (0, None)
        one = (await described(node, GROUP, "g"))["consumer.session.timeout.ms"]
        assert (one.value, one.config_source, one.config_type) == ("50000", ConfigSource.GROUP_CONFIG, Kind.INT)
        assert synonyms(one)[0] == ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP_CONFIG)
        assert (await described(node, GROUP, "other"))["consumer.session.timeout.ms"].value == "46000"


@in_loop
async def test_settings_of_a_subscription_are_its_own_or_the_defaults(node: QuietNode) -> None:
    told = await described(node, METRICS, "s")
    assert {name: (one.value, one.config_source) for name, one in told.items()} == {
        "interval.ms": ("300000", ConfigSource.DEFAULT_CONFIG),
        "match": ("", ConfigSource.DEFAULT_CONFIG),
        "metrics": ("", ConfigSource.DEFAULT_CONFIG),
    }
    assert await edit(node, METRICS, "s", (SET, "metrics", "a,b")) == (0, None)
    one = (await described(node, METRICS, "s"))["metrics"]
    assert (one.value, one.config_source) == ("a,b", ConfigSource.CLIENT_METRICS_CONFIG)
    assert synonyms(one) == [("metrics", "a,b", ConfigSource.CLIENT_METRICS_CONFIG)]


@in_loop
async def test_levels_of_loggers_are_told(node: QuietNode) -> None:
    for version in DESCRIBE_CONFIGS.versions:
        told = await entries(node, version, resource(BROKER_LOGGER, HERE))
        assert set(log_levels.levels()) == set(told) > {"root", "kwire.broker"}
        assert told["root"].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        assert all(one.value in log_levels.LEVELS and not one.read_only for one in told.values())


@in_loop
async def test_what_is_not_here_is_refused_one_by_one(node: QuietNode) -> None:
    await node.create("t")
    for version in DESCRIBE_CONFIGS.versions:
        results = await describe(
            node,
            version,
            resource(TOPIC, "missing"),
            resource(TOPIC, "not a name"),
            resource(TOPIC, ""),
            resource(BROKER, str(NODE_ID + 1)),
            resource(BROKER, "x"),
            resource(BROKER_LOGGER, str(NODE_ID + 1)),
            resource(BROKER_LOGGER, ""),
            resource(METRICS, ""),
            resource(GROUP, ""),
            resource(0, ""),
            resource(3, "x"),
            resource(TOPIC, "t"),
        )
        assert [one.error_code for one in results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            *[ErrorCode.INVALID_TOPIC_EXCEPTION] * 2,
            *[ErrorCode.INVALID_REQUEST] * 8,
            ErrorCode.NONE,
        ]
        assert all(not one.configs for one in results[:-1])


@in_loop
async def test_many_resources_are_answered_in_turns_and_in_order(node: QuietNode) -> None:
    for index in range(40):
        await node.create(f"t{index}", 1, retention_ms=str(index))
    for version in DESCRIBE_CONFIGS.versions:
        asked = [resource(TOPIC, f"t{index}") for index in range(40)]
        answer = node.start(DescribeConfigsRequest(resources=asked, include_synonyms=True), version)
        assert inspect.isawaitable(answer)
        for index, one in enumerate((received(await answer, version)).results):
            told = {config.name: config.value for config in one.configs}
            assert (one.resource_name, told["retention.ms"]) == (f"t{index}", str(index))


@in_loop
async def test_asking_makes_no_topic_live(node: QuietNode) -> None:
    await node.create("t")
    gc.collect()
    before = node.topics.live_count
    await described(node, TOPIC, "t")
    assert node.topics.live_count == before


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, HERE), (BROKER, ""), (GROUP, "g"), (METRICS, "s")])
@in_loop
async def test_what_is_told_of_any_resource_can_be_written_back_to_it(node: QuietNode, kind: int, name: str) -> None:
    await node.create("t", 1, retention_ms="5")
    assert await edit(node, BROKER, "", (SET, "log.roll.ms", "7")) == (0, None)

    async def values() -> dict[str, str]:
        told = await described(node, kind, name)
        return {
            key: one.value
            for key, one in told.items()
            if one.value is not None and not one.read_only and key not in per_listener
        }

    # Kafka, too, shows these as changeable and changes them only by a name that begins with a listener's.
    per_listener = {key for key, setting in SETTINGS.items() if setting.is_per_listener} if kind == BROKER else set()
    before = await values()
    operations = [(SET, key, value) for key, value in before.items()]
    assert await edit(node, kind, name, *operations) == (0, None)
    assert await values() == before
    assert await replace(node, kind, name, dict(before)) == (0, None)
    assert await values() == before
    node.restart()
    assert await values() == before


@in_loop
async def test_resource_named_twice_is_answered_once(node: QuietNode) -> None:
    await node.create("t")
    asked = [resource(BROKER, HERE), resource(TOPIC, "t"), resource(GROUP, "t"), resource(TOPIC, "missing")]
    answer = await node.ask(DescribeConfigsRequest(resources=asked * 3), 4)
    told = [(one.resource_type, one.resource_name) for one in answer.results]
    assert told == [(BROKER, HERE), (TOPIC, "t"), (GROUP, "t"), (TOPIC, "missing")]


@in_loop
async def test_what_is_told_can_be_written_back(node: QuietNode) -> None:
    """Tools read the settings of one topic and give them to another."""
    await node.create("t", 1, retention_ms="5", cleanup_policy="compact,delete")
    told = await entries(node, 4, resource(TOPIC, "t"))
    copied = {name: one.value for name, one in told.items() if one.value is not None}
    await node.create("copy", 1, **copied)
    copy = await entries(node, 4, resource(TOPIC, "copy"))
    assert {name: one.value for name, one in copy.items()} == {name: one.value for name, one in told.items()}
    assert (copy["retention.ms"].value, copy["cleanup.policy"].value) == ("5", "compact,delete")
    assert {one.config_source for name, one in copy.items() if name in copied} == {OF_TOPIC}
