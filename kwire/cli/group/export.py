"""kwire group export: writes committed offsets as CSV, for `kwire group reset --from-file`."""

import argparse
import sys
from pathlib import Path

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, is_data, print_data, print_done
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each
from kwire.cli.group.offset_file import write_offsets
from kwire.cli.group.offsets import committed_offsets


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="GROUP", nargs="+")
    parser.add_argument("--to", metavar="FILE", type=Path, help="write to this file (default: standard output)")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    rows: list[tuple[str, TopicPartition, int]] = []
    with kafka_client_of(options) as client:

        def collect(name: str) -> None:
            found = committed_offsets(client, name)
            if not found:
                raise ValueError(f"group {name} has no committed offsets")
            rows.extend((name, partition, one.offset) for partition, one in found.items())

        outcomes = for_each(options.names, collect)
    has_several = len(dict.fromkeys(options.names)) > 1
    if options.to is not None and outcomes.done:
        with options.to.open("w", newline="") as file:
            write_offsets(rows, file, with_group=has_several)
        print_done("exported", outcomes.done, options)
    elif is_data(options):
        names = ("group", "topic", "partition", "offset")
        values = ((group_id, partition.topic, partition.partition, offset) for group_id, partition, offset in rows)
        print_data([dict(zip(names, one, strict=True)) for one in values], options)
    else:
        write_offsets(rows, sys.stdout, with_group=has_several)
    return outcomes.code
