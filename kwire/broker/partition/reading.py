"""The readable side of a partition: its leader epoch, its offsets, its producers, and reads of committed records."""

from collections.abc import Callable, Iterator
from functools import partial

from kwire.broker.partition.reserved_offsets import OnMarkDue, ReservedOffsets
from kwire.broker.partition.time_search import TimeSearch, search_largest_time, search_time
from kwire.errors import ErrorCode, KafkaError
from storage.batch import BatchHeader
from storage.format import NO_TIMESTAMP
from storage.log import Damage, Log
from storage.producers import ProducedBatch, ProducerState
from storage.quarantine import Quarantine
from storage.segment import LogRead
from storage.transactions import AbortedTransaction, OpenTransaction

# The leader epoch of a client that names none.
UNKNOWN_EPOCH = -1


class ReadablePartition(ReservedOffsets):
    """The part of a partition that answers questions about its log. The log is opened on first use."""

    __slots__ = ("_log", "_parked_stable_offset", "accepted_epochs", "is_unstable", "leader_epoch", "stored_bytes")

    def __init__(self, topic_name: str, index: int, leader_epoch: int, on_mark_due: OnMarkDue | None) -> None:
        super().__init__(on_mark_due)
        self.topic_name = topic_name
        self.index = index
        self.leader_epoch = leader_epoch
        # The epochs that a client may name in a request to the leader; none if this node does not lead the partition.
        self.accepted_epochs: tuple[int, ...] = (UNKNOWN_EPOCH, leader_epoch)
        # Bytes of its files while the log is not open, as far as they have been measured.
        self.stored_bytes = 0
        # Some transaction may not have ended for readers; if not, committed data goes as far as all.
        self.is_unstable = False
        self._log: Log | None = None
        # The last stable offset at the moment when the log was parked; it stays until the log is opened again.
        self._parked_stable_offset = 0

    def _opened(self) -> Log:
        """Open the log; raises StorageError."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        return self._log is not None

    # --- leadership and facts

    def check_leader(self, client_epoch: int = UNKNOWN_EPOCH) -> None:
        """Raise KafkaError unless this node leads the partition, and in the epoch that the client knows (KIP-320).

        This node leads every partition that it has. A client with an older epoch has to refresh its metadata, one with
        a newer epoch has to retry. Hot paths call this only for an epoch that is not in `accepted_epochs`.
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
        return (self._log or self._opened()).log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return (self._log or self._opened()).log_end_offset

    @property
    def synced_offset(self) -> int:
        """Everything below it is on disk."""
        return (self._log or self._opened()).synced_offset

    @property
    def is_writable(self) -> bool:
        """Whether the log takes records: it does not if it is damaged at its end, failed to be synced, or is closed."""
        return (self._log or self._opened()).is_writable

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed for good: its topic was deleted, or the server is stopping."""
        return (self._log or self._opened()).is_closed

    @property
    def damage(self) -> Damage | None:
        """Why the log can only be read, up to the offset named there."""
        return (self._log or self._opened()).damage

    @property
    def quarantined(self) -> tuple[Quarantine, ...]:
        """Ranges of the log that cannot be read, in the order of their offsets."""
        return (self._log or self._opened()).quarantined

    @property
    def size_bytes(self) -> int:
        """Bytes of records; does not open the log."""
        return self._log.size_bytes if self._log is not None else self.stored_bytes

    @property
    def last_timestamp(self) -> int:
        """The largest timestamp in the newest segment; negative if it has none."""
        *_, last = (None, *(self._log or self._opened()).segments())
        return last.max_timestamp if last is not None else NO_TIMESTAMP

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest known leader epoch not above `epoch`, and the offset after its last record; -1 if unknown."""
        log = self._log or self._opened()
        return log.epochs.end_offset_for(epoch, log.log_end_offset, self.leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote the record of this offset; for one that is not written yet, the current one."""
        log = self._log or self._opened()
        return log.epochs.epoch_for(offset) if offset < log.log_end_offset else self.leader_epoch

    def producers(self) -> Iterator[tuple[int, ProducerState, OpenTransaction | None]]:
        """Each known producer: its id, its state, and its transaction that has not ended."""
        log = self._log or self._opened()
        return ((one, state, log.open_transaction(one)) for one, state in log.producers.items())

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer, with this epoch, has a transaction here that has not ended."""
        transaction = (self._log or self._opened()).open_transaction(producer_id)
        return transaction is not None and transaction.producer_epoch == producer_epoch

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """Where a producer's batch was appended before; None if it is the next one. Raises StorageError if neither."""
        return (self._log or self._opened()).producers.check(header)

    # --- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> LogRead:
        """Whole batches from the one that holds `offset`, none at or above the high watermark."""
        log = self._log or self._opened()
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

    def readable_end(self, *, is_committed: bool) -> int:
        """The offset after the last record that a reader, or a reader of committed data, gets."""
        if self._log is None:
            self._opened()
        return self.last_stable_offset if is_committed else self.high_watermark

    def read_committed(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True
    ) -> tuple[LogRead, list[AbortedTransaction]]:
        """The same below the last stable offset, and the transactions whose batches in it are to be left out.

        Those are in the order in which they began. A batch belongs to one of them if it is of its producer, is
        transactional, and lies between its first offset and its marker.
        """
        log = self._log or self._opened()
        end = self.last_stable_offset if self.is_unstable else self.high_watermark
        read = log.read(offset, max_bytes, end, at_least_one=at_least_one)
        return read, log.aborted_between(offset, read.next_offset) if read.view else []

    def cold_start(self, offset: int) -> Callable[[], None] | None:
        """What a thread has to run before a read from `offset` can begin without waiting for the disk, if anything."""
        log = self._log or self._opened()
        return None if log.is_start_warm(offset) else partial(log.warm_start, offset)

    def cold_aborted(self, offset: int) -> Callable[[], None] | None:
        """The same for the aborted transactions that `read_committed` returns."""
        log = self._log or self._opened()
        return None if log.is_aborted_warm(offset) else partial(log.warm_aborted, offset)

    def search_time(self, timestamp_ms: int, *, is_committed: bool) -> TimeSearch:
        """A search, for a thread, for the first readable record with this timestamp or a later one."""
        log = self._log or self._opened()
        return search_time(log, timestamp_ms, self.readable_end(is_committed=is_committed))

    def search_largest_time(self, *, is_committed: bool) -> TimeSearch:
        """A search, for a thread, for the readable record with the largest timestamp."""
        log = self._log or self._opened()
        return search_largest_time(log, self.readable_end(is_committed=is_committed))

    def is_outdated(self, search: TimeSearch) -> bool:
        """Whether the files that a search has read have been removed or replaced: then it has to be made again."""
        return search.is_outdated(self._log or self._opened())
