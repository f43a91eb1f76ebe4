"""LocalLog: implements StreamLog for a partition of this process. Threads read pages that are not in memory."""

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.local_appends import LocalAppends, ValidateElsewhere, as_kafka_error
from kwire.streams.log import (
    Appended,
    Bounds,
    Completed,
    NotReady,
    StreamLog,
    StreamRead,
    Unreadable,
    Usage,
    Watcher,
)
from storage.batch.record_batch import BatchHeader
from storage.errors import LogClosed, QuarantinedRange, StorageError
from storage.log.transactions import AbortedTransaction

log = logging.getLogger("kwire.broker")

# Under memory pressure, pages that a thread has loaded may be evicted before the read is repeated. After this many
# waits, the event loop loads the pages itself.
WAITS_MAX = 3
# The maximum number of attempts of a search by time. A search starts again if retention or compaction has replaced the
# files meanwhile.
SEARCHES_MAX = 3

_NO_RECORDS = memoryview(b"")
_DAMAGED = "the bytes on disk are damaged"


class _InReadLane(NotReady):
    """Work for the read lane's threads: loading pages, or decompressing a batch."""

    __slots__ = ("_cold_reads", "_work")

    def __init__(self, cold_reads: ColdReads, work: Callable[[], None]) -> None:
        self._cold_reads = cold_reads
        self._work = work

    def begin(self, completed: Completed) -> None:
        def end(error: BaseException | None) -> None:
            completed(as_kafka_error(error) if isinstance(error, StorageError) else error)

        self._cold_reads.begin(self._work, end)

    async def wait(self) -> None:
        try:
            await self._cold_reads.do([self._work])
        except StorageError as error:
            raise as_kafka_error(error) from error


class LocalLog(StreamLog):
    """A partition as a StreamLog. The partition's log is opened on first use."""

    __slots__ = ("_appends", "_cold_reads", "_partition", "_watchers", "incarnation", "partition", "topic")

    def __init__(
        self, cold_reads: ColdReads, validate_elsewhere: ValidateElsewhere, partition: Partition, topic_id: bytes
    ) -> None:
        self.topic = partition.topic_name
        self.partition = partition.index
        # The topic id in the form that Kafka's tools show.
        self.incarnation = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        self._partition = partition
        self._cold_reads = cold_reads
        self._watchers: set[Watcher] = set()
        self._appends = LocalAppends(partition, validate_elsewhere)

    @property
    def is_gone(self) -> bool:
        return self._partition.is_forgotten

    @property
    def is_closing(self) -> bool:
        return self._partition.is_being_deleted or self._partition.is_forgotten

    @property
    def max_batch_bytes(self) -> int:
        return self._partition.settings.max_message_bytes

    # --- bounds

    async def ready(self) -> None:
        is_open = self._partition.is_open
        self.bounds()
        if not is_open:
            # Yield to the event loop, because opening a log takes a third of a millisecond and callers may open many
            # logs in a row.
            await asyncio.sleep(0)

    def bounds(self) -> Bounds:
        partition = self._partition
        try:
            return Bounds(partition.log_start_offset, partition.last_stable_offset, partition.log_end_offset)
        except StorageError as error:
            raise as_kafka_error(error) from error

    @property
    def start_offset(self) -> int:
        partition = self._partition
        return partition.log_start_offset if partition.is_open else 0

    @property
    def committed_end(self) -> int:
        return self._partition.last_stable_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def usage(self) -> Usage:
        try:
            last_ms = self._partition.last_timestamp
        except StorageError as error:
            raise as_kafka_error(error) from error
        return Usage(self._partition.size_bytes, last_ms if last_ms >= 0 else None)

    # --- records

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        self._appends.append(batch, header, appended)

    def read(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        return self._read(offset, max_bytes, waits, is_committed=True)

    def read_uncommitted(self, offset: int, max_bytes: int, waits: int = 0) -> StreamRead | NotReady:
        return self._read(offset, max_bytes, waits, is_committed=False)

    def _read(self, offset: int, max_bytes: int, waits: int, *, is_committed: bool) -> StreamRead | NotReady:
        partition = self._partition
        # This flag marks a room as in use, so that `RoomCleanup` keeps it. Kafka's Fetch sets the same flag.
        partition.is_fetched = True
        try:
            if partition.is_closed:
                raise LogClosed("the topic is deleted")
            start = partition.log_start_offset
            end = partition.readable_end(is_committed=is_committed)
            if offset < start:
                raise OffsetOutOfRange(offset, start, end - 1)
            if offset >= end:
                return StreamRead(_NO_RECORDS, offset, ())
            warm_up = partition.cold_start(offset) or (partition.cold_aborted(offset) if is_committed else None)
            if warm_up is None or waits >= WAITS_MAX:
                aborted: Sequence[AbortedTransaction] = ()
                if is_committed:
                    read, aborted = partition.read_committed(offset, max_bytes)
                else:
                    read = partition.read(offset, max_bytes)
                if not read.view:
                    return StreamRead(_NO_RECORDS, self._end_of_gap(offset, end), ())
                if waits >= WAITS_MAX or read.is_warm():
                    return StreamRead(read.view, read.next_offset, aborted)
                warm_up = read.warm_up
            return self.in_thread(warm_up)
        except QuarantinedRange as error:
            raise Unreadable(offset, error.end_offset, _DAMAGED) from None
        except StorageError as error:
            raise as_kafka_error(error) from error

    def _end_of_gap(self, offset: int, head: int) -> int:
        """Return the offset at which a reader continues if no batch can be read from `offset` to the end `head`.

        Raises Unreadable if a damaged range overlaps these offsets. Otherwise compaction has removed all their records.
        Then returns the readable end if records that cannot be read yet follow, and else `offset`.
        """
        partition = self._partition
        for one in partition.quarantined:
            if offset < one.end_offset and one.start_offset < head:
                raise Unreadable(offset, one.end_offset, _DAMAGED)
        return head if head < partition.log_end_offset else offset

    async def offset_for_time(self, timestamp_ms: int) -> int:
        partition = self._partition
        for _ in range(SEARCHES_MAX):
            try:
                search = partition.search_time(timestamp_ms, is_committed=True)
                (outcome,) = await self._cold_reads.find([search])
                is_outdated, start = partition.is_outdated(search), partition.log_start_offset
            except StorageError as error:
                raise as_kafka_error(error) from error
            if is_outdated:
                continue
            if isinstance(outcome, StorageError):
                raise as_kafka_error(outcome) from outcome
            return partition.last_stable_offset if outcome is None else max(outcome.offset, start)
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the log was rewritten while it was searched, try again")

    def in_thread(self, work: Callable[[], None]) -> NotReady:
        return _InReadLane(self._cold_reads, work)

    # --- signals

    def watch(self, watcher: Watcher) -> None:
        if not self._watchers:
            self._partition.watch(self._notify_watchers)
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        if not self._watchers:
            self._partition.unwatch(self._notify_watchers)

    def _notify_watchers(self, _: object) -> None:
        watchers = self._watchers
        for watcher in tuple(watchers):
            if watcher in watchers:
                watcher(self)
