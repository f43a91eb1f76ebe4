"""One partition of `__transaction_state` as a state machine: its transactional ids."""

import heapq
from collections.abc import Callable, Iterator

from kwire.coordinator.decisions import Command, Moment, Result
from kwire.coordinator.transaction.commands import (
    AddPartitions,
    ClientCommand,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    InnerCommand,
    ListAnswer,
    ListedTransaction,
    ListTransactions,
    LookRound,
    MarkersWritten,
    PassTime,
    ProducerAnswer,
    ShardCommand,
    VerifyPartitions,
)
from kwire.coordinator.transaction.producers import FIRST_EPOCH
from kwire.coordinator.transaction.records import decode_record
from kwire.coordinator.transaction.rounds import Rounds
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.states import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Standing, State
from kwire.coordinator.transaction.transaction import Transaction, unborn
from kwire.errors import ErrorCode

# Transactional ids in one shard; nobody can fill the memory by inventing names.
TRANSACTIONAL_IDS_MAX = 100_000
# Transactions whose deadlines are looked at in one turn of the loop: after a restart those of all may pass at once.
DUE_MAX = 20


class TransactionShard:
    """Routes each command to its transactional id. An id exists here while it has a record."""

    def __init__(
        self, settings: TransactionSettings, transaction_version: Callable[[], int], coordinator_epoch: int = 0
    ) -> None:
        self._settings = settings
        self._transaction_version = transaction_version
        self._coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}
        # A set with the order of a dict: those that may take too long.
        self._ongoing: dict[str, None] = {}
        self._rounds = Rounds(self.transactions, self._ongoing.keys(), settings)
        # (steady_ms, transactional id), one live entry for each that has a deadline; older ones are passed over. They
        # are soon gone: no deadline is more than a few seconds ahead.
        self._wakes: list[tuple[int, str]] = []

    def step(self, command: ClientCommand | InnerCommand | ShardCommand, moment: Moment) -> Result:
        result = Result()
        if isinstance(command, ListTransactions):
            result.reply(command, ListAnswer(ErrorCode.NONE, list(self._listed(command, moment))))
        elif isinstance(command, LookRound):
            self._rounds.look(moment, result)
        elif isinstance(command, MarkersWritten | PassTime):
            transaction = self.transactions.get(command.transactional_id)
            if transaction is not None:
                self._tell(transaction, command, moment, result)
        elif not command.transactional_id:
            result.refuse(command, ErrorCode.INVALID_REQUEST)
        else:
            transaction = self.transactions.get(command.transactional_id)
            if transaction is None:
                self._ask_unknown(command, moment, result)
            else:
                self._ask(transaction, command, moment, result)
                self._note_wake(transaction)
        return result

    def is_independent(self, command: ClientCommand | InnerCommand | ShardCommand) -> bool:
        """Every decision depends on the state that earlier ones have stored."""
        return False

    def apply(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        if record is None:
            return
        transactional_id, standing = record.transactional_id, record.standing
        if standing is None:
            self.transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            return
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            self.transactions[transactional_id] = self._new(transactional_id, standing)
        else:
            transaction.apply(standing)
        if standing.state is State.ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)

    @property
    def open_count(self) -> int:
        return len(self._ongoing)

    @property
    def oldest_start_ms(self) -> int | None:
        """When the oldest transaction that is open was begun."""
        oldest = next(iter(self._ongoing), None)
        return None if oldest is None else self.transactions[oldest].standing.start_ms

    def loaded(self, moment: Moment) -> None:
        for transaction in self.transactions.values():
            transaction.loaded(moment)
            self._note_wake(transaction)
        self._rounds.start(moment)

    def wake_ms(self) -> int | None:
        while self._wakes and self._is_out_of_date(*self._wakes[0]):
            heapq.heappop(self._wakes)
        rounds_ms = self._rounds.wake_ms
        if not self._wakes:
            return rounds_ms
        wakes_ms = self._wakes[0][0]
        return wakes_ms if rounds_ms is None else min(wakes_ms, rounds_ms)

    def due(self, steady_ms: int) -> list[Command[object]]:
        commands: list[Command[object]] = []
        while self._wakes and self._wakes[0][0] <= steady_ms and len(commands) < DUE_MAX:
            noted_ms, transactional_id = heapq.heappop(self._wakes)
            if not self._is_out_of_date(noted_ms, transactional_id):
                self.transactions[transactional_id].armed_ms = None
                commands.append(PassTime(transactional_id))
        rounds_ms = self._rounds.wake_ms
        if rounds_ms is not None and rounds_ms <= steady_ms:
            commands.append(LookRound())
        return commands

    # What clients ask

    def _ask_unknown(self, command: ClientCommand, moment: Moment, result: Result) -> None:
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
            # Also for a producer that had an id: it was forgotten here, so nobody else has got it.
            transaction = self._new(command.transactional_id, unborn(command, moment))
            transaction.begin(command, command.fresh_producer_id, FIRST_EPOCH, NO_PRODUCER_EPOCH, moment, result)

    def _check_init(self, command: InitProducer) -> ErrorCode:
        if not 0 < command.timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if (command.producer_id == NO_PRODUCER_ID) != (command.producer_epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _ask(self, transaction: Transaction, command: ClientCommand, moment: Moment, result: Result) -> None:
        if isinstance(command, AddPartitions):
            if not transaction.waits(command, moment, result):
                transaction.add(command, moment, result)
        elif isinstance(command, VerifyPartitions):
            transaction.verify(command, result)
        elif isinstance(command, EndTransaction):
            transaction.end(command, moment, result)
        elif isinstance(command, DescribeTransaction):
            result.reply(command, transaction.described())
        elif (error := self._check_init(command)) is not ErrorCode.NONE:
            result.refuse(command, error)
        elif not transaction.waits(command, moment, result):
            transaction.init(command, moment, result)

    def _tell(
        self, transaction: Transaction, command: MarkersWritten | PassTime, moment: Moment, result: Result
    ) -> None:
        if isinstance(command, MarkersWritten):
            transaction.markers_written(command, moment, result)
        else:
            transaction.pass_time(moment, result)
        self._note_wake(transaction)

    def _listed(self, command: ListTransactions, moment: Moment) -> Iterator[ListedTransaction]:
        states, producer_ids, matches = command.states, command.producer_ids, command.matches
        for transaction in self.transactions.values():
            now = transaction.standing
            if (
                (not states or now.state.told_name in states)
                and (not producer_ids or now.producer_id in producer_ids)
                and (command.duration_ms < 0 or moment.wall_ms - now.start_ms > command.duration_ms)
                and (matches is None or matches(transaction.transactional_id))
            ):
                yield ListedTransaction(transaction.transactional_id, now.producer_id, now.state.told_name)

    # Upkeep

    def _new(self, transactional_id: str, standing: Standing) -> Transaction:
        return Transaction(
            transactional_id, standing, self._settings, self._transaction_version, self._coordinator_epoch
        )

    def _note_wake(self, transaction: Transaction) -> None:
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
