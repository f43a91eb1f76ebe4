"""One transactional id: the effect of each command. The rules and errors are those of Kafka 4.3.

V1 and V2 are the two transaction protocols of clients. With V1, a producer keeps its epoch for all its transactions.
With V2, the end of every transaction bumps the epoch (KIP-890), so that late requests of the previous transaction are
detected. With V2, a transaction without partitions can also be aborted.
"""

from collections.abc import Callable

from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.transaction.commands import (
    AddPartitions,
    DescribeAnswer,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    ProducerAnswer,
    VerifyPartitions,
)
from kwire.coordinator.transaction.marker_effect import RETRY_MS_MAX, RETRY_MS_MIN, WriteMarkers
from kwire.coordinator.transaction.producers import (
    FIRST_EPOCH,
    LAST_EPOCH,
    LAST_USABLE_EPOCH,
    PreviousEpoch,
    bumped,
    is_exhausted,
)
from kwire.coordinator.transaction.records import encode_record
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.states import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    VERSION_WITH_EPOCH_PER_TRANSACTION,
    State,
    TopicPartition,
    TransactionMetadata,
)
from kwire.errors import ErrorCode

# The maximum number of partitions of one transaction. Each change writes a record with all partitions.
PARTITIONS_MAX = 10_000
# The maximum size of that record. It is well below the maximum size of a batch: the records that end the transaction
# are a little larger, and a timeout scan appends the records of several transactions in one batch. If these records did
# not fit into a batch, the transaction could never end.
RECORD_BYTES_MAX = 512 * 1024
# The maximum number of commands that wait for the markers of one transaction. A producer sends at most one or two.
WAITING_MAX = 100


