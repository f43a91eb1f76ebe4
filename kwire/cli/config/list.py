"""kwire config list: the settings that were set on brokers, topics and groups."""

import argparse
from collections.abc import Iterator
from typing import Any

from kwire.cli.config.resources import (
    BROKER,
    GROUP,
    HELP,
    METAVAR,
    TOPIC,
    TYPES,
    Resource,
    is_own,
    parse_resource,
    setting_row,
    settings_of_many,
)
from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each
from kwire.wire.messages.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest

COLUMNS = ("resource", "name", "value", "source")
# The version that lists resources other than client metrics (KIP-1142).
TYPES_VERSION = 1


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "resources",
        metavar=METAVAR,
        nargs="*",
        help=f"{HELP}; topic, broker or group alone: all of them (default: all brokers and topics)",
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    words = options.resources or (BROKER, TOPIC)
    # The words are checked before the connection is made.
    named = {word: parse_resource(word) for word in words if word not in TYPES}
    rows: list[dict[str, Any]] = []
    with kafka_client_of(options) as client:

        def collect(word: str) -> None:
            resources = [named[word]] if word in named else list(_all(client, word))
            rows.extend(
                {"resource": str(resource), **setting_row(setting)}
                for resource, settings in settings_of_many(client, resources)
                for setting in settings
                if is_own(resource, setting)
            )

        outcomes = for_each(words, collect)
    print_rows(rows, COLUMNS, options)
    return outcomes.code


def _all(client: KafkaClient, kind: str) -> Iterator[Resource]:
    if kind == TOPIC:
        yield from (Resource(TOPIC, name) for name in sorted(one.name or "" for one in client.metadata().topics))
    elif kind == BROKER:
        yield Resource(BROKER, "")
        yield from (Resource(BROKER, str(one.node_id)) for one in client.metadata([]).brokers)
    else:
        request = ListConfigResourcesRequest(resource_types=[TYPES[GROUP]])
        found = client.request(LIST_CONFIG_RESOURCES, request, version_min=TYPES_VERSION)
        check("the groups with settings", found.error_code)
        yield from (Resource(GROUP, one.resource_name) for one in found.config_resources)
