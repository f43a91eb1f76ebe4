"""The state machine of one partition of `__transaction_state`: its transactional ids."""

import heapq
from collections.abc import Callable, Iterator

from kwire.access.scope import plain_part
from kwire.coordinator.decisions import Command, Moment, Result
from kwire.coordinator.transaction.commands import (
    AddPartitions,
    CheckDeadlines,
    ClientCommand,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    InternalCommand,
    ListAnswer,
    ListedTransaction,
    ListTransactions,
    MarkersWritten,
    ProducerAnswer,
    RunTimeoutScan,
    ShardCommand,
    VerifyPartitions,
)
from kwire.coordinator.transaction.producers import FIRST_EPOCH
from kwire.coordinator.transaction.records import decode_record
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.states import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, State, TransactionMetadata
from kwire.coordinator.transaction.timeout_scans import TimeoutScans
from kwire.coordinator.transaction.transaction import Transaction, initial_metadata
from kwire.errors import ErrorCode

# The maximum number of transactional ids in one shard. It limits the memory that clients can use by sending new ids.
TRANSACTIONAL_IDS_MAX = 100_000
# The maximum number of transactional ids whose deadlines are handled in one iteration of the event loop. After a
# restart, the deadlines of all transactional ids may pass at the same time.
DUE_MAX = 20


