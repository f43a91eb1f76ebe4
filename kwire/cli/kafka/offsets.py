"""The offsets of partitions at a position or a time, asked for again while a leader is missing."""

from collections.abc import Iterable

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.connection.offsets import READ_COMMITTED, READ_UNCOMMITTED, TIMEOUT_MS, offsets_in, offsets_request
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.errors import ServerError, is_retriable
from kwire.cli.kafka.retries import Retries
from kwire.wire.messages.list_offsets import LIST_OFFSETS


def list_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, *, is_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the offset of EARLIEST, LATEST (of `connection.offsets`) or a time in milliseconds, for each partition.

    With `is_committed`, LATEST is the last stable offset: the end for consumers that read committed records only.
    """
    missing = set(partitions)
    found: dict[TopicPartition, int] = {}
    isolation_level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    retries = Retries(TIMEOUT_MS / 1000)
    while missing:
        failed: tuple[TopicPartition, int] | ConnectionError | None = None
        for node, group in cluster.by_leader(missing).items():
            request = offsets_request(dict.fromkeys(group, timestamp), isolation_level)
            try:
                response = cluster.channel(node).request(LIST_OFFSETS, request)
            except ConnectionError as error:
                cluster.drop(node)
                failed = error
                continue
            for partition, code, one in offsets_in(response):
                if not code:
                    found[partition] = one.offset
                elif is_retriable(code):
                    failed = partition, code
                else:
                    raise ServerError(f"partition {partition}", code)
        missing -= found.keys()
        if missing:
            if not retries.pause():
                if isinstance(failed, ConnectionError):
                    raise failed
                partition, code = failed or (min(missing), -1)
                raise ServerError(f"partition {partition}", code)
            cluster.reload()
    return found
