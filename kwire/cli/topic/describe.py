"""kwire topic describe: the partitions, offsets and settings of topics."""

import argparse
from typing import Any

from kwire.cli.config.resources import DEFAULT_SOURCE, TOPIC, Resource, setting_row, settings_of
from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, offsets_at
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_ids import id_text
from kwire.cli.framework.output import WIDE, add_output, print_object, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each

COLUMNS = ("partition", "leader", "replicas", "first", "end")
WIDE_COLUMNS = ("in_sync", "epoch")
SETTING_COLUMNS = ("name", "value", "source", "default")


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with kafka_client_of(options) as client:
        return for_each(options.names, lambda name: _print(topic_facts(client, name), options)).code


def topic_facts(client: KafkaClient, name: str) -> dict[str, Any]:
    """Return the id, the partitions with their offsets, and the settings of a topic. Raises Refused.

    `configs` has the values of the settings that are not Kafka's defaults, `settings` has all settings.
    """
    (topic,) = client.metadata([name]).topics
    check(f"topic {name}", topic.error_code)
    partitions = [TopicPartition(name, one.partition_index) for one in topic.partitions]
    first = offsets_at(client, dict.fromkeys(partitions, EARLIEST))
    end = offsets_at(client, dict.fromkeys(partitions, LATEST))
    rows = [
        {
            "partition": one.partition_index,
            "leader": one.leader_id,
            "replicas": ",".join(map(str, one.replica_nodes)),
            "in_sync": ",".join(map(str, one.isr_nodes)),
            "epoch": one.leader_epoch,
            "first": first[partition],
            "end": end[partition],
        }
        for one, partition in zip(topic.partitions, partitions, strict=True)
    ]
    settings = [setting_row(one) for one in settings_of(client, Resource(TOPIC, name))]
    return {
        "topic": name,
        "id": id_text(topic.topic_id),
        "partitions": sorted(rows, key=lambda row: int(str(row["partition"]))),
        "configs": {one["name"]: one["value"] for one in settings if one["source"] != DEFAULT_SOURCE},
        "settings": [{column: one[column] for column in SETTING_COLUMNS} for one in settings],
    }


def _print(facts: dict[str, Any], options: argparse.Namespace) -> None:
    def print_text() -> None:
        print(f"{printable(facts['topic'])}  id {facts['id']}")
        print_rows(facts["partitions"], COLUMNS, options, wide=WIDE_COLUMNS)
        if options.output == WIDE:
            print_rows(facts["settings"], SETTING_COLUMNS, options)
            return
        for name, value in facts["configs"].items():
            print(printable(f"{name}={value}"))

    print_object(facts, options, print_text)