class TransactionShard:
    """Routes each command to its transactional id. A transactional id exists while the log has a record of it."""

    def __init__(
        self, settings: TransactionSettings, transaction_version: Callable[[], int], coordinator_epoch: int = 0
    ) -> None:
        self._settings = settings
        self._transaction_version = transaction_version
        self._coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}
        # The transactional ids with an open transaction, which can time out. The oldest transaction is the first.
        self._ongoing: dict[str, None] = {}
        self._scans = TimeoutScans(self.transactions, self._ongoing.keys(), settings)
        # A heap of (steady_ms, transactional id) with one valid entry per id that has a deadline. Outdated entries are
        # skipped. They do not accumulate, because no deadline is more than a few seconds in the future.
        self._wakes: list[tuple[int, str]] = []

    def step(self, command: ClientCommand | InternalCommand | ShardCommand, moment: Moment) -> Result:
        result = Result()
        if isinstance(command, ListTransactions):
            result.reply(command, ListAnswer(ErrorCode.NONE, list(self._listed(command, moment))))
        elif isinstance(command, RunTimeoutScan):
            self._scans.run_chunk(moment, result)
        elif isinstance(command, MarkersWritten | CheckDeadlines):
            transaction = self.transactions.get(command.transactional_id)
            if transaction is not None:
                self._run_internal(transaction, command, moment, result)
        elif not plain_part(command.transactional_id):
            result.refuse(command, ErrorCode.INVALID_REQUEST)
        else:
            transaction = self.transactions.get(command.transactional_id)
            if transaction is None:
                self._run_unknown(command, moment, result)
            else:
                self._run(transaction, command, moment, result)
                self._schedule_wake(transaction)
        return result

    def can_share_append(self, command: ClientCommand | InternalCommand | ShardCommand) -> bool:
        """Return False: every decision depends on the records of earlier decisions."""
        return False

    def apply(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        if record is None:
            return
        transactional_id, metadata = record.transactional_id, record.metadata
        if metadata is None:
            self.transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            return
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            self.transactions[transactional_id] = self._new(transactional_id, metadata)
        else:
            transaction.apply(metadata)
        if metadata.state is State.ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)

    @property
    def open_count(self) -> int:
        return len(self._ongoing)

    @property
    def oldest_start_ms(self) -> int | None:
        """The time at which the oldest open transaction began; None if no transaction is open."""
        oldest = next(iter(self._ongoing), None)
        return None if oldest is None else self.transactions[oldest].metadata.start_ms

    def loaded(self, moment: Moment) -> None:
        # In a compacted log, the records are in the order of the last change of each transaction.
        ordered = sorted(self._ongoing, key=lambda one: self.transactions[one].metadata.start_ms)
        self._ongoing.clear()
        self._ongoing.update(dict.fromkeys(ordered))
        for transaction in self.transactions.values():
            transaction.loaded(moment)
            self._schedule_wake(transaction)
        self._scans.start(moment)

    def wake_ms(self) -> int | None:
        while self._wakes and self._is_out_of_date(*self._wakes[0]):
            heapq.heappop(self._wakes)
        scans_ms = self._scans.wake_ms
        if not self._wakes:
            return scans_ms
        wakes_ms = self._wakes[0][0]
        return wakes_ms if scans_ms is None else min(wakes_ms, scans_ms)

    def due(self, steady_ms: int) -> list[Command[object]]:
        commands: list[Command[object]] = []
        while self._wakes and self._wakes[0][0] <= steady_ms and len(commands) < DUE_MAX:
            noted_ms, transactional_id = heapq.heappop(self._wakes)
            if not self._is_out_of_date(noted_ms, transactional_id):
                self.transactions[transactional_id].armed_ms = None
                commands.append(CheckDeadlines(transactional_id))
        scans_ms = self._scans.wake_ms
        if scans_ms is not None and scans_ms <= steady_ms:
            commands.append(RunTimeoutScan())
        return commands

    # Commands

    def _run_unknown(self, command: ClientCommand, moment: Moment, result: Result) -> None:
        if isinstance(command, DescribeTransaction):
            result.refuse(command, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        elif not isinstance(command, InitProducer):
            result.refuse(command, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif (error := self._check_init(command)) is not ErrorCode.NONE:
            result.refuse(command, error)
        elif len(self.transactions) >= TRANSACTIONAL_IDS_MAX:
            result.refuse(command, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif command.fresh_producer_id == NO_PRODUCER_ID:
            result.reply(command, ProducerAnswer(error=ErrorCode.NONE, needs_producer_id=True))
        else:
            # The producer may send an old producer id and epoch. They are ignored: the transactional id has expired, so
            # no other producer uses it.
            transaction = self._new(command.transactional_id, initial_metadata(command, moment))
            transaction.begin(command, command.fresh_producer_id, FIRST_EPOCH, NO_PRODUCER_EPOCH, moment, result)

    def _check_init(self, command: InitProducer) -> ErrorCode:
        if not 0 < command.timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if (command.producer_id == NO_PRODUCER_ID) != (command.producer_epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _run(self, transaction: Transaction, command: ClientCommand, moment: Moment, result: Result) -> None:
        if isinstance(command, AddPartitions):
            if not transaction.hold_for_markers(command, moment, result):
                transaction.add(command, moment, result)
        elif isinstance(command, VerifyPartitions):
            transaction.verify(command, result)
        elif isinstance(command, EndTransaction):
            transaction.end(command, moment, result)
        elif isinstance(command, DescribeTransaction):
            result.reply(command, transaction.described())
        elif (error := self._check_init(command)) is not ErrorCode.NONE:
            result.refuse(command, error)
        elif not transaction.hold_for_markers(command, moment, result):
            transaction.init(command, moment, result)

    def _run_internal(
        self, transaction: Transaction, command: MarkersWritten | CheckDeadlines, moment: Moment, result: Result
    ) -> None:
        if isinstance(command, MarkersWritten):
            transaction.markers_written(command, moment, result)
        else:
            transaction.check_deadlines(moment, result)
        self._schedule_wake(transaction)

    def _listed(self, command: ListTransactions, moment: Moment) -> Iterator[ListedTransaction]:
        states, producer_ids, matches = command.states, command.producer_ids, command.matches
        for transaction in self.transactions.values():
            now = transaction.metadata
            if (
                (not states or now.state.kafka_name in states)
                and (not producer_ids or now.producer_id in producer_ids)
                and (command.duration_ms < 0 or moment.wall_ms - now.start_ms > command.duration_ms)
                and (matches is None or matches(transaction.transactional_id))
            ):
                yield ListedTransaction(transaction.transactional_id, now.producer_id, now.state.kafka_name)

    # Transactions and their wake-ups

    def _new(self, transactional_id: str, metadata: TransactionMetadata) -> Transaction:
        return Transaction(
            transactional_id, metadata, self._settings, self._transaction_version, self._coordinator_epoch
        )

    def _schedule_wake(self, transaction: Transaction) -> None:
        wake_ms = transaction.wake_ms
        if wake_ms is not None and (transaction.armed_ms is None or wake_ms < transaction.armed_ms):
            transaction.armed_ms = wake_ms
            heapq.heappush(self._wakes, (wake_ms, transaction.transactional_id))

    def _is_out_of_date(self, noted_ms: int, transactional_id: str) -> bool:
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.armed_ms != noted_ms:
            return True
        if transaction.wake_ms is None:
            transaction.armed_ms = None
            return True
        return False
