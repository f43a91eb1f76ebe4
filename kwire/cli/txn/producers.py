"""kwire txn producers: the producers that partitions know, with their open transactions."""

import argparse

from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import METAVAR, named_partitions
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.txn.open_producers import producers_of

COLUMNS = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_timestamp")
WIDE_COLUMNS = ("coordinator_epoch", "last_sequence")


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar=METAVAR, nargs="+", help="topics, or partitions of them")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    with kafka_client_of(options) as client:
        rows = [one.row() for one in sorted(producers_of(client, named_partitions(client, options.names)))]
    print_rows(rows, COLUMNS, options, wide=WIDE_COLUMNS)
