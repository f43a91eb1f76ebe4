"""A partition: its log, its high watermark, and the calls that wait until the high watermark reaches an offset.

The log is private to this package. Handlers, coordinators and readers use `Partition`. Maintenance services use the
object that `Partition.maintenance` returns.
"""

from collections.abc import Callable

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition.commit_policy import Syncs, commit_policy
from kwire.broker.partition.errors import batch_too_large, code_of, log_not_writable, topic_is_being_deleted
from kwire.broker.partition.log_settings import log_settings
from kwire.broker.partition.maintenance import LogMaintenance
from kwire.broker.partition.reading import ReadablePartition
from kwire.broker.partition.reserved_offsets import OnMarkDue
from kwire.broker.partition.traffic import Traffic
from kwire.broker.partition.waiting import WAIT_MS_MAX, Awaited, OnReached
from kwire.clock import Clock
from kwire.config.resources.topic import TopicSettings
from kwire.errors import ErrorCode, KafkaError
from storage.batch.format import NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.batch.markers import build_marker
from storage.batch.record_batch import BatchHeader, parse_header, stamp_append_time
from storage.errors import DiskFailure, LogClosed, StorageError, StorageFailed
from storage.log.log import Appended, Log
from storage.log.retention_rules import apply_message_limit
from storage.log.syncing import LogSync
from storage.snapshot.log_snapshot import LogSnapshot


