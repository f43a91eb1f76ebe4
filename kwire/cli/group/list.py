"""kwire group list: the groups of a server, with state, type and total lag."""

import argparse
from collections.abc import Mapping, Sequence
from itertools import chain

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.group.total_lag import total_lags
from kwire.wire.messages.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest

COLUMNS = ("group", "state", "type", "protocol", "lag")
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
        groups = groups_by_coordinator(client, options.state, options.type)
        lags = total_lags(client, groups)
    rows = [
        {
            "group": one.group_id,
            "state": one.group_state,
            "type": one.group_type,
            "protocol": one.protocol_type,
            "lag": lags.get(one.group_id),
        }
        for one in _sorted(groups)
    ]
    print_rows(rows, COLUMNS, options)


def listed_groups(client: KafkaClient) -> list[ListedGroup]:
    """Return the groups of all servers, sorted by name. Raises Refused."""
    return _sorted(groups_by_coordinator(client))


def groups_by_coordinator(
    client: KafkaClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> dict[KafkaConnection, list[ListedGroup]]:
    """Return the groups of each server, which is their coordinator. Raises Refused."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    version = TYPES_VERSION if types else STATES_VERSION if states else 0
    found: dict[KafkaConnection, list[ListedGroup]] = {}
    for node in client.nodes():
        response = node.request(LIST_GROUPS, request, version_min=version)
        check(f"the groups of {node.address}", response.error_code)
        found[node] = response.groups
    return found


def _sorted(groups: Mapping[KafkaConnection, list[ListedGroup]]) -> list[ListedGroup]:
    return sorted(chain.from_iterable(groups.values()), key=lambda group: group.group_id)
