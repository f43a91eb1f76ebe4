"""The internal topic a coordinator writes its decisions to, as the coordinator sees it: shards, keys and values."""

import os
from collections.abc import Callable, Iterator, Sequence

from kwire.broker.batch_validation import in_codec_of_topic
from kwire.broker.cold_reads import ColdReads
from kwire.broker.internal_records import (
    PAUSED,
    KeyValue,
    Paused,
    PendingRecord,
    Replayed,
    Transaction,
    TransactionEnd,
)
from kwire.broker.partition import OnReached, Partition
from kwire.broker.topics import Topic, Topics
from storage.batch import BatchHeader, Record, build_batch, is_intact, parse_header, read_records
from storage.batch_writing import batch_of_tails, record_tail
from storage.errors import DamagedLog, QuarantinedRange
from storage.format import ABORT, COMMIT
from storage.markers import control_type

REPLAY_BYTES = 1024 * 1024
BATCH_RECORDS_BYTES_MAX = 64 * 1024 * 1024


class CoordinatorLog:
    """One internal topic; a shard is one of its partitions."""

    def __init__(self, topics: Topics, topic_name: str, cold_reads: ColdReads | None = None) -> None:
        """With ``cold_reads`` a replay pauses where it would wait for the disk; else it waits."""
        self._topics = topics
        self._topic_name = topic_name
        self._cold_reads = cold_reads
        # The topic, as long as no topic has been deleted since it was looked up.
        self._topic: Topic | None = None
        self._deletion_count = 0

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        """Append all records as one batch, through the same door as everybody; the offset behind them."""
        batch, header = batch_of_tails([record_tail(key, value, 0, b"") for key, value in records], now_ms)
        return self._append(shard, batch, header, now_ms)

    def append_pending(self, shard: int, transaction: Transaction, records: Sequence[KeyValue], now_ms: int) -> int:
        """The same as part of a producer's transaction.

        The batch has no sequence: a producer counts what it sends, and not what is written here on its behalf.
        """
        batch = memoryview(
            build_batch(
                [Record(key, value, now_ms) for key, value in records],
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                is_transactional=True,
            )
        )
        return self._append(shard, batch, parse_header(batch), now_ms)

    def append_marker(self, shard: int, transaction: Transaction, coordinator_epoch: int, is_commit: bool) -> int:
        """Append the end of a producer's transaction; the offset behind it."""
        partition = self._partition(shard)
        return partition.append_marker(*transaction, coordinator_epoch, is_commit).last_offset + 1

    def _append(self, shard: int, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        # The batch was built here: a client's batch would have to be checked, and must have a sequence.
        return self._partition(shard).append(batch, header, now_ms, in_codec_of_topic).last_offset + 1

    def on_committed(self, shard: int, offset: int, call: OnReached) -> None:
        self._partition(shard).on_reached(offset, call)

    def on_synced(self, shard: int, offset: int, call: OnReached) -> None:
        self._partition(shard).on_synced(offset, call)

    def replay(self, shard: int) -> Iterator[Replayed | Paused]:
        """Every record from the beginning, in order, and the ends of transactions where they lie.

        Meets :data:`PAUSED` where the next ones are not in memory yet.
        """
        topic = self._topics.get(self._topic_name)
        partition = topic.partition(shard) if topic else None
        if partition is None:
            return
        if partition.damage is not None or partition.high_watermark < partition.log_end_offset:
            # What is lost, or not safe yet, may be a commit: nobody may be told that there was none.
            raise self._unreadable(partition, "it cannot be read to its end")
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            try:
                yield from self._warmed(partition.cold_start(offset))
                read = partition.read(offset, REPLAY_BYTES)
                yield from self._warmed(None if read.is_warm() else read.warm_up)
            except (QuarantinedRange, DamagedLog) as error:
                raise self._unreadable(partition, str(error)) from error
            view = read.view
            if not view:
                # A gap that compaction left before something damaged: there is no way on.
                raise self._unreadable(partition, f"it cannot be read from offset {offset} on")
            position = 0
            while position < len(view):
                header = parse_header(view, position)
                behind = position + header.size_bytes
                if not is_intact(view[position:behind]):
                    raise self._unreadable(partition, f"the batch of offset {offset} is damaged")
                yield from _replayed(header, view[position:behind])
                position, offset = behind, header.last_offset + 1

    def _warmed(self, warm_up: Callable[[], None] | None) -> Iterator[Paused]:
        """Pauses until a thread has brought into memory what the loop is about to touch. Raises what that raised."""
        if warm_up is None or self._cold_reads is None:
            return
        outcome: list[BaseException | None] = []
        self._cold_reads.begin(warm_up, outcome.append)
        while not outcome:
            yield PAUSED
        if outcome[0] is not None:
            raise outcome[0]

    def _unreadable(self, partition: Partition, problem: str) -> DamagedLog:
        data_dir, folder = os.path.split(partition.maintenance().directory)
        return DamagedLog(
            f"{folder}: {problem}. What it holds is not served. Stop the server and restore {folder} from a backup, or "
            f"move it away and run: kwire log adopt {data_dir} --accept-loss {folder}"
        )

    def _partition(self, shard: int) -> Partition:
        topic = self._topic
        if topic is None or self._deletion_count != self._topics.deletion_count:
            self._deletion_count = self._topics.deletion_count
            topic = self._topic = self._topics.get(self._topic_name)
        partition = topic.partition(shard) if topic else None
        if partition is None:
            raise LookupError(f"{self._topic_name}-{shard} does not exist")
        return partition


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
