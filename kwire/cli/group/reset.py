"""kwire group reset: shows or changes the committed offsets of groups without members.

The scenarios and their names are those of kafka-consumer-groups. Nothing is changed without --execute.
"""

import argparse
from pathlib import Path
from typing import Any

from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import METAVAR, named_partitions
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, is_data, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import print_error
from kwire.cli.framework.several_names import for_each
from kwire.cli.group.list import listed_groups
from kwire.cli.group.members import SHARE
from kwire.cli.group.offset_file import read_offsets
from kwire.cli.group.offsets import commit_offsets, committed_offsets
from kwire.cli.group.scenarios import Scenario, new_offsets, scenario_of

COLUMNS = ("topic", "partition", "offset", "to")
GROUP_COLUMNS = ("group", *COLUMNS)
# States of groups without members. A group that does not exist can be reset, too: it then has offsets.
INACTIVE = ("Empty", "Dead", "")


def add(parser: CommandParser) -> None:
    parser.description = (
        "Show which offsets groups would continue from, and set them with --execute. Groups with members are refused:\n"
        "stop their consumers first."
    )
    parser.add_argument("names", metavar="GROUP", nargs="+")
    _add_scenarios(parser)
    parser.add_argument(
        "--topic",
        metavar=METAVAR,
        action="append",
        default=[],
        help="partitions to reset; repeatable (default: all with a committed offset)",
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="all partitions with a committed offset, as without --topic"
    )
    do = parser.add_mutually_exclusive_group()
    do.add_argument("--execute", action="store_true", help="commit the new offsets")
    do.add_argument("--dry-run", action="store_true", help="only show the new offsets (default)")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def _add_scenarios(parser: CommandParser) -> None:
    given = parser.add_argument_group("new offsets").add_mutually_exclusive_group(required=True)
    given.add_argument("--to-earliest", action="store_true", help="the first offset")
    given.add_argument("--to-latest", action="store_true", help="the end")
    given.add_argument("--to-offset", metavar="N", type=int, help="this offset")
    given.add_argument("--to-current", action="store_true", help="the committed offset, or the end if there is none")
    given.add_argument("--shift-by", "--by", metavar="N", type=int, help="N records forward, or back if N is negative")
    given.add_argument(
        "--to-datetime", metavar="TIME", help="the first record of this time, such as 2026-01-31T12:00:00Z"
    )
    given.add_argument("--by-duration", metavar="DURATION", help="the first record of this age, such as 2h or P1DT2H")
    given.add_argument("--from-file", metavar="FILE", type=Path, help="the offsets of a file of `kwire group export`")
    given.add_argument("--to", metavar="POSITION", help="earliest, latest, current, an offset, or a time")


def run(options: argparse.Namespace) -> int:
    if options.all_topics and options.topic:
        raise UsageError("--all-topics and --topic cannot be used together")
    if options.from_file is not None and options.topic:
        raise UsageError("--from-file and --topic cannot be used together: the file names the partitions")
    scenario = scenario_of(options)
    rows: list[dict[str, Any]] = []
    with kafka_client_of(options) as client:
        groups = {one.group_id: one for one in listed_groups(client)}

        def reset(name: str) -> None:
            if name in groups:
                _check_inactive(name, groups[name].group_state, groups[name].group_type)
            rows.extend(_reset(client, name, scenario, options))

        outcomes = for_each(options.names, reset)
    if rows or not outcomes.failures:
        print_rows(rows, GROUP_COLUMNS if len(options.names) > 1 else COLUMNS, options)
    if rows and not options.execute and not is_data(options):
        print_error("nothing was changed: add --execute to commit these offsets")
    return outcomes.code


def _check_inactive(name: str, state: str, kind: str) -> None:
    if kind.lower() == SHARE:
        raise ValueError(f"group {name} is a share group, which has no committed offsets")
    if state not in INACTIVE:
        raise ValueError(
            f"group {name} is {state}: only a group without members can be reset, so stop its consumers first"
        )


def _reset(client: KafkaClient, name: str, scenario: Scenario, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the old and new offset of each partition, after committing the new ones if --execute was given."""
    committed = {one: found.offset for one, found in committed_offsets(client, name).items()}
    if options.from_file is not None:
        # The file is read for each group, because it may have offsets of several.
        in_file = read_offsets(options.from_file, name)
        if not in_file:
            raise ValueError(f"{options.from_file} has no offsets of group {name}")
        scenario, partitions = Scenario("file", offsets=in_file), list(in_file)
    else:
        partitions = named_partitions(client, options.topic) if options.topic else list(committed)
    if not partitions:
        raise ValueError(f"group {name} has no committed offsets: name the topics with --topic")
    targets = new_offsets(client, scenario, committed, partitions)
    if options.execute:
        _commit(client, name, targets)
    return [
        {
            "group": name,
            "topic": one.topic,
            "partition": one.partition,
            "offset": committed.get(one),
            "to": offset,
            "committed": options.execute,
        }
        for one, offset in sorted(targets.items())
    ]


def _commit(client: KafkaClient, name: str, targets: dict[TopicPartition, int]) -> None:
    failed = commit_offsets(client, name, targets)
    if failed:
        reasons = [refusal(f"group {name}, partition {one}", code) for one, code in failed.items()]
        raise ValueError("\n".join(reasons))
