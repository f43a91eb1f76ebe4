"""kwire txn producers: the producers that partitions know, with their open transactions."""

import argparse

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import METAVAR, named_partitions
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each
from kwire.cli.txn.open_producers import producers_of

COLUMNS = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_timestamp")
WIDE_COLUMNS = ("coordinator_epoch", "last_sequence")


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar=METAVAR, nargs="+", help="topics, or partitions of them")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    partitions: dict[TopicPartition, None] = {}
    with kafka_client_of(options) as client:
        named = for_each(options.names, lambda name: partitions.update(dict.fromkeys(named_partitions(client, [name]))))
        rows = [one.row() for one in sorted(producers_of(client, partitions))]
    if partitions:
        print_rows(rows, COLUMNS, options, wide=WIDE_COLUMNS)
    return named.code
