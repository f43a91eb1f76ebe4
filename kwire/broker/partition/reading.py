"""The read methods of a partition: for its leader epoch, offsets and producers, and for its committed records."""

from collections.abc import Callable, Iterator
from functools import partial

from kwire.broker.partition.reserved_offsets import OnMarkDue, ReservedOffsets
from kwire.broker.partition.time_search import TimeSearch, search_largest_time, search_time
from kwire.errors import ErrorCode, KafkaError
from storage.batch.format import NO_TIMESTAMP
from storage.batch.record_batch import BatchHeader
from storage.log.log import Damage, Log
from storage.log.producers import ProducedBatch, ProducerState
from storage.log.quarantine import Quarantine
from storage.log.transactions import AbortedTransaction, OpenTransaction
from storage.segment.segment import LogRead

# The value that clients send if they do not know the leader epoch.
UNKNOWN_EPOCH = -1


class ReadablePartition(ReservedOffsets):
    """The part of a partition that reads its log. The log is opened on first use."""

    __slots__ = ("_log", "_parked_stable_offset", "accepted_epochs", "is_unstable", "leader_epoch", "stored_bytes")

    def __init__(self, topic_name: str, index: int, leader_epoch: int, on_mark_due: OnMarkDue | None) -> None:
        super().__init__(on_mark_due)
        self.topic_name = topic_name
        self.index = index
        self.leader_epoch = leader_epoch
        # The leader epochs that are accepted in a client's request. Empty if this node does not lead the partition.
        self.accepted_epochs: tuple[int, ...] = (UNKNOWN_EPOCH, leader_epoch)
        # The size of the log's files while the log is not open. 0 if it has not been measured.
        self.stored_bytes = 0
        # Whether a transaction may be open. If none is open, the last stable offset equals the high watermark.
        self.is_unstable = False
        self._log: Log | None = None
        # The last stable offset when the log was parked. It is valid until the log is opened again.
        self._parked_stable_offset = 0

    def _open_now(self) -> Log:
        """Open the log. Raises StorageError."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        return self._log is not None

    # --- leadership and facts

    def check_leader(self, client_epoch: int = UNKNOWN_EPOCH) -> None:
        """Raise KafkaError unless this node leads the partition in the leader epoch `client_epoch` (KIP-320).

        This node leads every partition that it has. A client with an older epoch has to refresh its metadata. A client
        with a newer epoch has to retry. Hot paths call this method only if the epoch is not in `accepted_epochs`.
        """
        if client_epoch in self.accepted_epochs:
            return
        if not self.accepted_epochs:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if client_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return (self._log or self._open_now()).log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return (self._log or self._open_now()).log_end_offset

    @property
    def synced_offset(self) -> int:
        """The offset below which all records are on disk."""
        return (self._log or self._open_now()).synced_offset

    @property
    def is_writable(self) -> bool:
        """Whether the log accepts records. False if its end is damaged, a sync has failed, or the log is closed."""
        return (self._log or self._open_now()).is_writable

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed permanently, because its topic was deleted or the server is stopping."""
        return (self._log or self._open_now()).is_closed

    @property
    def damage(self) -> Damage | None:
        """The damage at the end of the log, or None.

        A damaged log is read-only and ends at the offset of the damage.
        """
        return (self._log or self._open_now()).damage

    @property
    def quarantined(self) -> tuple[Quarantine, ...]:
        """Ranges of the log that cannot be read, in the order of their offsets."""
        return (self._log or self._open_now()).quarantined

    @property
    def size_bytes(self) -> int:
        """The size of the records in bytes. This does not open the log."""
        return self._log.size_bytes if self._log is not None else self.stored_bytes

    @property
    def last_timestamp(self) -> int:
        """The largest timestamp in the newest segment. Negative if the segment has no timestamp."""
        *_, last = (None, *(self._log or self._open_now()).segments())
        return last.max_timestamp if last is not None else NO_TIMESTAMP

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch that is at most `epoch`, and the offset after its last record.

        Both are -1 if there is no such epoch.
        """
        log = self._log or self._open_now()
        return log.epochs.end_offset_for(epoch, log.log_end_offset, self.leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`. At or above the log end offset: the current epoch."""
        log = self._log or self._open_now()
        return log.epochs.epoch_for(offset) if offset < log.log_end_offset else self.leader_epoch

    def producers(self) -> Iterator[tuple[int, ProducerState, OpenTransaction | None]]:
        """Yield each known producer: its id, its state, and its open transaction or None."""
        log = self._log or self._open_now()
        return ((one, state, log.open_transaction(one)) for one, state in log.producers.items())

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer has an open transaction with this epoch in the partition."""
        transaction = (self._log or self._open_now()).open_transaction(producer_id)
        return transaction is not None and transaction.producer_epoch == producer_epoch

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """Return the earlier append of the same batch, or None if the batch is the producer's next batch in sequence.

        Raises StorageError if the batch is neither a duplicate nor the next batch.
        """
        return (self._log or self._open_now()).producers.check(header)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> LogRead:
        """Read complete batches below the high watermark. The first is the batch that contains `offset`."""
        log = self._log or self._open_now()
        return log.read(offset, max_bytes, self.high_watermark, at_least_one=at_least_one)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open. It is not known before the log has been opened once."""
        if not self.is_unstable:
            return self.high_watermark
        log = self._log
        if log is None:
            return self._parked_stable_offset
        self.is_unstable = log.producers.first_unstable(self.high_watermark) is not None
        return log.last_stable_offset(self.high_watermark)

    def readable_end(self, *, is_committed: bool) -> int:
        """Return the end of the readable records: the last stable offset if `is_committed`, else the high watermark."""
        if self._log is None:
            self._open_now()
        return self.last_stable_offset if is_committed else self.high_watermark

    def read_committed(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True
    ) -> tuple[LogRead, list[AbortedTransaction]]:
        """Read below the last stable offset. Also returns the aborted transactions whose batches the reader must skip.

        The transactions are in the order in which they began. A batch belongs to an aborted transaction if it is
        transactional, has the transaction's producer id, and lies between its first offset and its marker.
        """
        log = self._log or self._open_now()
        end = self.last_stable_offset if self.is_unstable else self.high_watermark
        read = log.read(offset, max_bytes, end, at_least_one=at_least_one)
        return read, log.aborted_between(offset, read.next_offset) if read.view else []

    def cold_start(self, offset: int) -> Callable[[], None] | None:
        """Return a function that loads the pages in which a read from `offset` starts. A thread has to run it.

        Returns None if the pages are already in memory.
        """
        log = self._log or self._open_now()
        return None if log.is_start_warm(offset) else partial(log.warm_start, offset)

    def cold_aborted(self, offset: int) -> Callable[[], None] | None:
        """Like `cold_start`, for the pages of the aborted transactions that `read_committed` returns."""
        log = self._log or self._open_now()
        return None if log.is_aborted_warm(offset) else partial(log.warm_aborted, offset)

    def search_time(self, timestamp_ms: int, *, is_committed: bool) -> TimeSearch:
        """Return a search for the first readable record with this timestamp or a later one. A thread has to run it."""
        log = self._log or self._open_now()
        return search_time(log, timestamp_ms, self.readable_end(is_committed=is_committed))

    def search_largest_time(self, *, is_committed: bool) -> TimeSearch:
        """Return a search for the readable record with the largest timestamp. A thread has to run it."""
        log = self._log or self._open_now()
        return search_largest_time(log, self.readable_end(is_committed=is_committed))

    def is_outdated(self, search: TimeSearch) -> bool:
        """Whether the files that a search has read were removed or replaced. If so, the search has to be repeated."""
        return search.is_outdated(self._log or self._open_now())
