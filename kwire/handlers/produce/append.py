"""One batch on its way into a partition, its part of the answer, and the wait until batches are committed.

Every batch of a Kafka producer is a `PartitionAppend`: plain or transactional, for the log or for the event store, of a
request that was decoded or recognised by a template. Nothing else in the Kafka protocol appends records.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

from msgspec import Struct

from kwire.broker.batch_validation import Validate, Validated
from kwire.broker.partition import Partition
from kwire.broker.store.commit import Outcome, Stored
from kwire.broker.store.event_store import EventStore
from kwire.broker.topics import Topic
from kwire.errors import ErrorCode, KafkaError, StreamError
from kwire.handlers.context import Peer
from kwire.handlers.produce.errors import Failure, failure_of
from kwire.topic_config import TopicSettings
from kwire.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from storage.batch import BatchHeader
from storage.errors import DiskFailure, StorageError
from storage.log import Appended


class State(Enum):
    """How far a batch has got."""

    RECEIVED = auto()
    # It passed all checks. A transactional batch waits for the coordinator, one of the event store for the journal.
    ADMITTED = auto()
    # It is in the log, and not as durable yet as the topic promises.
    APPENDED = auto()
    COMMITTED = auto()
    FAILED = auto()


NOT_APPENDED = Appended(-1, -1, -1, False)
_NO_BATCH = memoryview(b"")
_SET_BY_ADMISSION: Any = None


class PartitionAppend(Struct, eq=False, gc=False):
    """A batch for one partition of a request. `index`, `failure`, `appended` and the start of the log answer it.

    `batch` is dropped when the rest is a wait: the memory of the request can be used again. The garbage collector need
    not look at it: the only cycle goes through `on_settled`, and `settle` breaks it.
    """

    index: int
    batch: memoryview
    partition: Partition = _SET_BY_ADMISSION
    header: BatchHeader = _SET_BY_ADMISSION
    failure: Failure | None = None
    # The offsets and the append time.
    appended: Appended = NOT_APPENDED
    log_start_offset: int = -1
    # The request that waits until the batch has been appended by its transaction or stored by the event store.
    on_settled: Callable[[], None] | None = None
    # The batch has memory of its own instead of the request's.
    is_copy: bool = False
    # The connection whose share of the memory for requests counts that copy, and its size.
    holder: Peer | None = None
    held_bytes: int = 0

    @property
    def state(self) -> State:
        if self.failure is not None:
            return State.FAILED
        if self.appended is NOT_APPENDED:
            return State.RECEIVED if self.header is None else State.ADMITTED
        return State.COMMITTED if self.appended.last_offset < self.partition.high_watermark else State.APPENDED

    def append_to_log(self, validate: Validate, now_ms: int | None = None) -> bool:
        """Append the batch to its log; False if it has to wait until it is committed.

        A failure becomes its outcome, except for TooLongForLoop of `validate`.
        """
        partition = self.partition
        try:
            try:
                self.appended = appended = partition.append(self.batch, self.header, now_ms, validate)
            except DiskFailure:
                # A write that failed in part ends its segment. The next one may have room, and takes the end away.
                self.appended = appended = partition.append(self.batch, self.header, now_ms, validate)
            self.log_start_offset = partition.log_start_offset
        except (KafkaError, StorageError) as error:
            self.fail(error)
            return True
        return appended.last_offset < partition.high_watermark

    def commit_event(self, store: EventStore, topic: Topic, holder: Peer, timeout_ms: int, validate: Validate) -> None:
        """Commit the batch through the journal of the event store; raises what is wrong with it at first sight.

        The store works on a copy, which is counted in the memory for requests.
        """

        def validate_and_hold(
            batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
        ) -> Validated:
            validated = validate(batch, header, settings, now_ms)
            self.hold(holder, len(validated[0]))
            return validated

        try:
            store.produce(topic, self.batch, self.header, self._stored, timeout_ms, validate_and_hold)
        except BaseException:
            self.release()
            raise
        self.batch = _NO_BATCH

    def _stored(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stored):
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
        """The batch is not stored, or not known to be."""
        self.failure = failure_of(error)
        self.batch = _NO_BATCH
        self.release()

    # --- waiting

    def wait(self, on_settled: Callable[[], None], timeout_ms: int) -> None:
        """Call `on_settled` once when the outcome is known, which it is not yet."""
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
        """Report the outcome of a batch that had not been appended, if a request waits: with acks=0 none does."""
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled()

    # --- the memory of a batch that outlives the memory of its request

    def hold(self, holder: Peer, size_bytes: int) -> None:
        """Count a copy of the batch in the memory for requests, until it is stored or refused; raises KafkaError."""
        if not holder.hold(size_bytes):
            raise no_memory()
        self.holder, self.held_bytes = holder, size_bytes

    def release(self) -> None:
        """End the count of the copy, which is needed no longer."""
        if self.holder is not None:
            self.holder.release(self.held_bytes)
            self.holder = None

    # --- the answer

    def response(self) -> PartitionProduceResponse:
        """The partition's part of the answer."""
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
    """A batch that is not admitted."""
    made = PartitionAppend(index, _NO_BATCH)
    made.fail(error)
    return made


def unsettled(appends: Iterable[PartitionAppend]) -> list[PartitionAppend]:
    """The batches whose outcome is not known yet."""
    return [one for one in appends if one.state not in (State.COMMITTED, State.FAILED)]


def when_settled(waiting: Sequence[PartitionAppend], timeout_ms: int, call: Callable[[], None]) -> None:
    """Call `call` once when the outcome of all these batches is known; it is known of none, and there is one.

    A batch that is in its log is committed within `timeout_ms` from now, or fails with REQUEST_TIMED_OUT.
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


def no_memory() -> KafkaError:
    # Producers try again after a pause, without looking for another leader.
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "too many batches wait for their commit or their transaction (queued.max.request.bytes), try again",
    )
