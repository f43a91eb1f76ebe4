"""kwire group list: the groups of a server, with state and type."""

import argparse
from collections.abc import Sequence

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.wire.messages.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest

COLUMNS = ("group", "state", "type", "protocol")
# The versions that introduced the filters.
STATES_VERSION, TYPES_VERSION = 4, 5


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "--state", metavar="STATE", action="append", default=[], help="only groups in this state; repeatable"
    )
    parser.add_argument(
        "--type", metavar="TYPE", action="append", default=[], help="only groups of this type; repeatable"
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    with kafka_client_of(options) as client:
        groups = listed_groups(client, options.state, options.type)
    rows = [
        {"group": one.group_id, "state": one.group_state, "type": one.group_type, "protocol": one.protocol_type}
        for one in groups
    ]
    print_rows(rows, COLUMNS, options)


def listed_groups(client: KafkaClient, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """Return the groups of all servers, sorted by name. Raises Refused."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    version = TYPES_VERSION if types else STATES_VERSION if states else 0
    found: list[ListedGroup] = []
    for node in client.nodes():
        response = node.request(LIST_GROUPS, request, version_min=version)
        check(f"the groups of {node.address}", response.error_code)
        found += response.groups
    return sorted(found, key=lambda group: group.group_id)
