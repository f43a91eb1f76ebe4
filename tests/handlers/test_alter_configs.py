"""AlterConfigs: all settings of a resource at once, as Kafka's clients did before there were single changes."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import ALTER_CONFIGS
from kwire.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.support.configs import BROKER, GROUP, HERE, LOGGER, METRICS, TOPIC, described, replace
from tests.support.node import QuietNode, in_every_version, in_loop


def configs(node: QuietNode, name: str = "t") -> dict[str, str]:
    facts = node.topics.catalogue.find(name)
    assert facts is not None
    return dict(facts.configs)


@in_every_version(ALTER_CONFIGS)
@in_loop
async def test_what_is_not_named_goes_back_to_its_default(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 1, retention_ms="5", segment_ms="7")
    assert await replace(node, TOPIC, "t", {"segment.ms": "8"}, version=version) == (0, None)
    assert configs(node) == {"segment.ms": "8"}
    assert topic.partitions[0].settings.segment_ms == 8
    node.restart()
    assert configs(node) == {"segment.ms": "8"}
    assert await replace(node, TOPIC, "t", {}, version=version) == (0, None)
    assert configs(node) == {}


@in_every_version(ALTER_CONFIGS)
@in_loop
async def test_every_kind_of_resource_is_replaced_and_kept(node: QuietNode, version: int) -> None:
    steps: list[tuple[int, str, dict[str, str | None], dict[str, str | None]]] = [
        (BROKER, HERE, {"log.roll.ms": "5", "message.max.bytes": "6"}, {"message.max.bytes": "7"}),
        (BROKER, "", {"log.roll.ms": "5"}, {"log.retention.ms": "8"}),
        (GROUP, "g", {"share.auto.offset.reset": "earliest"}, {"share.isolation.level": "read_committed"}),
        (METRICS, "s", {"metrics": "a"}, {"interval.ms": "100"}),
    ]
    for kind, name, first, second in steps:
        assert await replace(node, kind, name, first, version=version) == (0, None)
        assert await replace(node, kind, name, second, version=version) == (0, None)
    node.restart()
    for kind, name, _, second in steps:
        told = await described(node, kind, name)
        assert all(told[setting].value == value for setting, value in second.items())
    assert node.configs.overrides(BROKER, HERE) == {"message.max.bytes": "7"}
    assert node.configs.overrides(BROKER, "") == {"log.retention.ms": "8"}
    assert node.services.config.values["log.roll.ms"].value is None


@in_every_version(ALTER_CONFIGS)
@in_loop
async def test_validation_changes_nothing(node: QuietNode, version: int) -> None:
    await node.create("t", 1, retention_ms="5")
    assert await replace(node, TOPIC, "t", {}, version=version, validate_only=True) == (0, None)
    assert await replace(node, BROKER, HERE, {"log.roll.ms": "5"}, version=version, validate_only=True) == (0, None)
    assert configs(node) == {"retention.ms": "5"}
    assert node.configs.names(BROKER) == []


@pytest.mark.parametrize(
    ("kind", "name", "given", "code"),
    [
        (TOPIC, "missing", {"retention.ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", {"no.such": "1"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        (BROKER, HERE, {"num.partitions": "2"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "2", {"message.max.bytes": "2"}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {"consumer.session.timeout.ms": "1"}, ErrorCode.INVALID_CONFIG),
        (METRICS, "s", {"interval.ms": "1"}, ErrorCode.INVALID_REQUEST),
        # Loggers came with the API for single changes.
        (LOGGER, HERE, {"root": "INFO"}, ErrorCode.INVALID_REQUEST),
        (1, "x", {}, ErrorCode.INVALID_REQUEST),
    ],
)
@in_loop
async def test_what_cannot_be_is_refused(
    node: QuietNode, kind: int, name: str, given: dict[str, str | None], code: ErrorCode
) -> None:
    await node.create("t", 1, retention_ms="5")
    for version in ALTER_CONFIGS.versions:
        assert (await replace(node, kind, name, given, version=version))[0] == code
    assert configs(node) == {"retention.ms": "5"}


@in_every_version(ALTER_CONFIGS)
@in_loop
async def test_resources_and_settings_that_come_twice_are_refused_and_others_are_not(
    node: QuietNode, version: int
) -> None:
    for name in ("twice", "once", "doubled"):
        await node.create(name)

    def resource(name: str, *values: str) -> AlterConfigsResource:
        pairs = [AlterableConfig(name="retention.ms", value=value) for value in values]
        return AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=pairs)

    asked = [resource("twice", "1"), resource("once", "2"), resource("twice", "3"), resource("doubled", "4", "5")]
    answer = await node.ask(AlterConfigsRequest(resources=asked, validate_only=False), version)
    assert [(one.resource_name, one.error_code) for one in answer.responses] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("doubled", ErrorCode.INVALID_REQUEST),
    ]
    assert [configs(node, name) for name in ("twice", "once", "doubled")] == [{}, {"retention.ms": "2"}, {}]
