"""kwire topic add-partitions: raises the number of partitions of topics."""

import argparse

from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.wire.messages.create_partitions import CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsTopic

TIMEOUT_MS = 30_000


def add(parser: CommandParser) -> None:
    parser.description = (
        "Raise the number of partitions of topics. Records stay where they are, but new records of a key may go to\n"
        "another partition than before."
    )
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--partitions", metavar="TOTAL", type=int, required=True, help="the new number of partitions of each topic"
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.partitions < 1:
        raise UsageError(f"--partitions must be a positive number, got {options.partitions}")
    topics = [
        CreatePartitionsTopic(name=name, count=options.partitions, assignments=None)
        for name in dict.fromkeys(options.names)
    ]
    with kafka_client_of(options) as client:
        request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)
        results = client.controller().request(CREATE_PARTITIONS, request).results
    outcomes = Outcomes()
    for result in results:
        if result.error_code:
            outcomes.fail(refusal(f"topic {result.name}", result.error_code, result.error_message))
        else:
            outcomes.add(result.name)
    return outcomes.finish("altered", options)