class Partition(ReadablePartition):
    """A partition and its log. Use it only in the event loop's thread.

    Records below `high_watermark` are committed: they are as durable as the topic's settings require. Only committed
    records can be read. The commit policy decides when the high watermark rises, and `advance` raises it. Watchers are
    notified of every rise in the same loop iteration.

    Readers with `read_committed` read only below `last_stable_offset`, and skip aborted records. The last stable offset
    rises only when the high watermark rises, so watchers need no other notification. The log start offset may be above
    the last stable offset. In that case there is no record between the two.

    The log is opened on first use, because a node with many topics uses few of them. Properties and methods that need
    the log open it. They raise StorageError if the log cannot be opened.
    """

    __slots__ = (
        "_clock",
        "_counted_bytes",
        "_counted_end_offset",
        "_is_flush_due",
        "_is_immediate",
        "_is_ring",
        "_on_open",
        "_open_log",
        "_policy",
        "_syncs",
        "appended_bytes",
        "fetched_bytes",
        "fetched_records",
        "is_being_deleted",
        "is_fetched",
        "is_syncing",
        "readable_bytes",
        "settings",
    )

    def __init__(
        self,
        topic_name: str,
        index: int,
        leader_epoch: int,
        settings: TopicSettings,
        clock: Clock,
        open_log: Callable[[TopicSettings], Log],
        syncs: Syncs,
        on_open: Callable[["Partition"], None] | None = None,
        on_mark_due: OnMarkDue | None = None,
    ) -> None:
        super().__init__(topic_name, index, leader_epoch, on_mark_due)
        # The number of bytes that were appended since the start of the node, and the number of these that are
        # committed.
        self.appended_bytes = 0
        self.readable_bytes = 0
        # What was sent in Fetch responses since `take_traffic` was called last.
        self.fetched_bytes = 0
        self.fetched_records = 0
        # `appended_bytes` and the log end offset when `take_traffic` was called last, or when the log was opened.
        self._counted_bytes = 0
        self._counted_end_offset = 0
        # Whether a sync round is syncing the log now.
        self.is_syncing = False
        # Whether the partition was read since `Topics.note_fetch` last cleared this flag.
        self.is_fetched = False
        # Whether the topic is being deleted. Appends are refused then, because acknowledged records would be deleted.
        self.is_being_deleted = False
        self._clock = clock
        self._open_log = open_log
        self._syncs = syncs
        self._on_open = on_open
        self._is_flush_due = False
        self._set_settings(settings)

    # --- the log

    def open(self) -> None:
        """Open the log, if it is not open."""
        if self._log is None:
            self._open_now()

    def _open_now(self) -> Log:
        log = self._open_log(self.settings)
        recovered = self._policy.recovered_offset(log.log_end_offset, log.synced_offset)
        self._log = log
        self._counted_end_offset = log.log_end_offset
        self.is_unstable = log.producers.first_unstable(recovered) is not None
        if recovered != self.high_watermark:  # an `advance` to the same value would only wake waiting readers
            self.advance(recovered)
        self._hold_ring(log)
        if recovered < log.log_end_offset:
            self._syncs.add(self)
        if self._on_open is not None:
            self._on_open(self)
        return log

    def maintenance(self) -> LogMaintenance:
        """Return the maintenance operations of the open log. Opens the log if necessary."""
        return LogMaintenance(self, self._log or self._open_now())

    def fits(self, snapshot: LogSnapshot) -> bool:
        """Whether the files of a snapshot are those of the log, except for batches that were appended since.

        This does not open the log. A closed log is compared with the log as it was closed last.
        """
        return snapshot.fits(self._log)

    def configure(self, settings: TopicSettings) -> None:
        """Apply new settings of the topic, from the next append on."""
        self._set_settings(settings)
        log = self._log
        if log is not None:
            log.settings = log_settings(settings)
            if self._policy.recovered_offset(log.log_end_offset, log.synced_offset) < log.log_end_offset:
                # Records may have been committed in the page cache. The new settings require that they are durable.
                self._syncs.add(self)

    def _set_settings(self, settings: TopicSettings) -> None:
        self.settings = settings
        self._policy = commit_policy(settings, self._syncs)
        self._is_immediate = self._policy.is_immediate
        self._is_ring = settings.retention_messages >= 0

    def forget(self) -> None:
        """Prevent the log from being opened again. Called when the topic was deleted."""
        self._open_log = _refuse_to_open
        self.is_being_deleted = False

    @property
    def is_forgotten(self) -> bool:
        """Whether the topic was deleted."""
        return self._open_log is _refuse_to_open

    # --- appending

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int | None = None, validate: Validate = validate
    ) -> Appended:
        """Append a client's batch. Raises StorageError or KafkaError.

        The offset and leader epoch are written into the bytes of `batch` itself, unless the topic stores the batch in
        another codec: then a copy is stored. `validate` is called for batches whose records may have to be read, and
        may raise other errors. `now_ms` is the current time. Callers that append several batches can read the clock
        once.
        """
        if self.is_being_deleted:
            raise topic_is_being_deleted()
        if now_ms is None:
            now_ms = self._clock.now_ms()
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            raise batch_too_large(len(batch), settings.max_message_bytes)
        timestamp = header.max_timestamp
        if not settings.is_plain or timestamp == NO_TIMESTAMP or timestamp - now_ms > settings.timestamp_after_max_ms:
            if settings.is_event_topic:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "this topic accepts records only through the event store")
            batch, header = validate(batch, header, settings, now_ms)
        log = self._log or self._open_now()
        if header.attributes & TRANSACTIONAL_BIT:
            self.is_unstable = True
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.is_duplicate:
            self._after_append(log, len(batch))
        return appended

    def append_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool) -> Appended:
        """Append the marker that ends a producer's transaction in this partition. Raises StorageError or KafkaError.

        The topic's limits for producers (sizes, timestamps, keys) do not apply, because the coordinator writes markers.
        """
        if self.is_being_deleted:
            raise topic_is_being_deleted()
        if self.settings.is_event_topic:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "topics of the event store have no transactions")
        now_ms = self._clock.now_ms()
        batch = memoryview(bytearray(build_marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)))
        log = self._log or self._open_now()
        self.is_unstable = True
        appended = log.append(batch, parse_header(batch), self.leader_epoch, now_ms)
        self._after_append(log, len(batch))
        return appended

    def _after_append(self, log: Log, size_bytes: int) -> None:
        self.appended_bytes = appended_bytes = self.appended_bytes + size_bytes
        if self._is_immediate:
            self.readable_bytes = appended_bytes
            self.advance(log.log_end_offset)
        else:
            self._policy.appended(self, log.log_end_offset, log.synced_offset)

    # --- appending in several steps

    def validated(
        self, batch: memoryview, header: BatchHeader, now_ms: int, validate: Validate = validate
    ) -> tuple[memoryview, BatchHeader]:
        """Validate a batch, so that a later append need not read its records. Raises StorageError or KafkaError."""
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            raise batch_too_large(len(batch), settings.max_message_bytes)
        return validate(batch, header, settings, now_ms)

    def prepare(
        self, batch: memoryview, header: BatchHeader, now_ms: int, validate: Validate = validate
    ) -> tuple[memoryview, BatchHeader]:
        """Return the batch in the form in which it will be stored, except for its offset.

        Raises the same errors as `append`, except errors of sequence numbers and of the disk.
        """
        self._check_mark()
        batch, header = self.validated(batch, header, now_ms, validate)
        if self.settings.is_log_append_time:
            stamp_append_time(batch, now_ms)
            header = parse_header(batch)
        return batch, header

    def append_journaled(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append a batch from the event journal. The batch is already durable there, and keeps its leader epoch.

        This does not commit the batch: the caller calls `commit_all` afterwards.
        """
        log = self._log or self._open_now()
        appended = log.append(batch, header, header.partition_leader_epoch, now_ms)
        if not appended.is_duplicate:
            self.appended_bytes += len(batch)
        return appended

    # --- committing

    def commit_all(self) -> None:
        """Commit all appended records."""
        self.readable_bytes = self.appended_bytes
        self.advance((self._log or self._open_now()).log_end_offset)

    def advance(self, high_watermark: int) -> None:
        """Raise the high watermark. No other method raises it.

        If the new value is above the offset mark, the high watermark rises only after the next mark is durable. A call
        with the current value only notifies waiting calls and watchers.
        """
        if high_watermark > self._reserve_from and not self._may_advance(high_watermark):
            return
        self.high_watermark = high_watermark
        if self._is_ring and self._log is not None:
            self._hold_ring(self._log)
        if self._awaited:
            self._notify_committed(high_watermark)
        if self._watchers:
            self._notify_watchers()

    def _hold_ring(self, log: Log) -> None:
        """With `kwire.retention.messages`, raise the log start offset so that at most that many records stay.

        Only records below the last stable offset are counted. Otherwise records that cannot be read yet would remove
        records that can be read.
        """
        if self._is_ring:
            apply_message_limit(log, self.last_stable_offset, self.settings.retention_messages)

    # --- metrics

    def take_traffic(self) -> Traffic:
        """Return what was appended and fetched since the last call, or since the log was opened.

        Appended records are counted by the log end offset, so that appends have nothing to count.
        """
        end_offset = self._counted_end_offset if self._log is None else self._log.log_end_offset
        traffic = Traffic(
            appended_bytes=self.appended_bytes - self._counted_bytes,
            # The log end offset is lower than before if a damaged end was truncated.
            appended_records=max(0, end_offset - self._counted_end_offset),
            fetched_bytes=self.fetched_bytes,
            fetched_records=self.fetched_records,
        )
        self._counted_bytes, self._counted_end_offset = self.appended_bytes, end_offset
        self.fetched_bytes = self.fetched_records = 0
        return traffic

    # --- syncing, called by the sync rounds

    def sync_within(self, delay_ms: int) -> None:
        """Request a sync after `delay_ms`, unless such a request is already pending."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._syncs.add_within(self, delay_ms)

    def begin_sync(self) -> LogSync | None:
        """Begin a sync. A thread or the kernel runs it. Returns None if everything is synced or the log has failed."""
        self._is_flush_due = False
        log = self._log
        if log is None:
            return None
        if not log.is_writable and log.damage is None:  # failed, or deleted
            self._give_up(lambda one: True, log_not_writable())
            return None
        sync = log.begin_sync()
        self.is_syncing = sync is not None
        if sync is None:
            if self.high_watermark < log.synced_offset:
                self.advance(log.synced_offset)
            self._notify_synced(log.synced_offset)
        return sync

    def end_sync(self, sync: LogSync, readable_bytes: int, failure: DiskFailure | None) -> None:
        """Process the result of a sync. `readable_bytes` is the value of `appended_bytes` when the sync began.

        After a failure other than StorageFailed no record is lost. The waiting calls then wait for a later sync round.
        """
        self.is_syncing = False
        if failure is not None and not isinstance(failure, StorageFailed):
            return
        if failure is not None:
            # It is not known whether the records are on disk, so they are neither acknowledged nor readable.
            sync.fail(failure)
            self._give_up(lambda one: True, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
            return
        sync.finish()
        log = self._log or self._open_now()
        if log.synced_offset < sync.end_offset:
            # Another sync of this log has failed in the meantime, so the log ignored the success of this sync.
            self._give_up(lambda one: True, log_not_writable())
        elif self._policy.committed_offset(log.log_end_offset, log.synced_offset) == log.log_end_offset:
            self.commit_all()
        elif sync.end_offset > self.high_watermark:
            self.readable_bytes = max(self.readable_bytes, readable_bytes)
            self.advance(sync.end_offset)
        self._notify_synced(log.synced_offset)

    # --- waiting

    def give_up_overdue(self) -> None:
        """Notify the waiting calls whose deadline has passed. They get the error REQUEST_TIMED_OUT."""
        self._give_up_overdue(self._clock.monotonic())

    def on_reached(self, offset: int, call: OnReached, timeout_ms: int = WAIT_MS_MAX) -> None:
        """Call `call` once: when the high watermark reaches `offset`, or with an error after `timeout_ms`.

        If the high watermark has reached `offset` already, `call` is called immediately. Callers have just appended up
        to `offset`, so waiting calls are registered in the order of their offsets. The exception is a batch that a
        producer sends again. Its call may be notified late, after an earlier registered call for a later offset.
        """
        if self.high_watermark < offset and self._log is None:
            # The high watermark is not known before the log is open.
            try:
                self._open_now()
            except StorageError as error:
                call(KafkaError(code_of(error), str(error)))
                return
        if self.high_watermark >= offset:
            call(None)
            return
        if self._log is not None and not self._log.is_writable:
            call(log_not_writable())
            return
        self._await(Awaited(offset, self._clock.monotonic() + timeout_ms / 1000, call))

    def on_synced(self, offset: int, call: OnReached) -> None:
        """Call `call` once: when all records below `offset` are on disk, or with an error after WAIT_MS_MAX.

        This requests a sync, whatever the value of the topic's `kwire.log.sync` is.
        """
        log = self._log or self._open_now()
        if log.synced_offset >= offset:
            call(None)
            return
        if not log.is_writable:
            call(log_not_writable())
            return
        self._await_sync(Awaited(offset, self._clock.monotonic() + WAIT_MS_MAX / 1000, call))
        self._syncs.add(self)


def _refuse_to_open(settings: TopicSettings) -> Log:
    raise LogClosed("the topic is deleted")
