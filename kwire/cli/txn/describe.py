"""kwire txn describe: state, producer, age and partitions of transactional ids."""

import argparse

from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each
from kwire.cli.framework.tables import cell
from kwire.cli.txn.coordinated import described_transaction, transaction_facts
from kwire.cli.values.times import duration_text


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="TRANSACTIONAL_ID", nargs="+")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with kafka_client_of(options) as client:
        return for_each(options.names, lambda name: _print(client, name, options)).code


def _print(client: KafkaClient, name: str, options: argparse.Namespace) -> None:
    facts = transaction_facts(described_transaction(client, name))

    def print_text() -> None:
        print(printable(f"{facts['id']}  {facts['state']}"))
        age = "" if facts["age_ms"] is None else f", {duration_text(facts['age_ms'])} ago"
        print(f"  producer {facts['producer_id']}, epoch {facts['producer_epoch']}")
        print(f"  started {cell(facts['started'])}{age}; timeout {duration_text(facts['timeout_ms'])}")
        print(f"  partitions {cell(facts['partitions'])}")

    print_object(facts, options, print_text)
