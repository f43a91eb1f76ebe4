"""The last records of topics, of all partitions together, as `tail` shows the last lines of a file."""

import heapq
from typing import NamedTuple

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.fetcher import Fetcher
from kwire.cli.kafka.positions import Bounds, Position, offsets_at

# Bound of the records that are held in memory.
COUNT_MAX = 100_000
POLL_SECONDS = 1.0


class LastRecord(NamedTuple):
    """A record with the order in which records are shown: by time, then by partition and offset."""

    timestamp_ms: int
    partition: TopicPartition
    offset: int
    record: RecordFields


def last_records(cluster: Cluster, bounds: Bounds, count: int, *, is_committed: bool) -> list[LastRecord]:
    """Return the `count` latest records before the ends in `bounds`, oldest first."""
    starts = offsets_at(cluster, bounds, Position("before_end", count))
    fetcher = Fetcher(cluster, is_committed=is_committed)
    fetcher.assign(starts, bounds.end)
    latest: list[LastRecord] = []
    try:
        while not fetcher.is_done:
            for batch in fetcher.poll(POLL_SECONDS):
                for record in batch.records():
                    found = LastRecord(record[1], batch.partition, record[0], record)
                    if len(latest) < count:
                        heapq.heappush(latest, found)
                    else:
                        heapq.heappushpop(latest, found)
    finally:
        fetcher.close()
    return sorted(latest)
