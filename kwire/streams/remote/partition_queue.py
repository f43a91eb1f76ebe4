"""PartitionQueue: the appends to one remote partition, and the sequence numbers of its idempotent producer. No I/O.

At most one batch of a partition is on its way; what arrives meanwhile waits and becomes one batch if it can be merged.
So batches cannot overtake each other, whatever fails. A batch is sent again with the same sequence number until the
broker says what became of it, and the broker stores it once.

An attempt is *uncertain* if the broker may have stored the batch although it has not said so. If the batch is given up
then, its appends fail with `UnknownOutcome`, and the next batch has a higher producer epoch. Then the broker refuses
the batch that was given up, should it still arrive.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.kafka_client.errors import RETRIABLE, UNCERTAIN, refusal
from kwire.streams.log import Appended
from kwire.streams.remote.merging import GivenBatch, first_deltas, merge, mergeable_count, stamp_producer
from storage.batch.format import NO_PRODUCER_ID
from storage.batch.record_batch import BatchHeader

# The maximum number of bytes without an outcome, of one queue and of all. Above these limits, appends are refused.
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
ALL_WAITING_BYTES_MAX: Final = 128 * 1024 * 1024
# How long an append may take, with all attempts.
DELIVERY_SECONDS: Final = 30.0
# A batch changes its producer epoch at most this often. Each time, the broker has lost what it knew of the producer.
RENEWALS_MAX: Final = 3
EPOCH_MAX: Final = 0x7FFF
_SEQUENCES: Final = 1 << 31

# The broker does not know the producer's last batches, or it knows a later epoch.
_SEQUENCE_ERRORS: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_NO_BASE_OFFSET: Final = -1


class UnknownOutcome(KafkaError):
    """Records that may or may not have been stored."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{what}: it is not known whether the records were stored: {reason}; read the topic before a repetition",
        )


class State(Enum):
    """The state of a queue: nothing to do, a batch to send, or a batch that waits for its answer."""

    IDLE = auto()
    READY = auto()
    SENT = auto()


