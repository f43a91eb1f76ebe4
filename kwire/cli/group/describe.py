"""kwire group describe: state, members, committed offsets and lag of groups.

The lag in seconds is the age of the next record that the group will read. It is computed from the timestamp of that
record, which is fetched over the Kafka port, so that it works with every Kafka server.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, offsets_at
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, print_object, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each
from kwire.cli.group.list import listed_groups
from kwire.cli.group.members import SHARE, member_rows
from kwire.cli.group.offsets import committed_offsets
from kwire.cli.group.partition_times import next_timestamps
from kwire.cli.group.share_offsets import share_offset_rows
from kwire.cli.values.times import now_ms
from kwire.wire.messages.list_groups import ListedGroup

OFFSET_COLUMNS = ("topic", "partition", "offset", "end", "lag", "lag_seconds")
OFFSET_WIDE = ("first", "member", "metadata")
MEMBER_COLUMNS = ("member", "client", "host", "assignment")
MEMBER_WIDE = ("instance", "epoch", "protocol")


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="GROUP", nargs="+")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with kafka_client_of(options) as client:
        listed = {group.group_id: group for group in listed_groups(client)}

        def describe(name: str) -> None:
            if name not in listed:
                raise ValueError(f"group {name} does not exist")
            _print(group_facts(client, listed[name]), options)

        return for_each(options.names, describe).code


def group_facts(client: KafkaClient, group: ListedGroup) -> dict[str, Any]:
    """Return the state, the members and the offsets of a group. Raises Refused."""
    members = member_rows(client, group.group_id, group.group_type)
    if group.group_type.lower() == SHARE:
        offsets = share_offset_rows(client, group.group_id)
    else:
        offsets = offset_rows(client, group.group_id)
    _add_members(offsets, members)
    return {
        "group": group.group_id,
        "state": group.group_state,
        "type": group.group_type,
        "coordinator": str(client.coordinator(group.group_id).address),
        "members": members,
        "offsets": offsets,
    }


def offset_rows(client: KafkaClient, group_id: str) -> list[dict[str, Any]]:
    """Return the committed offset, the end and the lag of each partition. Raises Refused."""
    committed = committed_offsets(client, group_id)
    first = offsets_at(client, dict.fromkeys(committed, EARLIEST))
    ends = offsets_at(client, dict.fromkeys(committed, LATEST))
    # Records before the first offset were deleted: the group continues with the first that exists.
    nexts = {one: max(found.offset, first[one]) for one, found in committed.items()}
    seconds = lag_seconds(client, nexts, ends)
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": found.offset,
            "first": first[partition],
            "end": ends[partition],
            "lag": max(0, ends[partition] - found.offset),
            "lag_seconds": seconds.get(partition),
            "metadata": found.metadata,
        }
        for partition, found in committed.items()
    ]


def lag_seconds(
    client: KafkaClient, nexts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return the age of the next record of each partition, 0 if there is none. Partitions with unknown age are missing.

    `nexts` has the offsets of the next records.
    """
    behind = {one: offset for one, offset in nexts.items() if offset < ends[one]}
    now = now_ms()
    found = {one: max(0, now - time_ms) / 1000 for one, time_ms in next_timestamps(client, behind).items()}
    return found | {one: 0.0 for one in nexts if one not in behind}


def _add_members(offsets: list[dict[str, Any]], members: list[dict[str, Any]]) -> None:
    """Add to each partition the member that reads it."""
    readers = {
        TopicPartition(topic, index): member["member"]
        for member in members
        for topic, indexes in member["partitions"].items()
        for index in indexes
    }
    for row in offsets:
        row["member"] = readers.get(TopicPartition(row["topic"], row["partition"]))


def _print(facts: dict[str, Any], options: argparse.Namespace) -> None:
    def print_text() -> None:
        print(printable(f"{facts['group']}  {facts['state']}, {facts['type']}"))
        if facts["members"]:
            print_rows(facts["members"], MEMBER_COLUMNS, options, wide=MEMBER_WIDE)
        if facts["offsets"]:
            print_rows(facts["offsets"], OFFSET_COLUMNS, options, wide=OFFSET_WIDE)

    print_object(facts, options, print_text)
