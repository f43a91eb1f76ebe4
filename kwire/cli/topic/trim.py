"""kwire topic trim: deletes the records of a topic before an offset or a time."""

import argparse
from typing import Any

from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, clamped, offsets_at, or_end
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.connection.topic_partitions import partitions_of
from kwire.cli.framework.confirmation import add_yes, confirm
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.cli.values.times import parse_time
from kwire.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

TIMEOUT_MS = 30_000
COLUMNS = ("topic", "partition", "before", "first", "end")


def add(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument(
        "--before",
        metavar="OFFSET|TIME",
        required=True,
        help="delete the records before this offset or time (2026-01-31T12:00:00Z, or 7d: older than 7 days); "
        "latest: all records",
    )
    parser.add_argument(
        "--partition", metavar="N", type=int, action="append", help="only this partition; repeatable (default: all)"
    )
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    position = _position(options.before)
    with kafka_client_of(options) as client:
        partitions = _partitions(client, options)
        first = offsets_at(client, dict.fromkeys(partitions, EARLIEST))
        end = offsets_at(client, dict.fromkeys(partitions, LATEST))
        targets = _targets(client, position, first, end)
        count = sum(max(0, offset - first[one]) for one, offset in targets.items())
        if not count:
            print_rows([_row(one, first, first, end) for one in partitions], COLUMNS, options)
            return 0
        what = f"delete {count:,} offsets of topic {options.name}, before {options.before}"
        confirm(f"{what} in {len(partitions)} partition{'' if len(partitions) == 1 else 's'}", options)
        outcomes, now_first = Outcomes(), dict(first)
        for partition, (offset, code) in delete_records(client, targets).items():
            if code:
                outcomes.fail(refusal(f"partition {partition}", code))
            else:
                now_first[partition] = offset
    print_rows([_row(one, first, now_first, end) for one in partitions], COLUMNS, options)
    return outcomes.code


def delete_records(client: KafkaClient, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """Delete the records before these offsets. Return the first offset of each partition now, and the error code."""
    done: dict[TopicPartition, tuple[int, int]] = {}
    for node, topics in client.by_leader(offsets):
        asked = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=one, offset=offsets[TopicPartition(topic, one)])
                    for one in indexes
                ],
            )
            for topic, indexes in topics.items()
        ]
        request = DeleteRecordsRequest(topics=asked, timeout_ms=TIMEOUT_MS)
        for topic in node.request(DELETE_RECORDS, request).topics:
            for one in topic.partitions:
                done[TopicPartition(topic.name, one.partition_index)] = (one.low_watermark, one.error_code)
    return done


def _position(text: str) -> int | str:
    """Return LATEST, an offset as it is written, or a time in milliseconds."""
    if text == "latest":
        return LATEST
    if text.isascii() and text.isdecimal():
        return text
    try:
        return parse_time(text)
    except ValueError:
        raise UsageError(
            f"--before: expected an offset, latest, a time such as 2026-01-31T12:00:00Z or an age such as 7d, "
            f"got {text!r}"
        ) from None


def _partitions(client: KafkaClient, options: argparse.Namespace) -> list[TopicPartition]:
    known = partitions_of(client, options.name)
    asked = set(options.partition or known)
    if not asked <= known:
        raise ValueError(f"topic {options.name} has no partition {min(asked - known)}")
    return [TopicPartition(options.name, index) for index in sorted(asked)]


def _targets(
    client: KafkaClient, position: int | str, first: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the new first offset of each partition that changes. It is never after the end."""
    if isinstance(position, str):
        wanted = dict.fromkeys(first, int(position))
    elif position == LATEST:
        wanted = end
    else:
        wanted = or_end(offsets_at(client, dict.fromkeys(first, position)), end)
    return {one: offset for one, offset in clamped(wanted, first, end).items() if offset > first[one]}


def _row(
    partition: TopicPartition,
    before: dict[TopicPartition, int],
    first: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "before": before[partition],
        "first": first[partition],
        "end": end[partition],
    }
