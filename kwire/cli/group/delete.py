"""kwire group delete: deletes groups without members, with their committed offsets."""

import argparse

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each
from kwire.wire.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="GROUP", nargs="+")
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    with kafka_client_of(options) as client:
        confirm(f"delete {counted_names('group', names)} with all committed offsets", options)
        return for_each(names, lambda name: delete_group(client, name)).finish("deleted", options)


def delete_group(client: KafkaClient, name: str) -> None:
    """Delete one group. Raises Refused."""
    request = DeleteGroupsRequest(groups_names=[name])
    (result,) = client.ask_coordinator(name, DELETE_GROUPS, request).results
    check(f"group {name}", result.error_code, result.error_message)
