"""The rules for one transactional id: what each command does to it. They are Kafka 4.3's, errors included.

What is called V1 and V2 are the two protocols of clients. With V1 a producer keeps its epoch from one transaction to
the next; with V2 every end of a transaction bumps it (KIP-890), so that a late request of the transaction before is
known for what it is, and a transaction in which nothing was written may be aborted too.
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
from kwire.coordinator.transaction.markers import RETRY_MS_MAX, RETRY_MS_MIN, WriteMarkers
from kwire.coordinator.transaction.producers import (
    FIRST_EPOCH,
    LAST_EPOCH,
    LAST_USABLE_EPOCH,
    EpochNote,
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
    Standing,
    State,
    TopicPartition,
)
from kwire.errors import ErrorCode

# Partitions that one transaction can reach: each step of it writes all of them into one record.
PARTITIONS_MAX = 10_000
# What that record may be large, however long the names are. The ones that end the transaction are a little larger, and
# a round puts others before it: all of that has to fit into a batch, else the transaction could never be ended.
RECORD_BYTES_MAX = 512 * 1024
# Commands that wait for the markers of one transaction; a producer has one or two under way.
WAITING_MAX = 100


class Transaction:
    """One transactional id. `standing` changes only when a record is applied; the rest may be forgotten."""

    __slots__ = (
        "_coordinator_epoch",
        "_epochs",
        "_pause_ms",
        "_retry_at_ms",
        "_settings",
        "_transaction_version",
        "_unmarked",
        "_waiting",
        "armed_ms",
        "standing",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        standing: Standing,
        settings: TransactionSettings,
        transaction_version: Callable[[], int],
        coordinator_epoch: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.standing = standing
        self._settings = settings
        self._transaction_version = transaction_version
        self._coordinator_epoch = coordinator_epoch
        self._epochs = EpochNote()
        # While it is prepared: the partitions whose marker is missing, and when to write it, unless that is under way.
        self._unmarked: frozenset[TopicPartition] = frozenset()
        self._retry_at_ms: int | None = None
        self._pause_ms = RETRY_MS_MIN
        # Who waits for the transaction before to be complete, and until when.
        self._waiting: dict[InitProducer | AddPartitions, int] = {}
        # When the shard has noted to wake it.
        self.armed_ms: int | None = None

    @property
    def is_v2_served(self) -> bool:
        return self._transaction_version() >= VERSION_WITH_EPOCH_PER_TRANSACTION

    # A producer starts

    def init(self, command: InitProducer, moment: Moment, result: Result) -> None:
        """Keep earlier producers out. An open transaction is aborted first, and the command decided anew after that."""
        now = self.standing
        is_expected = command.producer_id != NO_PRODUCER_ID
        if is_expected and not self._may_go_on(command):
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

    def _may_go_on(self, command: InitProducer) -> bool:
        """It has the present id, or the one before and lost the answer that told it the present one."""
        now = self.standing
        return command.producer_id == now.producer_id or (
            command.producer_id == now.previous_producer_id and is_exhausted(command.producer_epoch)
        )

    def _bump(self, command: InitProducer, moment: Moment, result: Result) -> None:
        now = self.standing
        producer_id, epoch = now.producer_id, now.producer_epoch
        before = self._epochs.before(producer_id, epoch)
        if command.producer_id == NO_PRODUCER_ID:
            self.begin(command, producer_id, bumped(epoch), NO_PRODUCER_EPOCH, moment, result)
        elif command.producer_epoch == epoch:
            self.begin(command, producer_id, bumped(epoch), epoch, moment, result)
        elif command.producer_epoch == before != NO_PRODUCER_EPOCH:
            # It was bumped already, and the answer was lost.
            self.begin(command, producer_id, epoch, before, moment, result)
        else:
            result.refuse(command, ErrorCode.PRODUCER_FENCED)

    def begin(
        self, command: InitProducer, producer_id: int, epoch: int, before: int, moment: Moment, result: Result
    ) -> None:
        self._epochs.note(producer_id, epoch, before)
        begun = Standing(
            state=State.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.standing.producer_id,
            timeout_ms=command.timeout_ms,
            update_ms=moment.wall_ms,
            version=self.standing.version,
        )
        self._write(begun, result)
        result.reply(command, ProducerAnswer(error=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch))

    def _fence(self, command: InitProducer, moment: Moment, result: Result) -> None:
        is_v2 = self.is_v2_served
        if is_v2 and is_exhausted(self.standing.producer_epoch) and command.fresh_producer_id == NO_PRODUCER_ID:
            result.reply(command, ProducerAnswer(error=ErrorCode.NONE, needs_producer_id=True))
            return
        if is_v2:
            self._prepare(State.PREPARE_ABORT, True, command.fresh_producer_id, moment, result)
        else:
            self._prepare_fenced(moment, result)
        result.decide_anew(command)

    # A transaction grows

    def add(self, command: AddPartitions, moment: Moment, result: Result) -> None:
        now = self.standing
        error = self._check_producer(command.producer_id, command.producer_epoch)
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
            return
        partitions = now.partitions.union(command.partitions)
        if now.state is State.ONGOING and len(partitions) == len(now.partitions):
            result.reply(command, ErrorCode.NONE)
        elif len(partitions) > PARTITIONS_MAX:
            # What is there can still be aborted, and smaller transactions work.
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
        now = self.standing
        error = self._check_producer(command.producer_id, command.producer_epoch)
        if error is ErrorCode.NONE and now.state.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
            return
        # None is in a transaction that has not begun, and those of one that is complete are forgotten.
        result.reply(
            command,
            [
                ErrorCode.NONE if one in now.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for one in command.partitions
            ],
        )

    def _check_producer(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        if producer_id != self.standing.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != self.standing.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    # A transaction ends

    def end(self, command: EndTransaction, moment: Moment, result: Result) -> None:
        if command.is_v2 and self.is_v2_served:
            self._end_v2(command, moment, result)
        else:
            self._end_v1(command, moment, result)

    def _end_v1(self, command: EndTransaction, moment: Moment, result: Result) -> None:
        now = self.standing
        error = self._check_producer(command.producer_id, command.producer_epoch)
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
        elif now.state.is_prepared:
            result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif now.state is State.ONGOING:
            self._prepare(_prepared(command.is_commit), False, NO_PRODUCER_ID, moment, result)
            result.reply(command, _present(now))
        elif now.state is _completed(command.is_commit):
            # Done already; the answer was lost.
            result.reply(command, _present(now))
        else:
            result.refuse(command, ErrorCode.INVALID_TXN_STATE)

    def _end_v2(self, command: EndTransaction, moment: Moment, result: Result) -> None:
        now = self.standing
        if now.state.is_prepared:
            # Before anything else: the producer may use an id already that is the present one only afterwards.
            result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        is_retry = now.state.is_complete and self._has_ended(command)
        if command.producer_id != now.producer_id and not is_retry:
            result.refuse(command, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif command.producer_epoch != now.producer_epoch and not is_retry:
            result.refuse(command, ErrorCode.PRODUCER_FENCED)
        elif is_retry and now.state is _completed(command.is_commit):
            result.reply(command, _present(now))
        elif is_retry or (command.is_commit and now.state is not State.ONGOING):
            result.refuse(command, ErrorCode.INVALID_TXN_STATE)
        elif is_exhausted(now.producer_epoch) and command.fresh_producer_id == NO_PRODUCER_ID:
            result.reply(command, ProducerAnswer(error=ErrorCode.NONE, needs_producer_id=True))
        else:
            ended = self._prepare(_prepared(command.is_commit), True, command.fresh_producer_id, moment, result)
            result.reply(command, _present(_complete(ended, moment)))

    def _has_ended(self, command: EndTransaction) -> bool:
        """The command has the epoch of the transaction that was ended last: its answer was lost.

        The last epoch of all is no transaction's: there it was the server that kept the producer out.
        """
        now = self.standing
        if command.producer_id == now.producer_id and command.producer_epoch + 1 == now.producer_epoch != LAST_EPOCH:
            return True
        return (
            command.producer_id == now.previous_producer_id
            and command.producer_epoch == LAST_USABLE_EPOCH
            and now.producer_epoch == FIRST_EPOCH
        )

    def abort_timed_out(self, moment: Moment, result: Result) -> None:
        """The producer took too long: nobody may wait for it any more, and it may not go on."""
        if self.is_timed_out(moment):
            if self.is_v2_served and not is_exhausted(self.standing.producer_epoch):
                self._prepare(State.PREPARE_ABORT, True, NO_PRODUCER_ID, moment, result)
            else:
                # Here is no fresh producer id. Nobody has the last epoch, so the next producer gets another id.
                self._prepare_fenced(moment, result)

    def is_timed_out(self, moment: Moment) -> bool:
        now = self.standing
        return now.state is State.ONGOING and now.start_ms + now.timeout_ms < moment.wall_ms

    def _prepare_fenced(self, moment: Moment, result: Result) -> None:
        """Abort as V1 does when the producer is to be kept out: its epoch is bumped, and it is not told."""
        now = self.standing
        self._epochs.note(now.producer_id, bumped(now.producer_epoch), NO_PRODUCER_EPOCH)
        self._decide(
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

    def _prepare(self, state: State, is_v2: bool, next_id: int, moment: Moment, result: Result) -> Standing:
        """`next_id` is used only if the epochs are used up."""
        now = self.standing
        epoch = now.producer_epoch
        if is_v2:
            self._epochs.note(now.producer_id, bumped(epoch), epoch)
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
        self._decide(prepared, moment, result)
        return prepared

    def _decide(self, prepared: Standing, moment: Moment, result: Result) -> None:
        if prepared.partitions:
            self._write(prepared, result)
            self._send_markers(prepared, prepared.partitions, result)
        else:
            # Nobody has to be told, so it is complete as soon as it is decided.
            self._finish(prepared, moment, result)

    # Markers

    def markers_written(self, command: MarkersWritten, moment: Moment, result: Result) -> None:
        now = self.standing
        told = command.producer_id, command.producer_epoch
        if not now.state.is_prepared or told != (now.producer_id, now.producer_epoch):
            return
        self._unmarked = command.failed
        # Also after the last marker: that all are there may not get into the log.
        self._try_again_later(moment)
        if not command.failed:
            self._finish(now, moment, result)

    def loaded(self, moment: Moment) -> None:
        """Replay is over. Of a prepared transaction it is not known which markers are there already."""
        if self.standing.state.is_prepared:
            self._unmarked = self.standing.partitions
            self._retry_at_ms = moment.steady_ms

    def _send_markers(self, prepared: Standing, partitions: frozenset[TopicPartition], result: Result) -> None:
        # The answer says when to go on.
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

    def _try_again_later(self, moment: Moment) -> None:
        self._retry_at_ms = moment.steady_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def _finish(self, prepared: Standing, moment: Moment, result: Result) -> None:
        completed = _complete(prepared, moment)
        if completed.producer_id != prepared.producer_id:
            before = self._epochs.before(prepared.producer_id, prepared.producer_epoch)
            self._epochs.note(completed.producer_id, completed.producer_epoch, before)
        self._write(completed, result)
        for command in self._waiting:
            result.decide_anew(command)

    # Time

    @property
    def wake_ms(self) -> int | None:
        """When `pass_time` wants to be asked next."""
        wait_ms = min(self._waiting.values()) if self._waiting else None
        if wait_ms is None or self._retry_at_ms is None:
            return self._retry_at_ms if wait_ms is None else wait_ms
        return min(wait_ms, self._retry_at_ms)

    def waits(self, command: InitProducer | AddPartitions, moment: Moment, result: Result) -> bool:
        """Whether the command cannot be decided yet, because markers are being written. Then it waits a little.

        Before anything else is looked at: the producer may use an id already that is the present one only afterwards.
        """
        until_ms = self._waiting.pop(command, None)
        if not self.standing.state.is_prepared:
            return False
        if until_ms is None:
            until_ms = moment.steady_ms + self._settings.completion_wait_ms
        if until_ms <= moment.steady_ms or len(self._waiting) >= WAITING_MAX:
            result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self._waiting[command] = until_ms
        return True

    def pass_time(self, moment: Moment, result: Result) -> None:
        if self._retry_at_ms is not None and self._retry_at_ms <= moment.steady_ms:
            if self._unmarked:
                self._send_markers(self.standing, self._unmarked, result)
            else:
                self._try_again_later(moment)
                self._finish(self.standing, moment, result)
        for command, until_ms in list(self._waiting.items()):
            if until_ms <= moment.steady_ms:
                del self._waiting[command]
                result.refuse(command, ErrorCode.CONCURRENT_TRANSACTIONS)

    # What is written

    def apply(self, standing: Standing) -> None:
        self.standing = standing
        if not standing.state.is_prepared:
            self._retry_at_ms = None
            self._pause_ms = RETRY_MS_MIN

    def described(self) -> DescribeAnswer:
        now = self.standing
        return DescribeAnswer(
            error=ErrorCode.NONE,
            state=now.state.told_name,
            timeout_ms=now.timeout_ms,
            start_ms=now.start_ms,
            producer_id=now.producer_id,
            producer_epoch=now.producer_epoch,
            partitions=sorted(now.partitions),
        )

    def _write(self, standing: Standing, result: Result) -> None:
        result.records.append(encode_record(self.transactional_id, standing, self._transaction_version()))

    def _version_of(self, is_v2: bool) -> int:
        return VERSION_WITH_EPOCH_PER_TRANSACTION if is_v2 and self.is_v2_served else 0


def unborn(command: InitProducer, moment: Moment) -> Standing:
    """Where a transactional id stands that nobody has used yet: it has a producer id and waits for its first epoch."""
    return Standing(
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


def _complete(prepared: Standing, moment: Moment) -> Standing:
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


def _present(standing: Standing) -> ProducerAnswer:
    return ProducerAnswer(
        error=ErrorCode.NONE, producer_id=standing.producer_id, producer_epoch=standing.producer_epoch
    )
