"""Looks up offsets of partitions: the first, the end, and the first at or after a time."""

from collections.abc import Iterable, Mapping

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.connection.offsets import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.errors import ServerError, is_retriable
from kwire.cli.kafka.retries import Retries
from kwire.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# The answer for a time after the last record.
NONE_FOUND = -1
TIMEOUT_SECONDS = 30.0


def list_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, *, is_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the offset of EARLIEST, LATEST (of `connection.offsets`) or a time in milliseconds, for each partition.

    With `is_committed`, LATEST is the last stable offset: the end for consumers that read committed records only.
    """
    missing = set(partitions)
    found: dict[TopicPartition, int] = {}
    retries = Retries(TIMEOUT_SECONDS)
    while missing:
        failed: tuple[TopicPartition, int] | ConnectionError | None = None
        for node, group in cluster.by_leader(missing).items():
            try:
                response = cluster.channel(node).request(LIST_OFFSETS, _request(group, timestamp, is_committed))
            except ConnectionError as error:
                cluster.drop(node)
                failed = error
                continue
            for topic in response.topics:
                for one in topic.partitions:
                    partition = TopicPartition(topic.name, one.partition_index)
                    if not one.error_code:
                        found[partition] = one.offset
                    elif is_retriable(one.error_code):
                        failed = partition, one.error_code
                    else:
                        raise ServerError(f"partition {partition}", one.error_code)
        missing -= found.keys()
        if missing:
            if not retries.pause():
                if isinstance(failed, ConnectionError):
                    raise failed
                partition, code = failed or (min(missing), -1)
                raise ServerError(f"partition {partition}", code)
            cluster.reload()
    return found


def _request(group: Iterable[TopicPartition], timestamp: int, is_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in group:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        timeout_ms=int(TIMEOUT_SECONDS * 1000),
    )


def clamped(
    offsets: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Limit each offset to the range from the first offset of its partition to the end."""
    return {one: min(max(offset, first[one]), end[one]) for one, offset in offsets.items()}
