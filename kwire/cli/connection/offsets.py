"""The offsets of partitions at a position or a time (ListOffsets)."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
CONSUMER = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
# The answer for a time after the last record.
NONE_FOUND = -1
# How long the server may wait for the offsets.
TIMEOUT_MS = 30_000


class OffsetAndTime(NamedTuple):
    """An offset, and the timestamp of its record in milliseconds; both are -1 if there is none."""

    offset: int
    timestamp_ms: int


def offsets_at(
    client: KafkaClient,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    skips_missing: bool = False,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at LATEST, EARLIEST or a timestamp in milliseconds.

    For a timestamp, it is the offset of the first record that is not older, or -1 if there is none.

    Raises Refused if an offset is not known. With `skips_missing`, the partition is missing instead: it was deleted,
    has no leader at present, or the client has no right to it.
    """
    found = offsets_and_times_at(client, wanted, isolation_level=isolation_level, skips_missing=skips_missing)
    return {partition: one.offset for partition, one in found.items()}


def offsets_and_times_at(
    client: KafkaClient,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    skips_missing: bool = False,
) -> dict[TopicPartition, OffsetAndTime]:
    """Return offsets as `offsets_at` does, with the timestamps of their records."""
    found: dict[TopicPartition, OffsetAndTime] = {}
    for node, topics in client.by_leader(wanted, skips_missing=skips_missing):
        here = [TopicPartition(topic, index) for topic, indexes in topics.items() for index in indexes]
        request = offsets_request({one: wanted[one] for one in here}, isolation_level)
        for partition, code, offset in offsets_in(node.request(LIST_OFFSETS, request)):
            if code and skips_missing:
                continue
            check(f"partition {partition}", code)
            found[partition] = offset
    return found


def offsets_request(wanted: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
    """Return the request for the offsets of partitions of one leader, each at LATEST, EARLIEST or a timestamp."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), timestamp in wanted.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        timeout_ms=TIMEOUT_MS,
    )


def offsets_in(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAndTime]]:
    """Yield the partitions of a response with their error codes and offsets."""
    for topic in response.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            yield partition, one.error_code, OffsetAndTime(one.offset, one.timestamp)


def clamped(
    offsets: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Limit each offset to the range from the first offset of its partition to the end."""
    return {one: min(max(offset, first[one]), end[one]) for one, offset in offsets.items()}


def or_end(found: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Replace NONE_FOUND, the answer for a time after the last record, by the end of the partition."""
    return {one: end[one] if offset == NONE_FOUND else offset for one, offset in found.items()}
