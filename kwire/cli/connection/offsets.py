"""The offsets of partitions at a position or a time (ListOffsets)."""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
CONSUMER = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class OffsetAndTime(NamedTuple):
    """An offset, and the timestamp of its record in milliseconds; both are -1 if there is none."""

    offset: int
    timestamp_ms: int


def offsets_at(
    client: KafkaClient, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at LATEST, EARLIEST or a timestamp in milliseconds.

    For a timestamp, it is the offset of the first record that is not older, or -1 if there is none. Raises Refused.
    """
    found = offsets_and_times_at(client, wanted, isolation_level=isolation_level)
    return {partition: one.offset for partition, one in found.items()}


def offsets_and_times_at(
    client: KafkaClient, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, OffsetAndTime]:
    """Return offsets as `offsets_at` does, with the timestamps of their records."""
    found: dict[TopicPartition, OffsetAndTime] = {}
    for node, topics in client.by_leader(wanted):
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=one, timestamp=wanted[TopicPartition(topic, one)])
                        for one in indexes
                    ],
                )
                for topic, indexes in topics.items()
            ],
        )
        for topic in node.request(LIST_OFFSETS, request).topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.name, one.partition_index)
                check(f"partition {partition}", one.error_code)
                found[partition] = OffsetAndTime(one.offset, one.timestamp)
    return found
