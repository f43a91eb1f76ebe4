"""A partition: one ordered log, the offset up to which it may be read, and those who wait for that offset to rise."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kwire.broker.batch_validation import Validate, validate
from kwire.broker.partition.reserved_offsets import Awaited, OnMarkDue, OnReached, ReservedOffsets
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.topic_config import TopicSettings
from storage.batch import BatchHeader, parse_header, stamp_append_time
from storage.errors import (
    BatchTooLarge,
    BudgetExceeded,
    CoordinatorFenced,
    CorruptBatch,
    DiskFailure,
    InvalidBatch,
    InvalidProducerEpoch,
    InvalidTimestamp,
    InvalidTransactionState,
    LogClosed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    QuarantinedRange,
    StorageError,
    StorageFailed,
    UnsupportedCompression,
)
from storage.format import NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.log import Appended, Log
from storage.markers import build_marker
from storage.retention import hold_ring
from storage.segment import LogRead
from storage.syncing import LogSync
from storage.transactions import AbortedTransaction

Watcher = Callable[["Partition"], None]

# What a wait without a time limit of its own may take; a disk that is stuck for longer is reported.
WAIT_MS_MAX = 30_000
NEVER_MS = 2**63 - 1

# The nearest class of an error's family counts.
_CODES: dict[type, ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    InvalidBatch: ErrorCode.INVALID_RECORD,
    UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    LogClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    QuarantinedRange: ErrorCode.CORRUPT_MESSAGE,
    BudgetExceeded: ErrorCode.MESSAGE_TOO_LARGE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def code_of(error: StorageError) -> ErrorCode:
    """The code a client is told; a disk that failed is one it may retry."""
    return next(_CODES[family] for family in type(error).__mro__ if family in _CODES)


class Syncs(Protocol):
    """Who makes appended records durable, off the loop: `sync_rounds.py`."""

    def add(self, partition: "Partition") -> None:
        """Sync everything appended to it so far, soon; then its `end_sync` is called."""
        ...

    def add_within(self, partition: "Partition", delay_ms: int) -> None:
        """The same, but it may wait for so long."""
        ...


class Partition(ReservedOffsets):
    """Owns its log. Called from the event loop only.

    Records below `high_watermark` are as durable as the topic promises, and only those are ever read: with
    `kwire.log.sync=group` it rises when a sync round has put them on disk, with `os` when they are appended, unless
    `flush.messages` records have not been synced by then. Watchers are told of every rise, in the loop turn in which it
    happens; they must be quick and must not append.

    Records of a transaction count once it has ended: who reads committed data stays below `last_stable_offset`, and
    leaves out what was aborted. Only a marker below the high watermark moves that offset on, so there is nothing else
    to be told of. The log start may pass it, but then no record lies between the two.
    """

    __slots__ = (
        "_awaited",
        "_awaited_syncs",
        "_clock",
        "_is_flush_due",
        "_log",
        "_on_open",
        "_open_log",
        "_parked_stable_offset",
        "_syncs",
        "_watchers",
        "appended_bytes",
        "is_fetched",
        "is_leaving",
        "is_syncing",
        "is_unstable",
        "leader_epoch",
        "readable_bytes",
        "settings",
        "stored_bytes",
    )

    def __init__(
        self,
        topic_name: str,
        index: int,
        leader_epoch: int,
        settings: TopicSettings,
        clock: Clock,
        open_log: Callable[[], Log],
        syncs: Syncs,
        on_open: Callable[["Partition"], None] | None = None,
        on_mark_due: OnMarkDue | None = None,
    ) -> None:
        super().__init__(on_mark_due)
        self.topic_name = topic_name
        self.index = index
        self.leader_epoch = leader_epoch
        self.settings = settings
        # How much was ever appended in this run, and how much of that may be read.
        self.appended_bytes = 0
        self.readable_bytes = 0
        # What its files hold while the log is not open, as far as somebody looked.
        self.stored_bytes = 0
        # A round is at work on it.
        self.is_syncing = False
        # Somebody has read it; whoever wants to know when takes this back, and notes the time (`Topics`).
        self.is_fetched = False
        # Its topic is being deleted: what would be appended now would be acknowledged, and gone a moment later.
        self.is_leaving = False
        self._clock = clock
        self._open_log = open_log
        self._syncs = syncs
        self._on_open = on_open
        self._is_flush_due = False
        self._log: Log | None = None
        # Some transaction may not have ended for readers; if not, committed data goes as far as all.
        self.is_unstable = False
        # How far it went when the log was put away; nothing changes until that is opened again.
        self._parked_stable_offset = 0
        # All are made when first needed: most partitions of a large node are idle.
        self._watchers: set[Watcher] | None = None
        self._awaited: deque[Awaited] | None = None
        self._awaited_syncs: deque[Awaited] | None = None

    @property
    def log(self) -> Log:
        """The log, opened on first use: a node with many topics opens few of them."""
        if self._log is None:
            log = self._log = self._open_log()
            if log.synced_offset == log.log_end_offset or not self.settings.is_group_synced:
                self.high_watermark = log.log_end_offset
            else:
                # A kill left records in the page cache that a power cut could still take back.
                self.high_watermark = log.synced_offset
                self._syncs.add(self)
            self.is_unstable = log.producers.first_unstable(self.high_watermark) is not None
            if self.settings.retention_messages >= 0:
                hold_ring(log, self.last_stable_offset, self.settings.retention_messages)
            if self._on_open is not None:
                self._on_open(self)
        return self._log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read; opens the log, and raises StorageError if it cannot be opened."""
        return (self._log or self.log).log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets; opens the log, and raises StorageError if it cannot be opened."""
        return (self._log or self.log).log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of records; the log is not opened for it."""
        return self._log.size_bytes if self._log is not None else self.stored_bytes

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int | None = None, validate: Validate = validate
    ) -> Appended:
        """The one door in; raises StorageError or KafkaError. Callers that pass several batches supply `now_ms` once.

        The batch gets its offset and epoch in place, unless the topic stores it in another codec: that is a copy.
        `validate` is called for batches whose records may have to be read, and may raise errors of its own.
        """
        if self.is_leaving:
            raise _is_leaving()
        if now_ms is None:
            now_ms = self._clock.now_ms()
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            raise _too_large(len(batch), settings)
        timestamp = header.max_timestamp
        if not settings.is_plain or timestamp == NO_TIMESTAMP or timestamp - now_ms > settings.timestamp_after_max_ms:
            if settings.is_event_topic:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "this topic takes records through the event store only")
            batch, header = validate(batch, header, settings, now_ms)
        log = self._log or self.log
        if header.attributes & TRANSACTIONAL_BIT:
            self.is_unstable = True
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.is_duplicate:
            self._show(log, len(batch))
        return appended

    def append_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool) -> Appended:
        """The end of a producer's transaction in this partition; raises StorageError or KafkaError.

        It is the coordinator's word, so nothing that a topic asks of producers (sizes, times, keys) is asked of it.
        """
        if self.is_leaving:
            raise _is_leaving()
        if self.settings.is_event_topic:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "topics of the event store have no transactions")
        now_ms = self._clock.now_ms()
        batch = memoryview(bytearray(build_marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)))
        log = self._log or self.log
        self.is_unstable = True
        appended = log.append(batch, parse_header(batch), self.leader_epoch, now_ms)
        self._show(log, len(batch))
        return appended

    def _show(self, log: Log, size_bytes: int) -> None:
        """So many bytes were appended: they may be read now, or when they have been synced."""
        settings = self.settings
        self.appended_bytes = appended_bytes = self.appended_bytes + size_bytes
        end = log.log_end_offset
        if end - log.synced_offset >= settings.unsynced_messages_max:
            self._syncs.add(self)
            return
        self.readable_bytes = appended_bytes
        if settings.is_plain and not self._awaited and not self._watchers and end <= self._reserve_from:
            self.high_watermark = end  # nobody is to be told of it
            return
        self.advance(end)
        if settings.flush_ms != NEVER_MS and not self._is_flush_due:
            self._is_flush_due = True
            self._syncs.add_within(self, settings.flush_ms)

    # --- the same in several steps

    def validated(
        self, batch: memoryview, header: BatchHeader, now_ms: int, validate: Validate = validate
    ) -> tuple[memoryview, BatchHeader]:
        """The batch as an append takes it without another look at its records; raises StorageError or KafkaError."""
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            raise _too_large(len(batch), settings)
        return validate(batch, header, settings, now_ms)

    def prepare(
        self, batch: memoryview, header: BatchHeader, now_ms: int, validate: Validate = validate
    ) -> tuple[memoryview, BatchHeader]:
        """The batch as it will be stored, but for its place. Raises what an append would, sequences and disk aside."""
        self._check_mark()
        batch, header = self.validated(batch, header, now_ms, validate)
        if self.settings.is_log_append_time:
            stamp_append_time(batch, now_ms)
            header = parse_header(batch)
        return batch, header

    def append_journaled(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """A batch that is durable in the journal, with the epoch it has there. Nobody sees it before `show_all`."""
        log = self._log or self.log
        appended = log.append(batch, header, header.partition_leader_epoch, now_ms)
        if not appended.is_duplicate:
            self.appended_bytes += len(batch)
        return appended

    def show_all(self) -> None:
        """Everything that was appended may be read."""
        self.readable_bytes = self.appended_bytes
        self.advance((self._log or self.log).log_end_offset)

    def advance(self, high_watermark: int) -> None:
        """Records below this offset have become readable: the one signal out. Above the mark it waits for the next."""
        if high_watermark > self._reserve_from and not self._may_show(high_watermark):
            return
        self.high_watermark = high_watermark
        settings = self.settings
        if not settings.is_plain and settings.retention_messages >= 0 and self._log is not None:
            # Counted from where readers stand: records that nobody may read yet must not push out those that can be.
            hold_ring(self._log, self.last_stable_offset, settings.retention_messages)
        awaited = self._awaited
        if awaited:
            while awaited and awaited[0].offset <= high_watermark:
                awaited.popleft().call(None)
        if self._watchers:
            for watcher in tuple(self._watchers):
                watcher(self)

    # --- syncing, called by the rounds

    def begin_sync(self) -> LogSync | None:
        """What a thread has to do now; None when everything is on disk, or will never be."""
        self._is_flush_due = False
        log = self._log
        if log is None:
            return None
        if not log.is_writable and log.damage is None:  # broken, or deleted
            self._give_up(lambda one: True, _takes_no_more())
            return None
        sync = log.begin_sync()
        self.is_syncing = sync is not None
        if sync is None:
            if self.high_watermark < log.synced_offset:
                self.advance(log.synced_offset)
            self._tell_synced(log)
        return sync

    def end_sync(self, sync: LogSync, readable_bytes: int, failure: DiskFailure | None) -> None:
        """The round is over. `readable_bytes` is what was appended when it began.

        After a failure other than StorageFailed nothing is lost: waiting callers are answered by a later round.
        """
        self.is_syncing = False
        if failure is not None and not isinstance(failure, StorageFailed):
            return
        if failure is not None:
            # The disk may hold these records or not: nobody is told that they are stored, and nobody reads them.
            sync.fail(failure)
            self._give_up(lambda one: True, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
            return
        sync.finish()
        log = self._log
        if log is not None and log.synced_offset < sync.end_offset:
            # Another sync of this log has failed meanwhile, so the log does not believe this one.
            self._give_up(lambda one: True, _takes_no_more())
        elif log is not None and log.log_end_offset - log.synced_offset < self.settings.unsynced_messages_max:
            self.readable_bytes = self.appended_bytes
            self.advance(log.log_end_offset)
        elif sync.end_offset > self.high_watermark:
            self.readable_bytes = max(self.readable_bytes, readable_bytes)
            self.advance(sync.end_offset)
        if log is not None:
            self._tell_synced(log)

    def _tell_synced(self, log: Log) -> None:
        awaited = self._awaited_syncs
        while awaited and awaited[0].offset <= log.synced_offset:
            awaited.popleft().call(None)

    def give_up_after(self, waited_ms: int) -> None:
        """The disk has not answered for so long: those who wanted an answer by now get one."""
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the disk has been busy for {waited_ms} ms")
        self._give_up(lambda one: one.timeout_ms <= waited_ms, error)

    def _give_up(self, is_over: Callable[[Awaited], bool], error: KafkaError) -> None:
        awaited = [*(self._awaited or ()), *(self._awaited_syncs or ())]
        self._awaited = _kept(self._awaited, is_over)
        self._awaited_syncs = _kept(self._awaited_syncs, is_over)
        for one in awaited:
            if is_over(one):
                one.call(error)

    def forget(self) -> None:
        """Its topic was deleted: whoever still holds it finds it closed, and opens nothing in its place."""
        self._open_log = _refuse_to_open
        self.is_leaving = False

    @property
    def is_forgotten(self) -> bool:
        """Whether its topic was deleted."""
        return self._open_log is _refuse_to_open

    def park(self) -> bool:
        """Give back what the open log holds; it opens again when somebody needs it. False if it is in use just now."""
        log = self._log
        if log is None:
            return True
        is_in_use = self.is_syncing or self._awaited or self._awaited_syncs
        if not is_in_use and log.is_writable and log.synced_offset < log.log_end_offset:
            # With `os` nobody else asks for it, and a log that is not synced cannot be put away.
            self._syncs.add(self)
            return False
        # A log with harm stays, so that the metrics go on telling of it.
        if is_in_use or log.quarantined or log.damage is not None or not log.park():
            return False
        self.stored_bytes = log.size_bytes
        self._parked_stable_offset = self.last_stable_offset
        self._log = None
        return True

    def go_on_in(self, log: Log) -> None:
        """The same records in another directory: from now on this is the log. No sync of the old one is under way.

        What could be read stays readable, and whoever waits for an offset goes on waiting.
        """
        self._log = log

    # --- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> LogRead:
        """Whole batches from the one that holds `offset`, none at or above the high watermark."""
        log = self._log or self.log
        return log.read(offset, max_bytes, self.high_watermark, at_least_one=at_least_one)

    @property
    def last_stable_offset(self) -> int:
        """Every transaction below has ended. Like the high watermark it is known once the log is open."""
        if not self.is_unstable:
            return self.high_watermark
        log = self._log
        if log is None:
            return self._parked_stable_offset
        self.is_unstable = log.producers.first_unstable(self.high_watermark) is not None
        return log.last_stable_offset(self.high_watermark)

    def read_committed(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True
    ) -> tuple[LogRead, list[AbortedTransaction]]:
        """The same below the last stable offset, and the transactions whose batches in it are to be left out.

        Those are in the order in which they began. A batch belongs to one of them if it is of its producer, is
        transactional, and lies between its first offset and its marker.
        """
        log = self._log or self.log
        end = self.last_stable_offset if self.is_unstable else self.high_watermark
        read = log.read(offset, max_bytes, end, at_least_one=at_least_one)
        return read, log.aborted_between(offset, read.next_offset) if read.view else []

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer, with this epoch, has a transaction here that has not ended."""
        transaction = (self._log or self.log).open_transaction(producer_id)
        return transaction is not None and transaction.producer_epoch == producer_epoch

    def cold_start(self, offset: int) -> Callable[[], None] | None:
        """What a thread has to run before a read from `offset` can begin without waiting for the disk, if anything."""
        log = self._log or self.log
        return None if log.is_start_warm(offset) else partial(log.warm_start, offset)

    def cold_aborted(self, offset: int) -> Callable[[], None] | None:
        """The same for what `read_committed` has to know besides."""
        log = self._log or self.log
        return None if log.is_aborted_warm(offset) else partial(log.warm_aborted, offset)

    def watch(self, watcher: Watcher) -> None:
        if self._watchers is None:
            self._watchers = set()
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if self._watchers is not None:
            self._watchers.discard(watcher)

    def on_reached(self, offset: int, call: OnReached, timeout_ms: int = WAIT_MS_MAX) -> None:
        """Call once when the high watermark reaches `offset`; at once if it has.

        Whoever asks has appended up to `offset` just now, so the offsets asked for rise, and a call waits at most for
        a later one that was asked for before (of a batch that is sent a second time).
        """
        if self.high_watermark < offset and self._log is None:
            # Made anew since then: how far it may be read is known once it is open.
            try:
                self.log  # noqa: B018
            except StorageError as error:
                call(KafkaError(code_of(error), str(error)))
                return
        if self.high_watermark >= offset:
            call(None)
            return
        if self._log is not None and not self._log.is_writable:
            call(_takes_no_more())
            return
        if self._awaited is None:
            self._awaited = deque()
        self._awaited.append(Awaited(offset, timeout_ms, call))

    def on_synced(self, offset: int, call: OnReached) -> None:
        """Call once when everything below `offset` is on disk, also where the topic promises less; at once if it is."""
        log = self._log or self.log
        if log.synced_offset >= offset:
            call(None)
            return
        if not log.is_writable:
            call(_takes_no_more())
            return
        if self._awaited_syncs is None:
            self._awaited_syncs = deque()
        self._awaited_syncs.append(Awaited(offset, WAIT_MS_MAX, call))
        self._syncs.add(self)


def _too_large(size_bytes: int, settings: TopicSettings) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
    )


def _is_leaving() -> KafkaError:
    # Producers look for the topic and send again: it is gone by then, or stays because it could not be deleted.
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic is being deleted")


def _kept(awaited: deque[Awaited] | None, is_over: Callable[[Awaited], bool]) -> deque[Awaited] | None:
    return deque(one for one in awaited or () if not is_over(one)) or None


def _refuse_to_open() -> Log:
    raise LogClosed("the topic is deleted")


def _takes_no_more() -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log takes no more records")
