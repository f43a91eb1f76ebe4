"""The resources that have settings (brokers, topics, groups): their settings are read and changed here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.cli.framework.errors import UsageError
from kwire.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kwire.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, GROUP = "topic", "broker", "group"
TYPES = {TOPIC: 2, BROKER: 4, GROUP: 32}
METAVAR = "RESOURCE"
HELP = "topic=NAME, broker=ID, group=NAME, or broker for the defaults of all brokers"
SET, DELETE, APPEND, SUBTRACT = range(4)
# The highest number of resources in one request; each answer has all settings of each of them.
RESOURCES_PER_REQUEST = 100

DEFAULT_CONFIG = 5
DEFAULT_SOURCE = "default"
# Kafka's numbers for the sources of values.
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker's file",
    DEFAULT_CONFIG: DEFAULT_SOURCE,
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_KINDS = ("-", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


class Resource(NamedTuple):
    """A topic, a broker, a group, or all brokers (the name is empty then)."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}={self.name}" if self.name else self.type


class Change(NamedTuple):
    """A change of one setting. `value` is None for DELETE."""

    operation: int
    name: str
    value: str | None = None


def parse_resource(text: str) -> Resource:
    """Return the resource that a text names. Raises UsageError."""
    kind, equals, name = text.partition("=")
    is_all_brokers = kind == BROKER and not equals
    if kind not in TYPES or not (name or is_all_brokers):
        raise UsageError(f"{METAVAR} is {HELP}, not {text!r}")
    if kind == BROKER and equals and not (name.isascii() and name.isdecimal()):
        raise UsageError(f"the id of a broker is a number, not {name!r}")
    return Resource(kind, name)


def settings_of(
    client: KafkaClient, resource: Resource, *, with_documentation: bool = False
) -> list[DescribeConfigsResourceResult]:
    """Return all settings of a resource, sorted by name. Raises Refused."""
    ((_, settings),) = settings_of_many(client, [resource], with_documentation=with_documentation)
    return settings


def settings_of_many(
    client: KafkaClient, resources: Sequence[Resource], *, with_documentation: bool = False
) -> Iterable[tuple[Resource, list[DescribeConfigsResourceResult]]]:
    """Yield resources with their settings. Raises Refused. Brokers are asked one by one, because only they know."""
    brokers = [one for one in resources if one.type == BROKER]
    others = [one for one in resources if one.type != BROKER]
    chunks = [[one] for one in brokers]
    chunks += [others[at : at + RESOURCES_PER_REQUEST] for at in range(0, len(others), RESOURCES_PER_REQUEST)]
    for chunk in chunks:
        asked = [
            DescribeConfigsResource(resource_type=TYPES[one.type], resource_name=one.name, configuration_keys=None)
            for one in chunk
        ]
        request = DescribeConfigsRequest(
            resources=asked, include_synonyms=True, include_documentation=with_documentation
        )
        for found in _node_of(client, chunk[0]).request(DESCRIBE_CONFIGS, request).results:
            resource = _matching(chunk, found.resource_type, found.resource_name)
            check(str(resource), found.error_code, found.error_message)
            yield resource, sorted(found.configs, key=lambda one: one.name)


def change_settings(
    client: KafkaClient, changes: Mapping[Resource, Sequence[Change]], *, is_checked_only: bool = False
) -> dict[Resource, tuple[int, str | None]]:
    """Change settings. Return the error code and message of each resource; the code is 0 if its changes were made."""
    outcomes: dict[Resource, tuple[int, str | None]] = {}
    brokers = [[one] for one in changes if one.type == BROKER]
    for chunk in [*brokers, [one for one in changes if one.type != BROKER]]:
        if not chunk:
            continue
        asked = [
            AlterConfigsResource(
                resource_type=TYPES[one.type],
                resource_name=one.name,
                configs=[
                    AlterableConfig(name=name, config_operation=operation, value=value)
                    for operation, name, value in changes[one]
                ],
            )
            for one in chunk
        ]
        request = IncrementalAlterConfigsRequest(resources=asked, validate_only=is_checked_only)
        for found in _node_of(client, chunk[0]).request(INCREMENTAL_ALTER_CONFIGS, request).responses:
            resource = _matching(chunk, found.resource_type, found.resource_name)
            outcomes[resource] = (found.error_code, found.error_message)
    return outcomes


def setting_row(setting: DescribeConfigsResourceResult) -> dict[str, Any]:
    """Return what is known about a setting."""
    return {
        "name": setting.name,
        "value": "(hidden)" if setting.is_sensitive else setting.value,
        "source": source_text(setting.config_source),
        "default": _default(setting),
        "type": _KINDS[setting.config_type] if 0 <= setting.config_type < len(_KINDS) else "-",
        "read_only": setting.read_only,
        "documentation": setting.documentation or None,
    }


def _default(setting: DescribeConfigsResourceResult) -> str | None:
    """Return the value that applies if nothing is set. It is named if it is a setting in another unit."""
    found = next((one for one in setting.synonyms if one.source == DEFAULT_CONFIG), None)
    if found is None or found.name.rpartition(".")[2] == setting.name.rpartition(".")[2]:
        return None if found is None else found.value
    return f"{found.name}={found.value}"


def is_own(resource: Resource, setting: DescribeConfigsResourceResult) -> bool:
    """Return whether a setting has a value on this resource itself, not by default or by inheritance."""
    source = source_text(setting.config_source)
    return {
        TOPIC: source == "topic",
        GROUP: source == "group",
        BROKER: source == ("all brokers" if not resource.name else "broker") or source == "broker's file",
    }[resource.type]


def source_text(source: int) -> str:
    return _SOURCES.get(source, f"source {source}")


def _node_of(client: KafkaClient, resource: Resource) -> KafkaConnection:
    """Return the server that answers for a resource: the broker itself, or any."""
    return client.node(int(resource.name)) if resource.type == BROKER and resource.name else client.bootstrap


def _matching(chunk: Sequence[Resource], kind: int, name: str) -> Resource:
    for one in chunk:
        if (TYPES[one.type], one.name) == (kind, name):
            return one
    raise ValueError(f"the server answered about {name!r}, which was not asked for")