class WaitingBytes:
    """The bytes without an outcome of all queues."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class _Waiting(NamedTuple):
    given: GivenBatch
    appended: Appended
    deadline: float


class _Current:
    """The batch that is sent, or is to be sent again."""

    __slots__ = ("appends", "data", "deadline", "deltas", "is_uncertain", "reason", "record_count", "renewals")

    def __init__(self, appends: list[_Waiting]) -> None:
        headers = [one.given.header for one in appends]
        self.appends = appends
        self.data = appends[0].given.batch if len(appends) == 1 else merge([one.given for one in appends])
        self.deltas = first_deltas(headers)
        self.record_count = sum(header.record_count for header in headers)
        self.deadline = appends[0].deadline
        self.is_uncertain = False
        self.renewals = 0
        self.reason = "the broker did not answer"


class PartitionQueue:
    """`what` names the partition in errors."""

    __slots__ = (
        "_current",
        "_is_merging",
        "_is_sent",
        "_needs_renewal",
        "_total",
        "_waiting",
        "epoch",
        "max_batch_bytes",
        "next_sequence",
        "producer_id",
        "reason",
        "waiting_bytes",
        "what",
    )

    def __init__(self, what: str, max_batch_bytes: int, total: WaitingBytes) -> None:
        self.what = what
        self.max_batch_bytes = max_batch_bytes
        self._total = total
        self.producer_id = NO_PRODUCER_ID
        self.epoch = 0
        self.next_sequence = 0
        # The bytes of all appends without an outcome.
        self.waiting_bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._current: _Current | None = None
        self._is_sent = False
        self._needs_renewal = False
        self._is_merging = True
        # Why nothing has been sent for some time.
        self.reason = "no leader was found"

    @property
    def state(self) -> State:
        if self._is_sent:
            return State.SENT
        return State.READY if self._current is not None or self._waiting else State.IDLE

    @property
    def needs_producer_id(self) -> bool:
        """Whether a producer id has to be requested before the next batch can be sent."""
        return self.producer_id == NO_PRODUCER_ID or (self._needs_renewal and self.epoch >= EPOCH_MAX)

    @property
    def deadline(self) -> float | None:
        """The time at which `expire` has something to do."""
        if self._current is not None:
            return self._current.deadline
        return self._waiting[0].deadline if self._waiting else None

    def add(self, batch: memoryview, header: BatchHeader, appended: Appended, now: float) -> None:
        """Add an append. It completes with an error if too many bytes wait."""
        size, total = len(batch), self._total
        if self.waiting_bytes + size > WAITING_BYTES_MAX or total.used + size > ALL_WAITING_BYTES_MAX:
            appended(KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{self.what}: too many events wait to be stored"))
            return
        self.waiting_bytes += size
        total.used += size
        self._waiting.append(_Waiting(GivenBatch(batch, header), appended, now + DELIVERY_SECONDS))

    def use_producer(self, producer_id: int, epoch: int) -> None:
        """Use a new producer id from the next batch on. The batch that waits for an answer keeps its own."""
        assert not self._is_sent
        self.producer_id, self.epoch, self.next_sequence = producer_id, epoch, 0
        self._needs_renewal = False

    def take(self) -> memoryview:
        """Return the batch to send, and wait for its answer. The state must be READY, with a producer id."""
        assert self.state is State.READY
        assert not self.needs_producer_id
        if self._needs_renewal:
            self.epoch += 1
            self.next_sequence = 0
            self._needs_renewal = False
        if self._current is None:
            self._current = self._next_batch()
        current = self._current
        # A batch with an uncertain attempt has the same stamp as before: a renewal would have ended it.
        stamp_producer(current.data, self.producer_id, self.epoch, self.next_sequence)
        self._is_sent = True
        return current.data

    # --- what became of the batch

    def stored(self, base_offset: int) -> None:
        """The broker has stored the batch, in this attempt or an earlier one."""
        current = self._end_attempt()
        if base_offset == _NO_BASE_OFFSET:
            self._give_up(UnknownOutcome(self.what, "the broker had stored them before, and did not say where"))
            return
        self.next_sequence = (self.next_sequence + current.record_count) % _SEQUENCES
        self._current = None
        self._release(current.appends)
        for append, delta in zip(current.appends, current.deltas, strict=True):
            append.appended(base_offset + delta)

    def refused(self, code: int, message: str | None = None) -> bool:
        """The broker has answered with an error. Return whether the batch is given up, not sent again."""
        current = self._end_attempt()
        error = refusal(self.what, code, message)
        current.reason = error.message or error.code.name
        if code in _SEQUENCE_ERRORS:
            self._lose_producer(current, error)
        elif code in UNCERTAIN:
            current.is_uncertain = True
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._give_up(UnknownOutcome(self.what, "the broker had stored them before, and did not say where"))
        elif code == ErrorCode.UNKNOWN_SERVER_ERROR:
            current.is_uncertain = True
            self._give_up(error)
        elif code in RETRIABLE:
            pass
        elif code == ErrorCode.MESSAGE_TOO_LARGE and len(current.appends) > 1 and not current.is_uncertain:
            # The topic's limit is lower than it was. Each batch is tried on its own.
            self._is_merging = False
            self._waiting.extendleft(reversed(current.appends))
            self._current = None
        else:
            self._give_up(error)
        return self._current is not current

    def lost(self, reason: str) -> None:
        """The connection was lost after the batch was sent."""
        current = self._end_attempt()
        current.is_uncertain = True
        current.reason = reason

    def not_sent(self, reason: str) -> None:
        """The batch was not sent after all."""
        self._end_attempt().reason = reason

    def not_ready(self, reason: str) -> None:
        """The batch cannot be sent yet, for this reason."""
        if self._current is not None:
            self._current.reason = reason
        self.reason = reason

    def expire(self, now: float) -> None:
        """Give up the appends whose time is over. A batch that waits for an answer is given up after the answer."""
        current = self._current
        if current is not None and current.deadline <= now and not self._is_sent:
            self._give_up(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.what}: not stored in time: {current.reason}"))
        while self._waiting and self._waiting[0].deadline <= now:
            append = self._waiting.popleft()
            self._release([append])
            append.appended(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.what}: not stored in time: {self.reason}"))

    def fail(self, error: KafkaError) -> None:
        """Give up everything, because the topic was deleted or the client is closed."""
        if self._is_sent:
            self.lost(str(error))
        if self._current is not None:
            self._give_up(error)
        waiting, self._waiting = self._waiting, deque()
        self._release(waiting)
        for append in waiting:
            append.appended(as_value(error))

    # --- steps

    def _next_batch(self) -> _Current:
        bytes_max = self.max_batch_bytes if self._is_merging else 0
        count = mergeable_count((one.given.header for one in self._waiting), bytes_max)
        return _Current([self._waiting.popleft() for _ in range(count)])

    def _end_attempt(self) -> _Current:
        assert self._is_sent
        assert self._current is not None
        self._is_sent = False
        return self._current

    def _lose_producer(self, current: _Current, error: KafkaError) -> None:
        """The broker does not accept the sequence number."""
        self._needs_renewal = True
        if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and error.code != ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker knows a later epoch of this producer id, which therefore cannot be used any longer.
            self.producer_id = NO_PRODUCER_ID
        current.renewals += 1
        # An uncertain attempt may have stored the batch: with another sequence number it could be stored twice.
        if current.is_uncertain or current.renewals > RENEWALS_MAX:
            self._give_up(error)

    def _give_up(self, error: KafkaError) -> None:
        """Fail all appends of the current batch."""
        current = self._current
        assert current is not None
        self._current = None
        self._release(current.appends)
        if current.is_uncertain or isinstance(error, UnknownOutcome):
            self._needs_renewal = True
            if not isinstance(error, UnknownOutcome):
                error = UnknownOutcome(self.what, current.reason)
        for append in current.appends:
            append.appended(as_value(error))

    def _release(self, appends: Iterable[_Waiting]) -> None:
        size = sum(len(one.given.batch) for one in appends)
        self.waiting_bytes -= size
        self._total.used -= size
