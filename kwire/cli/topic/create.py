"""kwire topic create: creates topics."""

import argparse

from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.cli.values.assignments import add_config, assignments_of
from kwire.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

# The server's defaults, which version 4 of the API introduced.
DEFAULT = -1
DEFAULTS_VERSION = 4


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--partitions",
        metavar="N",
        type=int,
        default=DEFAULT,
        help="number of partitions (default: the server's num.partitions)",
    )
    add_config(parser, "a topic setting")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in assignments_of(options.config).items()]
    topics = [
        CreatableTopic(
            name=name, num_partitions=options.partitions, replication_factor=DEFAULT, assignments=[], configs=configs
        )
        for name in dict.fromkeys(options.names)
    ]
    with kafka_client_of(options) as client:
        request = CreateTopicsRequest(topics=topics)
        results = client.controller().request(CREATE_TOPICS, request, version_min=DEFAULTS_VERSION).topics
    outcomes = Outcomes()
    for result in results:
        if result.error_code:
            outcomes.fail(refusal(f"topic {result.name}", result.error_code, result.error_message))
        else:
            outcomes.add(result.name)
    return outcomes.finish("created", options)
