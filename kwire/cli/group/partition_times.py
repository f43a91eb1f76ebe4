"""The timestamps of the next records that groups read, from which their lag in seconds follows.

The records are fetched as a consumer would, so this works with every Kafka server. Only the first batch of each
partition is used.
"""

from collections.abc import Iterator, Mapping, Sequence

from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import parse_header, read_records
from storage.errors import StorageError

# Later versions have topic ids instead of names.
VERSION_MAX = 12
FETCH_BYTES = 1024 * 1024
# So that an answer stays within the bound of the connection.
PARTITIONS_PER_REQUEST = 30
ANSWER_BYTES = PARTITIONS_PER_REQUEST * FETCH_BYTES
# The bound of a batch after decompression. The lag of a partition with a larger batch is not known exactly.
BATCH_BYTES_MAX = 256 * 1024 * 1024


def next_timestamps(client: KafkaClient, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp in milliseconds of the first record at or after each offset.

    Partitions whose record cannot be read are missing: it was deleted, or it has no timestamp. Raises Unreachable.
    """
    found: dict[TopicPartition, int] = {}
    for node, topics in client.by_leader(offsets):
        wanted = [TopicPartition(topic, index) for topic, indexes in topics.items() for index in indexes]
        for at in range(0, len(wanted), PARTITIONS_PER_REQUEST):
            chunk = wanted[at : at + PARTITIONS_PER_REQUEST]
            incomplete = []
            for partition, data in _fetched(node, chunk, offsets):
                if _is_complete(data):
                    _put(found, partition, data, offsets[partition])
                else:
                    incomplete.append(partition)
            # A server sends a batch that is larger than the limits if it is the first of an answer.
            for partition in incomplete:
                for _, data in _fetched(node, [partition], offsets):
                    if _is_complete(data):
                        _put(found, partition, data, offsets[partition])
    return found


def _put(found: dict[TopicPartition, int], partition: TopicPartition, data: memoryview, offset: int) -> None:
    timestamp_ms = timestamp_at(data, offset)
    if timestamp_ms is not None:
        found[partition] = timestamp_ms


def timestamp_at(data: memoryview, offset: int) -> int | None:
    """Return the timestamp of the first record at or after an offset in the first batch. None if it has none."""
    try:
        header = parse_header(data)
        batch = data[: header.size_bytes]
        records = read_records(batch, BATCH_BYTES_MAX)
        timestamp_ms = next((one.timestamp_ms for one in records if one.offset >= offset), header.max_timestamp)
    except StorageError:
        return None
    return timestamp_ms if timestamp_ms >= 0 else None


def _is_complete(data: memoryview) -> bool:
    return len(data) >= HEADER_BYTES and len(data) >= parse_header(data).size_bytes


def _fetched(
    node: KafkaConnection, partitions: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, memoryview]]:
    topics: dict[str, list[FetchPartition]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(
            FetchPartition(partition=one.partition, fetch_offset=offsets[one], partition_max_bytes=FETCH_BYTES)
        )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=ANSWER_BYTES,
        topics=[FetchTopic(topic=name, partitions=listed) for name, listed in topics.items()],
    )
    for topic in node.request(FETCH, request, version_max=VERSION_MAX).responses:
        for one in topic.partitions:
            if not one.error_code:
                yield TopicPartition(topic.topic, one.partition_index), memoryview(one.records or b"")
