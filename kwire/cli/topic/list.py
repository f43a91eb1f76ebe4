"""kwire topic list: the topics of a server, with their number of partitions."""

import argparse

from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_ids import id_text
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser


def add(parser: CommandParser) -> None:
    parser.add_argument("--internal", action="store_true", help="include internal topics")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    with kafka_client_of(options) as client:
        topics = client.metadata().topics
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(one.replica_nodes) for one in topic.partitions), default=0),
            "internal": topic.is_internal,
            "id": id_text(topic.topic_id),
        }
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if options.internal or not topic.is_internal
    ]
    print_rows(rows, ("topic", "partitions"), options, wide=("replicas", "internal", "id"))
