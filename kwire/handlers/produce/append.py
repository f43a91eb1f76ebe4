"""The append of one batch to a partition, its partition response, and the wait until batches are committed.

Every batch of a Kafka producer becomes a `PartitionAppend`. This includes transactional batches, batches for the event
store, and batches of requests that fit a template. Nothing else in the Kafka protocol appends records.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

from msgspec import Struct

from kwire.broker.batch_validation import Validate, Validated
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.config.resources.topic import TopicSettings
from kwire.enum_members import fast_members
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.handlers.produce.errors import Failure, failure_of
from kwire.handlers.shared.context import Peer
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.event_store.pending_commit import Outcome, StoredCommit
from kwire.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from storage.batch.record_batch import BatchHeader
from storage.errors import DiskFailure, StorageError
from storage.log.log import Appended


@fast_members
class State(Enum):
    """The state of a batch."""

    RECEIVED = auto()
    # The batch passed all checks. A transactional batch may wait for the coordinator. A batch for the event store waits
    # for the event journal.
    ADMITTED = auto()
    # The batch is in the log, but not yet as durable as the topic's kwire.log.sync requires.
    APPENDED = auto()
    COMMITTED = auto()
    FAILED = auto()


NOT_APPENDED = Appended(-1, -1, -1, False)
_NO_BATCH = memoryview(b"")
_SET_BY_ADMISSION: Any = None


class PartitionAppend(Struct, eq=False, gc=False):
    """A batch for one partition of a request, and its outcome.

    The response has `index`, `failure`, `appended` and `log_start_offset`. `batch` is set to an empty view when the
    append only waits, so that the memory of the request can be reused. The garbage collector does not track these
    objects: their only reference cycle is through `on_settled`, and `settle` breaks the cycle.
    """

    index: int
    batch: memoryview
    partition: Partition = _SET_BY_ADMISSION
    header: BatchHeader = _SET_BY_ADMISSION
    failure: Failure | None = None
    # The offsets and the append time.
    appended: Appended = NOT_APPENDED
    log_start_offset: int = -1
    # For a batch that was passed to its transaction or to the event store: called when its outcome is known.
    on_settled: Callable[[], None] | None = None
    # True if `batch` is a copy, not a view of the request's memory.
    is_copy: bool = False
    # The connection that reserved memory for the copy, and the size of the copy.
    owner: Peer | None = None
    reserved_bytes: int = 0

    @property
    def state(self) -> State:
        if self.failure is not None:
            return State.FAILED
        if self.appended is NOT_APPENDED:
            return State.RECEIVED if self.header is None else State.ADMITTED
        return State.COMMITTED if self.appended.last_offset < self.partition.high_watermark else State.APPENDED

    def append_to_log(self, validate: Validate, now_ms: int | None = None) -> bool:
        """Append the batch to its log. Return False if it is not yet committed, so that the request has to wait.

        Errors are stored in `failure`, except TooLongForLoop, which `validate` may raise and this method raises again.
        """
        partition = self.partition
        try:
            try:
                self.appended = appended = partition.append(self.batch, self.header, now_ms, validate)
            except DiskFailure:
                # After a partial write the segment takes no more appends. The second append truncates this segment and
                # writes to a new segment, for which the disk may have enough space.
                self.appended = appended = partition.append(self.batch, self.header, now_ms, validate)
            self.log_start_offset = partition.log_start_offset
        except (KafkaError, StorageError) as error:
            self.fail(error)
            return True
        return appended.last_offset < partition.high_watermark

    def commit_event(self, store: EventStore, topic: Topic, owner: Peer, timeout_ms: int, validate: Validate) -> None:
        """Commit the batch through the event journal. Raises KafkaError or StorageError if the batch is invalid.

        The event store keeps a copy of the batch, and memory is reserved for this copy.
        """

        def validate_and_reserve(
            batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
        ) -> Validated:
            validated = validate(batch, header, settings, now_ms)
            self.reserve(owner, len(validated[0]))
            return validated

        try:
            store.produce(topic, self.batch, self.header, self._stored, timeout_ms, validate_and_reserve)
        except BaseException:
            self.release()
            raise
        self.batch = _NO_BATCH

    def _stored(self, outcome: Outcome) -> None:
        if isinstance(outcome, StoredCommit):
            [placed] = outcome.parts
            last_offset = placed.base_offset + placed.event_count - 1
            self.appended = Appended(placed.base_offset, last_offset, outcome.append_time_ms, outcome.is_repeated)
            if self.partition.is_open:
                self.log_start_offset = self.partition.log_start_offset
            self.release()
        else:
            self.fail(outcome)
        self.settle()

    def fail(self, error: KafkaError | StorageError | StreamError) -> None:
        """Set the error of a batch that was not stored, or that may or may not be stored (a timeout)."""
        self.failure = failure_of(error)
        self.batch = _NO_BATCH
        self.release()

    # --- waiting

    def wait(self, on_settled: Callable[[], None], timeout_ms: int) -> None:
        """Call `on_settled` once when the outcome is known. The outcome must not be known yet."""
        if self.appended is NOT_APPENDED:
            self.on_settled = on_settled
            return
        self.batch = _NO_BATCH
        self.partition.on_reached(self.appended.last_offset + 1, partial(self._reached, on_settled), timeout_ms)

    def _reached(self, on_settled: Callable[[], None], error: KafkaError | None) -> None:
        if error is not None:
            self.fail(error)
        on_settled()

    def settle(self) -> None:
        """Notify the request that waits for the outcome. With acks=0 no request waits."""
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled()

    # --- the memory of a batch that outlives its request

    def reserve(self, owner: Peer, size_bytes: int) -> None:
        """Reserve memory for a copy of the batch until the batch is stored or refused. Raises KafkaError."""
        if not owner.reserve(size_bytes):
            raise memory_exhausted()
        self.owner, self.reserved_bytes = owner, size_bytes

    def release(self) -> None:
        """Release the memory that was reserved for the copy, if any."""
        if self.owner is not None:
            self.owner.release(self.reserved_bytes)
            self.owner = None

    # --- the response

    def response(self) -> PartitionProduceResponse:
        failure, appended = self.failure, self.appended
        if failure is None:
            return PartitionProduceResponse(
                index=self.index,
                error_code=ErrorCode.NONE,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=self.log_start_offset,
            )
        return PartitionProduceResponse(
            index=self.index,
            error_code=failure.code,
            error_message=failure.message,
            base_offset=-1,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=self.log_start_offset,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
                for number, message in failure.problems
            ],
        )


def refused(index: int, error: KafkaError | StorageError) -> PartitionAppend:
    """Create the append of a batch that was not admitted."""
    made = PartitionAppend(index, _NO_BATCH)
    made.fail(error)
    return made


def unsettled(appends: Iterable[PartitionAppend]) -> list[PartitionAppend]:
    """Return the batches whose outcome is not known yet."""
    return [one for one in appends if one.state not in (State.COMMITTED, State.FAILED)]


def when_settled(waiting: Sequence[PartitionAppend], timeout_ms: int, call: Callable[[], None]) -> None:
    """Call `call` once when the outcomes of all these batches are known.

    `waiting` must not be empty, and no outcome may be known yet. A batch that is in its log must be committed within
    `timeout_ms` from now; otherwise it fails with REQUEST_TIMED_OUT.
    """
    left = len(waiting)
    if left == 1:
        waiting[0].wait(call, timeout_ms)
        return

    def one_settled() -> None:
        nonlocal left
        left -= 1
        if not left:
            call()

    for one in waiting:
        one.wait(one_settled, timeout_ms)


def memory_exhausted() -> KafkaError:
    # After NOT_ENOUGH_REPLICAS a producer pauses and retries, and does not refresh its metadata to find another leader.
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "the memory for batches that wait for a commit or a transaction is exhausted (queued.max.request.bytes), retry",
    )
