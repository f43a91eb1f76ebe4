"""A partition: one ordered log, the offset up to which it is committed, and the callers that wait for that offset.

The log is private to this package. Handlers, coordinators and readers use `Partition`; whatever maintains the files of
the log uses the handle that `Partition.maintenance` returns.
"""

from collections.abc import Callable

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition.commit_policy import Syncs, commit_policy
from kwire.broker.partition.errors import batch_too_large, code_of, log_takes_no_records, topic_is_being_deleted
from kwire.broker.partition.log_settings import log_settings
from kwire.broker.partition.maintenance import LogMaintenance
from kwire.broker.partition.reading import ReadablePartition
from kwire.broker.partition.reserved_offsets import OnMarkDue
from kwire.broker.partition.waiting import WAIT_MS_MAX, Awaited, OnReached
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.topic_config import TopicSettings
from storage.batch import BatchHeader, parse_header, stamp_append_time
from storage.errors import DiskFailure, LogClosed, StorageError, StorageFailed
from storage.format import NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.log import Appended, Log
from storage.markers import build_marker
from storage.retention import hold_ring
from storage.syncing import LogSync


class Partition(ReadablePartition):
    """Owns its log. Called from the event loop only.

    Records below `high_watermark` are committed: as durable as the topic promises, and the only ones that are ever
    read. The commit policy decides when it rises, and `advance` raises it. Watchers are notified of every rise, in the
    loop turn in which it happens.

    Records of a transaction count once it has ended: readers of committed data stay below `last_stable_offset` and
    leave out what was aborted. Only a marker below the high watermark moves that offset on, so there is no other
    signal. The log start may pass it, but then no record lies between the two.

    The log is opened on first use, because a node with many topics uses few of them. Properties and methods that need
    it open it, and raise StorageError if it cannot be opened.
    """

    __slots__ = (
        "_clock",
        "_is_flush_due",
        "_is_immediate",
        "_is_ring",
        "_on_open",
        "_open_log",
        "_policy",
        "_syncs",
        "appended_bytes",
        "is_fetched",
        "is_leaving",
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
        # Bytes appended since the start of the node, and those of them that are committed.
        self.appended_bytes = 0
        self.readable_bytes = 0
        # A sync round is working on it.
        self.is_syncing = False
        # It has been read since `Topics.note_fetch` last cleared this.
        self.is_fetched = False
        # Its topic is being deleted: records appended now would be acknowledged and deleted a moment later.
        self.is_leaving = False
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
            self._opened()

    def _opened(self) -> Log:
        log = self._open_log(self.settings)
        recovered = self._policy.recovered_offset(log.log_end_offset, log.synced_offset)
        self._log = log
        self.is_unstable = log.producers.first_unstable(recovered) is not None
        if recovered != self.high_watermark:  # else readers that wait would look for nothing new
            self.advance(recovered)
        self._hold_ring(log)
        if recovered < log.log_end_offset:
            self._syncs.add(self)
        if self._on_open is not None:
            self._on_open(self)
        return log

    def maintenance(self) -> LogMaintenance:
        """The handle for what maintains the files of the log that is open now."""
        return LogMaintenance(self, self._log or self._opened())

    def configure(self, settings: TopicSettings) -> None:
        """Follow new settings of the topic, from the next append on."""
        self._set_settings(settings)
        log = self._log
        if log is not None:
            log.settings = log_settings(settings)
            if self._policy.recovered_offset(log.log_end_offset, log.synced_offset) < log.log_end_offset:
                # Records that were committed from the page cache are to be on disk from now on.
                self._syncs.add(self)

    def _set_settings(self, settings: TopicSettings) -> None:
        self.settings = settings
        self._policy = commit_policy(settings, self._syncs)
        self._is_immediate = self._policy.is_immediate
        self._is_ring = settings.retention_messages >= 0

    def forget(self) -> None:
        """Its topic was deleted: callers that still hold the partition find its log closed and cannot open another."""
        self._open_log = _refuse_to_open
        self.is_leaving = False

    @property
    def is_forgotten(self) -> bool:
        """Whether its topic was deleted."""
        return self._open_log is _refuse_to_open

    # --- appending

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int | None = None, validate: Validate = validate
    ) -> Appended:
        """Append a client's batch; raises StorageError or KafkaError. Callers of several batches supply `now_ms` once.

        The batch gets its offset and epoch in place, unless the topic stores it in another codec: that is a copy.
        `validate` is called for batches whose records may have to be read, and may raise errors of its own.
        """
        if self.is_leaving:
            raise topic_is_being_deleted()
        if now_ms is None:
            now_ms = self._clock.now_ms()
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            raise batch_too_large(len(batch), settings.max_message_bytes)
        timestamp = header.max_timestamp
        if not settings.is_plain or timestamp == NO_TIMESTAMP or timestamp - now_ms > settings.timestamp_after_max_ms:
            if settings.is_event_topic:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "this topic takes records through the event store only")
            batch, header = validate(batch, header, settings, now_ms)
        log = self._log or self._opened()
        if header.attributes & TRANSACTIONAL_BIT:
            self.is_unstable = True
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.is_duplicate:
            self._appended(log, len(batch))
        return appended

    def append_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool) -> Appended:
        """Append the end of a producer's transaction in this partition; raises StorageError or KafkaError.

        The coordinator wrote it, so the topic's limits for producers (sizes, times, keys) do not apply.
        """
        if self.is_leaving:
            raise topic_is_being_deleted()
        if self.settings.is_event_topic:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "topics of the event store have no transactions")
        now_ms = self._clock.now_ms()
        batch = memoryview(bytearray(build_marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)))
        log = self._log or self._opened()
        self.is_unstable = True
        appended = log.append(batch, parse_header(batch), self.leader_epoch, now_ms)
        self._appended(log, len(batch))
        return appended

    def _appended(self, log: Log, size_bytes: int) -> None:
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
        """The batch as an append takes it without reading its records again; raises StorageError or KafkaError."""
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            raise batch_too_large(len(batch), settings.max_message_bytes)
        return validate(batch, header, settings, now_ms)

    def prepare(
        self, batch: memoryview, header: BatchHeader, now_ms: int, validate: Validate = validate
    ) -> tuple[memoryview, BatchHeader]:
        """The batch as it is stored, except for its offset. Raises what an append would, sequences and disk aside."""
        self._check_mark()
        batch, header = self.validated(batch, header, now_ms, validate)
        if self.settings.is_log_append_time:
            stamp_append_time(batch, now_ms)
            header = parse_header(batch)
        return batch, header

    def append_journaled(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append a batch that is durable in the event journal, with the epoch it has there; `commit_all` commits it."""
        log = self._log or self._opened()
        appended = log.append(batch, header, header.partition_leader_epoch, now_ms)
        if not appended.is_duplicate:
            self.appended_bytes += len(batch)
        return appended

    # --- committing

    def commit_all(self) -> None:
        """Commit everything that was appended."""
        self.readable_bytes = self.appended_bytes
        self.advance((self._log or self._opened()).log_end_offset)

    def advance(self, high_watermark: int) -> None:
        """Raise the high watermark: the only place that does. Above the offset mark it waits for the next mark.

        Called with the present value, it only notifies the watchers.
        """
        if high_watermark > self._reserve_from and not self._may_show(high_watermark):
            return
        self.high_watermark = high_watermark
        if self._is_ring and self._log is not None:
            self._hold_ring(self._log)
        if self._awaited:
            self._notify_committed(high_watermark)
        if self._watchers:
            self._notify_watchers()

    def _hold_ring(self, log: Log) -> None:
        """Move the log start of a topic with `kwire.retention.messages`.

        Counted from where readers stand: records that cannot be read yet must not push out those that can be.
        """
        if self._is_ring:
            hold_ring(log, self.last_stable_offset, self.settings.retention_messages)

    # --- syncing, called by the sync rounds

    def sync_within(self, delay_ms: int) -> None:
        """Request a sync after `delay_ms`, unless one is requested already."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._syncs.add_within(self, delay_ms)

    def begin_sync(self) -> LogSync | None:
        """What a thread has to do now; None when everything is on disk, or never will be."""
        self._is_flush_due = False
        log = self._log
        if log is None:
            return None
        if not log.is_writable and log.damage is None:  # failed, or deleted
            self._give_up(lambda one: True, log_takes_no_records())
            return None
        sync = log.begin_sync()
        self.is_syncing = sync is not None
        if sync is None:
            if self.high_watermark < log.synced_offset:
                self.advance(log.synced_offset)
            self._notify_synced(log.synced_offset)
        return sync

    def end_sync(self, sync: LogSync, readable_bytes: int, failure: DiskFailure | None) -> None:
        """The sync is over. `readable_bytes` is what was appended when it began.

        After a failure other than StorageFailed nothing is lost: waiting callers are answered by a later round.
        """
        self.is_syncing = False
        if failure is not None and not isinstance(failure, StorageFailed):
            return
        if failure is not None:
            # The disk may hold these records or not: they are neither acknowledged nor read.
            sync.fail(failure)
            self._give_up(lambda one: True, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
            return
        sync.finish()
        log = self._log or self._opened()
        if log.synced_offset < sync.end_offset:
            # Another sync of this log has failed meanwhile, so the log does not believe this one.
            self._give_up(lambda one: True, log_takes_no_records())
        elif self._policy.committed_offset(log.log_end_offset, log.synced_offset) == log.log_end_offset:
            self.commit_all()
        elif sync.end_offset > self.high_watermark:
            self.readable_bytes = max(self.readable_bytes, readable_bytes)
            self.advance(sync.end_offset)
        self._notify_synced(log.synced_offset)

    # --- waiting

    def give_up_overdue(self) -> None:
        """Fail the waits that have lasted for longer than their callers wanted, with REQUEST_TIMED_OUT."""
        self._give_up_overdue(self._clock.monotonic())

    def on_reached(self, offset: int, call: OnReached, timeout_ms: int = WAIT_MS_MAX) -> None:
        """Call once when the high watermark reaches `offset`, at once if it has, or when `timeout_ms` are over.

        The caller has appended up to `offset` just now, so the offsets of the waits rise, and a call waits at most for
        a later one that was asked for before (of a batch that is sent a second time).
        """
        if self.high_watermark < offset and self._log is None:
            # The high watermark is known once the log is open.
            try:
                self._opened()
            except StorageError as error:
                call(KafkaError(code_of(error), str(error)))
                return
        if self.high_watermark >= offset:
            call(None)
            return
        if self._log is not None and not self._log.is_writable:
            call(log_takes_no_records())
            return
        self._await(Awaited(offset, self._clock.monotonic() + timeout_ms / 1000, call))

    def on_synced(self, offset: int, call: OnReached) -> None:
        """Call once when everything below `offset` is on disk, also where the topic promises less; at once if it is."""
        log = self._log or self._opened()
        if log.synced_offset >= offset:
            call(None)
            return
        if not log.is_writable:
            call(log_takes_no_records())
            return
        self._await_sync(Awaited(offset, self._clock.monotonic() + WAIT_MS_MAX / 1000, call))
        self._syncs.add(self)


def _refuse_to_open(settings: TopicSettings) -> Log:
    raise LogClosed("the topic is deleted")
