"""kwire group delete-offsets: deletes committed offsets of a group."""

import argparse

from kwire.cli.connection.error_texts import check, refusal
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import METAVAR, partition_number
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.cli.group.offsets import committed_offsets
from kwire.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


def add(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    parser.add_argument(
        "--topic",
        metavar=METAVAR,
        action="append",
        required=True,
        help="partitions whose offsets are deleted; repeatable",
    )
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    wanted = [_parsed(text) for text in options.topic]
    outcomes = Outcomes()
    with kafka_client_of(options) as client:
        committed = committed_offsets(client, options.name)
        chosen: dict[TopicPartition, None] = {}
        for topic, indexes in wanted:
            # Topics that no longer exist may have offsets, so the committed offsets are searched, not the topics.
            found = {one: None for one in committed if one.topic == topic and (not indexes or one.partition in indexes)}
            missing = sorted(indexes - {one.partition for one in found})
            if missing or not found:
                where = f"{topic}-{missing[0]}" if missing else f"topic {topic}"
                outcomes.fail(f"group {options.name} has no committed offset for {where}")
            chosen |= found
        if chosen:
            confirm(
                f"delete committed offsets of group {options.name} for "
                f"{counted_names('partition', list(map(str, chosen)))}",
                options,
            )
            for partition, code in delete_offsets(client, options.name, list(chosen)).items():
                if code:
                    outcomes.fail(refusal(f"group {options.name}, partition {partition}", code))
                else:
                    outcomes.add(str(partition))
    return outcomes.finish("deleted", options)


def delete_offsets(client: KafkaClient, group_id: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Delete committed offsets. Return the error code of each partition, 0 if it was done. Raises Refused."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(OffsetDeleteRequestPartition(partition_index=one.partition))
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=listed) for name, listed in topics.items()],
    )
    response = client.ask_coordinator(group_id, OFFSET_DELETE, request)
    check(f"group {group_id}", response.error_code)
    return {
        TopicPartition(topic.name, one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
    }


def _parsed(text: str) -> tuple[str, set[int]]:
    name, _, indexes = text.partition(":")
    return name, {partition_number(index) for index in indexes.split(",")} if indexes else set()
