"""kwire topic delete: deletes topics and their records."""

import argparse

from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS = 60_000


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    outcomes = Outcomes()
    with kafka_client_of(options) as client:
        confirm(f"delete {counted_names('topic', names)} with all records", options)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], topic_names=names, timeout_ms=TIMEOUT_MS
        )
        results = client.controller().request(DELETE_TOPICS, request).responses
    for result in results:
        if result.error_code:
            outcomes.fail(refusal(f"topic {result.name}", result.error_code, result.error_message))
        else:
            outcomes.add(result.name or "")
    return outcomes.finish("deleted", options)
