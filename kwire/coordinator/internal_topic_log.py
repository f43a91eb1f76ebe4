"""Appends to and replays the internal topic of a coordinator. A shard is one partition of the topic."""

import os
from collections.abc import Callable, Iterator, Sequence

from kwire.broker.batch_validation import recompress_only
from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import OnReached, Partition
from kwire.broker.topics.topics import Topic, Topics
from kwire.coordinator.log_records import (
    PAUSED,
    KeyValue,
    Paused,
    PendingRecord,
    ProducerIdAndEpoch,
    Replayed,
    TransactionEnd,
)
from storage.batch.builder import build_batch_from_bodies, encode_plain_body
from storage.batch.format import ABORT, COMMIT
from storage.batch.markers import control_type
from storage.batch.record_batch import BatchHeader, Record, build_batch, is_intact, parse_header, read_records
from storage.errors import DamagedLog, QuarantinedRange

REPLAY_BYTES = 1024 * 1024
BATCH_RECORDS_BYTES_MAX = 64 * 1024 * 1024


class InternalTopicLog:
    """The log of one internal topic. A shard is one partition of the topic."""

    def __init__(self, topics: Topics, topic_name: str, cold_reads: ColdReads | None = None) -> None:
        """Create the log. With `cold_reads`, a replay yields PAUSED while it waits for the disk.

        Without `cold_reads`, a replay blocks the event loop while it reads from disk.
        """
        self._topics = topics
        self._topic_name = topic_name
        self._cold_reads = cold_reads
        # A cached lookup of the topic. It is valid until any topic is deleted.
        self._topic: Topic | None = None
        self._deletion_count = 0

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        """Append all records as one batch. Returns the offset after the last record."""
        if len(records) == 1:  # the batch of most commands
            ((key, value),) = records
            bodies = [encode_plain_body(key, value)]
        else:
            bodies = [encode_plain_body(key, value) for key, value in records]
        batch, header = build_batch_from_bodies(bodies, now_ms)
        # This class built the batch, so it needs neither the checks nor the sequence number of a client's batch.
        return self._partition(shard).append(batch, header, now_ms, recompress_only).last_offset + 1

    def append_batch(self, shard: int, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[int, int]:
        """Append a batch that the coordinator has built. Returns the offset after its last record, and the high
        watermark.
        """
        partition = self._partition(shard)
        end_offset = partition.append(batch, header, now_ms, recompress_only).last_offset + 1
        return end_offset, partition.high_watermark

    def append_pending(
        self, shard: int, transaction: ProducerIdAndEpoch, records: Sequence[KeyValue], now_ms: int
    ) -> int:
        """Append records as part of a producer's transaction. Returns the offset after the last record.

        The batch has no sequence number, because a producer assigns sequence numbers only to batches that it sends.
        """
        batch = memoryview(
            build_batch(
                [Record(key, value, now_ms) for key, value in records],
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                is_transactional=True,
            )
        )
        return self._partition(shard).append(batch, parse_header(batch), now_ms, recompress_only).last_offset + 1

    def append_marker(
        self, shard: int, transaction: ProducerIdAndEpoch, coordinator_epoch: int, is_commit: bool
    ) -> int:
        """Append the marker that ends a producer's transaction. Returns the offset after the marker."""
        partition = self._partition(shard)
        return partition.append_marker(*transaction, coordinator_epoch, is_commit).last_offset + 1

    def committed_offset(self, shard: int) -> int:
        return self._partition(shard).high_watermark

    def on_committed(self, shard: int, offset: int, call: OnReached) -> None:
        self._partition(shard).on_reached(offset, call)

    def on_synced(self, shard: int, offset: int, call: OnReached) -> None:
        self._partition(shard).on_synced(offset, call)

    def replay(self, shard: int) -> Iterator[Replayed | Paused]:
        """Yield every record from the log start, in offset order, including the markers of transactions.

        Yields :data:`PAUSED` while the next records are not in memory yet.
        """
        topic = self._topics.get(self._topic_name)
        partition = topic.partition(shard) if topic else None
        if partition is None:
            return
        if partition.damage is not None or partition.high_watermark < partition.log_end_offset:
            # A lost or uncommitted record may be an offset commit. Without it, OffsetFetch would return a wrong offset.
            raise self._damaged(partition, "it cannot be read to its end")
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            try:
                yield from self._wait_until_cached(partition.cold_start(offset))
                read = partition.read(offset, REPLAY_BYTES)
                yield from self._wait_until_cached(None if read.is_warm() else read.warm_up)
            except (QuarantinedRange, DamagedLog) as error:
                raise self._damaged(partition, str(error)) from error
            view = read.view
            if not view:
                # Compaction has removed the records between `offset` and a damaged range, so there is nothing to read
                # before the damage. The replay cannot continue.
                raise self._damaged(partition, f"it cannot be read from offset {offset} on")
            position = 0
            while position < len(view):
                header = parse_header(view, position)
                end = position + header.size_bytes
                if not is_intact(view[position:end]):
                    raise self._damaged(partition, f"the batch of offset {offset} is damaged")
                yield from _replayed(header, view[position:end])
                position, offset = end, header.last_offset + 1

    def _wait_until_cached(self, warm_up: Callable[[], None] | None) -> Iterator[Paused]:
        """Yield PAUSED until a thread has read the pages that the event loop needs. Raises the thread's exception."""
        if warm_up is None or self._cold_reads is None:
            return
        outcome: list[BaseException | None] = []
        self._cold_reads.begin(warm_up, outcome.append)
        while not outcome:
            yield PAUSED
        if outcome[0] is not None:
            raise outcome[0]

    def _damaged(self, partition: Partition, problem: str) -> DamagedLog:
        data_dir, folder = os.path.split(partition.maintenance().directory)
        return DamagedLog(
            f"{folder}: {problem}. Its groups or transactions are not served. Stop the server and restore {folder} "
            f"from a backup, or move it away and run: kwire log adopt {data_dir} --accept-loss {folder}"
        )

    def _partition(self, shard: int) -> Partition:
        topic = self._topic
        if topic is None or self._deletion_count != self._topics.deletion_count:
            self._deletion_count = self._topics.deletion_count
            topic = self._topic = self._topics.get(self._topic_name)
        if topic is None or shard >= len(topic.partitions):
            raise LookupError(f"{self._topic_name}-{shard} does not exist")
        return topic.partitions[shard]


def _replayed(header: BatchHeader, batch: memoryview) -> Iterator[Replayed]:
    for record in read_records(batch, BATCH_RECORDS_BYTES_MAX):
        if record.key is None:
            continue
        if header.is_control:
            kind = control_type(record)
            if kind in (ABORT, COMMIT):
                yield TransactionEnd(header.producer_id, kind == COMMIT)
        elif header.is_transactional:
            yield PendingRecord(header.producer_id, record.key, record.value)
        else:
            yield record.key, record.value