class Transaction:
    """One transactional id. `metadata` changes only when a record is applied. A restart may lose all other state."""

    __slots__ = (
        "_coordinator_epoch",
        "_pause_ms",
        "_previous_epoch",
        "_retry_at_ms",
        "_settings",
        "_transaction_version",
        "_unmarked",
        "_waiting",
        "armed_ms",
        "metadata",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        metadata: TransactionMetadata,
        settings: TransactionSettings,
        transaction_version: Callable[[], int],
        coordinator_epoch: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self._settings = settings
        self._transaction_version = transaction_version
        self._coordinator_epoch = coordinator_epoch
        self._previous_epoch = PreviousEpoch()
        # In a prepared state, the partitions whose marker the next attempt has to write.
        self._unmarked: frozenset[TopicPartition] = frozenset()
        # In a prepared state, the time of the next attempt. It is None while an attempt is in progress.
        self._retry_at_ms: int | None = None
        self._pause_ms = RETRY_MS_MIN
        # Commands that wait until the previous transaction is complete, and the time until which they wait.
        self._waiting: dict[InitProducer | AddPartitions, int] = {}
        # The time at which the shard will call `check_deadlines`. Only the shard uses it.
        self.armed_ms: int | None = None

    @property
    def is_v2_served(self) -> bool:
        return self._transaction_version() >= VERSION_WITH_EPOCH_PER_TRANSACTION

    # A producer starts

    def init(self, command: InitProducer, moment: Moment, result: Result) -> None:
        """Fence earlier producers. If a transaction is ongoing, abort it first and then run the command again."""
        now = self.metadata
        is_expected = command.producer_id != NO_PRODUCER_ID
        if is_expected and not self._may_resume(command):
            result.refuse(command, ErrorCode.PRODUCER_FENCED)
        elif now.state is State.ONGOING:
            self._fence(command, moment, result)
        elif is_exhausted(now.producer_epoch) and (not is_expected or command.producer_epoch == now.producer_epoch):
            if command.fresh_producer_id == NO_PRODUCER_ID:
                result.reply(command, ProducerAnswer(error=ErrorCode.NONE, needs_producer_id=True))
            else:
                before = now.producer_epoch if is_expected else NO_PRODUCER_EPOCH
                self.begin(command, command.fresh_producer_id, FIRST_EPOCH, before, moment, result)
        else:
            self._bump(command, moment, result)

    def _may_resume(self, command: InitProducer) -> bool:
        """Return whether the producer has the current producer id, or the previous one.

        A producer may have the previous id because it did not receive the answer with the new id.
        """
        now = self.metadata
        return command.producer_id == now.producer_id or (
            command.producer_id == now.previous_producer_id and is_exhausted(command.producer_epoch)
        )

    def _bump(self, command: InitProducer, moment: Moment, result: Result) -> None:
        now = self.metadata
        producer_id, epoch = now.producer_id, now.producer_epoch
        before = self._previous_epoch.get(producer_id, epoch)
        if command.producer_id == NO_PRODUCER_ID:
            self.begin(command, producer_id, bumped(epoch), NO_PRODUCER_EPOCH, moment, result)
        elif command.producer_epoch == epoch:
            self.begin(command, producer_id, bumped(epoch), epoch, moment, result)
        elif command.producer_epoch == before != NO_PRODUCER_EPOCH:
            # This is a retry: the epoch was already bumped, but the client did not receive the answer.
            self.begin(command, producer_id, epoch, before, moment, result)
        else:
            result.refuse(command, ErrorCode.PRODUCER_FENCED)

    def begin(
        self, command: InitProducer, producer_id: int, epoch: int, before: int, moment: Moment, result: Result
    ) -> None:
        self._previous_epoch.record(producer_id, epoch, before)
        begun = TransactionMetadata(
            state=State.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.metadata.producer_id,
            timeout_ms=command.timeout_ms,
            update_ms=moment.wall_ms,
            version=self.metadata.version,
        )
        self._write(begun, result)
        result.reply(command, ProducerAnswer(error=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch))

    def _fence(self, command: InitProducer, moment: Moment, result: Result) -> None:
        is_v2 = self.is_v2_served
        if is_v2 and is_exhausted(self.metadata.producer_epoch) and command.fresh_producer_id == NO_PRODUCER_ID:
            result.reply(command, ProducerAnswer(error=ErrorCode.NONE, needs_producer_id=True))
            return
        if is_v2:
            self._prepare(State.PREPARE_ABORT, True, command.fresh_producer_id, moment, result)
        else:
            self._prepare_fenced(moment, result)
        result.rerun(command)

    # Partitions of a transaction

    def add(self, command: AddPartitions, moment: Moment, result: Result) -> None:
        now = self.metadata
        error = self._check_producer(command.producer_id, command.producer_epoch)
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
            return
        partitions = now.partitions.union(command.partitions)
        if now.state is State.ONGOING and len(partitions) == len(now.partitions):
            result.reply(command, ErrorCode.NONE)
        elif len(partitions) > PARTITIONS_MAX:
            # The client can abort the transaction and then use smaller transactions.
            result.refuse(command, ErrorCode.TRANSACTION_ABORTABLE)
        else:
            grown = replace(
                now,
                state=State.ONGOING,
                previous_producer_id=now.producer_id,
                partitions=partitions,
                start_ms=now.start_ms if now.state is State.ONGOING else moment.wall_ms,
                update_ms=moment.wall_ms,
                version=self._version_of(command.is_v2),
            )
            record = encode_record(self.transactional_id, grown, self._transaction_version())
            if len(record[1] or b"") > RECORD_BYTES_MAX:
                result.refuse(command, ErrorCode.TRANSACTION_ABORTABLE)
                return
            result.records.append(record)
            result.reply(command, ErrorCode.NONE)

    def verify(self, command: VerifyPartitions, result: Result) -> None:
        now = self.metadata
        error = self._check_producer(command.producer_id, command.producer_epoch)
        if error is ErrorCode.NONE and now.state.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
            return
        # Before the transaction begins and after it is complete, `partitions` is empty.
        result.reply(
            command,
            [
                ErrorCode.NONE if one in now.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for one in command.partitions
            ],
        )

    def _check_producer(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        if producer_id != self.metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != self.metadata.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    # The end of a transaction

    def end(self, command: EndTransaction, moment: Moment, result: Result) -> None:
        if command.is_v2 and self.is_v2_served:
            self._end_v2(command, moment, result)
        else:
            self._end_v1(command, moment, result)

    def _end_v1(self, command: EndTransaction, moment: Moment, result: Result) -> None:
        now = self.metadata
        error = self._check_producer(command.producer_id, command.producer_epoch)
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
        elif now.state.is_prepared:
            result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif now.state is State.ONGOING:
            self._prepare(_prepared(command.is_commit), False, NO_PRODUCER_ID, moment, result)
            result.reply(command, _producer_answer(now))
        elif now.state is _completed(command.is_commit):
            # This is a retry: the transaction has already ended, but the client did not receive the answer.
            result.reply(command, _producer_answer(now))
        else:
            result.refuse(command, ErrorCode.INVALID_TXN_STATE)

    def _end_v2(self, command: EndTransaction, moment: Moment, result: Result) -> None:
        now = self.metadata
        if now.state.is_prepared:
            # This check comes before the checks of the producer id, because the producer may already use the id that
            # becomes current when the markers are written.
            result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        is_retry = now.state.is_complete and self._is_retry_of_last_end(command)
        if command.producer_id != now.producer_id and not is_retry:
            result.refuse(command, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif command.producer_epoch != now.producer_epoch and not is_retry:
            result.refuse(command, ErrorCode.PRODUCER_FENCED)
        elif is_retry and now.state is _completed(command.is_commit):
            result.reply(command, _producer_answer(now))
        elif is_retry or (command.is_commit and now.state is not State.ONGOING):
            result.refuse(command, ErrorCode.INVALID_TXN_STATE)
        elif is_exhausted(now.producer_epoch) and command.fresh_producer_id == NO_PRODUCER_ID:
            result.reply(command, ProducerAnswer(error=ErrorCode.NONE, needs_producer_id=True))
        else:
            ended = self._prepare(_prepared(command.is_commit), True, command.fresh_producer_id, moment, result)
            result.reply(command, _producer_answer(_complete(ended, moment)))

    def _is_retry_of_last_end(self, command: EndTransaction) -> bool:
        """Return whether the command is a retry: its epoch is that of the transaction that ended last.

        LAST_EPOCH is never the epoch of a transaction. It shows that the server has fenced the producer.
        """
        now = self.metadata
        if command.producer_id == now.producer_id and command.producer_epoch + 1 == now.producer_epoch != LAST_EPOCH:
            return True
        return (
            command.producer_id == now.previous_producer_id
            and command.producer_epoch == LAST_USABLE_EPOCH
            and now.producer_epoch == FIRST_EPOCH
        )

    def abort_timed_out(self, moment: Moment, result: Result) -> None:
        """Abort the transaction and fence its producer, if the transaction has timed out."""
        if self.is_timed_out(moment):
            if self.is_v2_served and not is_exhausted(self.metadata.producer_epoch):
                self._prepare(State.PREPARE_ABORT, True, NO_PRODUCER_ID, moment, result)
            else:
                # V2 is not used, or the epochs of this producer id are exhausted and no new id is available here. In
                # the second case the epoch becomes LAST_EPOCH, so the next InitProducerId gets another producer id.
                self._prepare_fenced(moment, result)

    def is_timed_out(self, moment: Moment) -> bool:
        now = self.metadata
        return now.state is State.ONGOING and now.start_ms + now.timeout_ms < moment.wall_ms

    def _prepare_fenced(self, moment: Moment, result: Result) -> None:
        """Abort as in V1, and fence the producer: bump the epoch without sending the new epoch to the producer."""
        now = self.metadata
        self._previous_epoch.record(now.producer_id, bumped(now.producer_epoch), NO_PRODUCER_EPOCH)
        self._store_prepared(
            replace(
                now,
                state=State.PREPARE_ABORT,
                producer_epoch=bumped(now.producer_epoch),
                previous_producer_id=now.producer_id,
                next_producer_id=NO_PRODUCER_ID,
                update_ms=moment.wall_ms,
                version=0,
            ),
            moment,
            result,
        )

    def _prepare(self, state: State, is_v2: bool, next_id: int, moment: Moment, result: Result) -> TransactionMetadata:
        """Write the prepared state. `next_id` is the new producer id if the epochs of the current id are exhausted."""
        now = self.metadata
        epoch = now.producer_epoch
        if is_v2:
            self._previous_epoch.record(now.producer_id, bumped(epoch), epoch)
        prepared = replace(
            now,
            state=state,
            producer_epoch=bumped(epoch) if is_v2 else epoch,
            previous_producer_id=now.producer_id,
            next_producer_id=next_id if is_v2 and is_exhausted(epoch) else NO_PRODUCER_ID,
            start_ms=now.start_ms if now.state is State.ONGOING else moment.wall_ms,
            update_ms=moment.wall_ms,
            version=self._version_of(is_v2),
        )
        self._store_prepared(prepared, moment, result)
        return prepared

    def _store_prepared(self, prepared: TransactionMetadata, moment: Moment, result: Result) -> None:
        if prepared.partitions:
            self._write(prepared, result)
            self._send_markers(prepared, prepared.partitions, result)
        else:
            # There are no markers to write, so the transaction is complete immediately.
            self._finish(prepared, moment, result)

    # Markers

    def markers_written(self, command: MarkersWritten, moment: Moment, result: Result) -> None:
        now = self.metadata
        ended = command.producer_id, command.producer_epoch
        if not now.state.is_prepared or ended != (now.producer_id, now.producer_epoch):
            return
        self._unmarked = command.failed
        # Schedule a retry even after the last marker, because the append of the completed state may fail.
        self._schedule_retry(moment)
        if not command.failed:
            self._finish(now, moment, result)

    def loaded(self, moment: Moment) -> None:
        """Schedule the markers of a prepared transaction. Called when the replay has finished.

        All markers are written again, because it is not known which of them were written before the restart.
        """
        if self.metadata.state.is_prepared:
            self._unmarked = self.metadata.partitions
            self._retry_at_ms = moment.steady_ms

    def _send_markers(
        self, prepared: TransactionMetadata, partitions: frozenset[TopicPartition], result: Result
    ) -> None:
        # `markers_written` sets the time of the next attempt.
        self._retry_at_ms = None
        result.effects.append(
            WriteMarkers(
                transactional_id=self.transactional_id,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                coordinator_epoch=self._coordinator_epoch,
                is_commit=prepared.state is State.PREPARE_COMMIT,
                partitions=partitions,
            )
        )

    def _schedule_retry(self, moment: Moment) -> None:
        self._retry_at_ms = moment.steady_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def _finish(self, prepared: TransactionMetadata, moment: Moment, result: Result) -> None:
        completed = _complete(prepared, moment)
        if completed.producer_id != prepared.producer_id:
            before = self._previous_epoch.get(prepared.producer_id, prepared.producer_epoch)
            self._previous_epoch.record(completed.producer_id, completed.producer_epoch, before)
        self._write(completed, result)
        for command in self._waiting:
            result.rerun(command)

    # Time

    @property
    def wake_ms(self) -> int | None:
        """The time at which to call `check_deadlines` next."""
        wait_ms = min(self._waiting.values()) if self._waiting else None
        if wait_ms is None or self._retry_at_ms is None:
            return self._retry_at_ms if wait_ms is None else wait_ms
        return min(wait_ms, self._retry_at_ms)

    def hold_for_markers(self, command: InitProducer | AddPartitions, moment: Moment, result: Result) -> bool:
        """Let the command wait for up to `completion_wait_ms` while markers are being written.

        Returns True if the command waits or was refused. Returns False if the caller must handle the command now.
        Called before the producer id is checked, because the producer may already use the id that becomes current when
        the markers are written.
        """
        until_ms = self._waiting.pop(command, None)
        if not self.metadata.state.is_prepared:
            return False
        if until_ms is None:
            until_ms = moment.steady_ms + self._settings.completion_wait_ms
        if until_ms <= moment.steady_ms or len(self._waiting) >= WAITING_MAX:
            result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self._waiting[command] = until_ms
        return True

    def check_deadlines(self, moment: Moment, result: Result) -> None:
        if self._retry_at_ms is not None and self._retry_at_ms <= moment.steady_ms:
            if self._unmarked:
                self._send_markers(self.metadata, self._unmarked, result)
            else:
                self._schedule_retry(moment)
                self._finish(self.metadata, moment, result)
        for command, until_ms in list(self._waiting.items()):
            if until_ms <= moment.steady_ms:
                del self._waiting[command]
                result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)

    # Records

    def apply(self, metadata: TransactionMetadata) -> None:
        self.metadata = metadata
        if not metadata.state.is_prepared:
            self._retry_at_ms = None
            self._pause_ms = RETRY_MS_MIN

    def described(self) -> DescribeAnswer:
        now = self.metadata
        return DescribeAnswer(
            error=ErrorCode.NONE,
            state=now.state.kafka_name,
            timeout_ms=now.timeout_ms,
            start_ms=now.start_ms,
            producer_id=now.producer_id,
            producer_epoch=now.producer_epoch,
            partitions=sorted(now.partitions),
        )

    def _write(self, metadata: TransactionMetadata, result: Result) -> None:
        result.records.append(encode_record(self.transactional_id, metadata, self._transaction_version()))

    def _version_of(self, is_v2: bool) -> int:
        return VERSION_WITH_EPOCH_PER_TRANSACTION if is_v2 and self.is_v2_served else 0


def initial_metadata(command: InitProducer, moment: Moment) -> TransactionMetadata:
    """Return the state of a new transactional id. It has a producer id, but no epoch yet."""
    return TransactionMetadata(
        state=State.EMPTY,
        producer_id=command.fresh_producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=command.timeout_ms,
        start_ms=NO_TIME,
        update_ms=moment.wall_ms,
    )


def _prepared(is_commit: bool) -> State:
    return State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT


def _completed(is_commit: bool) -> State:
    return State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT


def _complete(prepared: TransactionMetadata, moment: Moment) -> TransactionMetadata:
    is_other_id = prepared.next_producer_id != NO_PRODUCER_ID
    return replace(
        prepared,
        state=_completed(prepared.state is State.PREPARE_COMMIT),
        producer_id=prepared.next_producer_id if is_other_id else prepared.producer_id,
        producer_epoch=FIRST_EPOCH if is_other_id else prepared.producer_epoch,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        update_ms=moment.wall_ms,
    )


def _producer_answer(metadata: TransactionMetadata) -> ProducerAnswer:
    return ProducerAnswer(
        error=ErrorCode.NONE, producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch
    )
