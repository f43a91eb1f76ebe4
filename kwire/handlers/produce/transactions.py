"""The batches of a Produce request that belong to a transaction.

Where the transaction is open in the partition already they are appended at once, like all others. Else the coordinator
is asked first (`coordinator/transaction/admissions.py`), for at most the request's timeout. By the time of the
reply the memory of the request is gone: these batches are copied, and the copies count in the memory for requests.
"""

import asyncio
import logging
from typing import Final

from kwire.broker.batch_validation import Validate, as_validated
from kwire.coordinator.transaction.admissions import Entrance
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.produce.append import PartitionAppend, unsettled
from kwire.wire.messages.produce import ProduceRequest
from storage.errors import StorageError

log = logging.getLogger("kwire.handlers")

# From here on clients know TRANSACTION_ABORTABLE, and from the second on the server adds partitions by itself.
FIRST_ABORTABLE_VERSION: Final = 11
FIRST_V2_VERSION: Final = 12

# Errors of the coordinator that pass. Older clients would give up on them in an answer to Produce; this one they retry
# without looking for another leader.
_PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionAppends:
    """The transactional batches of one request. All are collected first: the coordinator is asked once."""

    def __init__(self, context: Context, request: ProduceRequest, wait_ms_max: int) -> None:
        """`wait_ms_max` bounds the wait for the coordinator."""
        self._admissions = context.services.admissions
        self._clock = context.services.clock
        self._peer = context.peer
        self._version = context.api_version
        self._transactional_id = request.transactional_id
        self._timeout_ms = request.timeout_ms
        self._wait_ms_max = wait_ms_max
        self._is_v2 = context.api_version >= FIRST_V2_VERSION
        # The operator may trust producers of the first generation to have added their partitions.
        self._is_asked_for = self._is_v2 or context.services.config.transactions.is_verified
        self._appends: list[PartitionAppend] = []
        self._asked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, append: PartitionAppend, validate: Validate) -> None:
        """Validate a batch and take it in; raises KafkaError or StorageError, and what `validate` raises."""
        batch, partition = append.batch, append.partition
        validated, header = partition.validated(batch, append.header, self._clock.now_ms(), validate)
        if self._transactional_id is None:
            # Kafka's error for a producer without permission on the transactional id, or without one.
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
            )
        if header.producer_id < 0 or header.base_sequence < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id or a sequence")
        first = self._appends[0].header if self._appends else header
        if (first.producer_id, first.producer_epoch) != (header.producer_id, header.producer_epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional batches of several producers in one request"
            )
        append.batch, append.header = validated, header
        if append.is_copy or validated is not batch:
            self._hold(append)
            append.is_copy = True
        self._appends.append(append)

    def append(self) -> list[PartitionAppend]:
        """Append all batches, now or when the coordinator has admitted them; those whose outcome is not known yet."""
        if not self._appends:
            return []
        header, transactional_id = self._appends[0].header, self._transactional_id
        assert transactional_id is not None
        is_unknown = self._is_asked_for and not all(_is_open(one) for one in self._appends)
        if not is_unknown and not self._admissions.is_waiting(transactional_id, header.producer_id):
            return [one for one in self._appends if not self._append(one)]
        for one in self._appends:
            self._copy(one)
        unknown = [_place(one) for one in self._appends if one.failure is None and not _is_open(one)]
        entrance = Entrance(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            unknown if self._is_asked_for else (),
            self._is_v2,
        )
        self._asked_at = self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._wait_ms_max / 1000, self._time_out)
        self._admissions.enter(entrance, self._admitted)
        return unsettled(self._appends)

    def _copy(self, append: PartitionAppend) -> None:
        if append.is_copy:
            return
        try:
            self._hold(append)
        except KafkaError as error:
            append.fail(error)
        else:
            append.batch, append.is_copy = memoryview(bytearray(append.batch)), True

    def _hold(self, append: PartitionAppend) -> None:
        try:
            append.hold(self._peer, len(append.batch))
        except KafkaError:
            self._turn_away(append)
            raise

    def _time_out(self) -> None:
        """The batches are not appended when the coordinator replies after all: the producer sends them again."""
        for one in self._appends:
            self._refuse(one, ErrorCode.REQUEST_TIMED_OUT, "the transaction coordinator has not replied in time")

    def _admitted(self, error: ErrorCode) -> None:
        """The coordinator has replied."""
        assert self._timer is not None
        self._timer.cancel()
        left_ms = max(self._timeout_ms - int((self._clock.monotonic() - self._asked_at) * 1000), 0)
        for one in self._appends:
            if error is not ErrorCode.NONE:
                self._refuse(one, self._reported(error), "the partition is not in the transaction")
            elif one.failure is None:
                is_settled, on_settled = self._append(one), one.on_settled
                if is_settled or on_settled is None:
                    one.settle()
                else:
                    one.on_settled = None
                    one.wait(on_settled, left_ms)

    def _refuse(self, append: PartitionAppend, code: ErrorCode, message: str) -> None:
        if append.failure is None:
            self._turn_away(append)
            append.fail(KafkaError(code, message))
            append.settle()

    def _turn_away(self, append: PartitionAppend) -> None:
        """Let no later batch of the producer take the place of this one, which will come again."""
        header = append.header
        if not _is_open(append):
            self._admissions.turn_away(header.producer_id, header.producer_epoch, _place(append), header.base_sequence)

    def _append(self, append: PartitionAppend) -> bool:
        """False if the batch has to wait until it is committed."""
        header, place = append.header, _place(append)
        try:
            if not _is_open(append) and self._admissions.is_ahead(
                header.producer_id, header.producer_epoch, place, header.base_sequence
            ):
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch of this producer has to come first"
                )
            is_settled = append.append_to_log(as_validated)
            append.release()
            if append.failure is None:
                self._admissions.let_in(header.producer_id, place)
            return is_settled
        except KafkaError as error:
            append.fail(error)
        except Exception:
            # The caller may be the coordinator, which has other requests to answer.
            log.exception("a batch of a transaction in %s", place)
            append.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return True

    def _reported(self, error: ErrorCode) -> ErrorCode:
        """The coordinator's error as a code that this client's version knows."""
        if error in _PASSING:
            is_known = self._is_v2 and error is ErrorCode.CONCURRENT_TRANSACTIONS
            return error if is_known else ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < FIRST_ABORTABLE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        return error


def _place(append: PartitionAppend) -> TopicPartition:
    return append.partition.topic_name, append.index


def _is_open(append: PartitionAppend) -> bool:
    """Whether the batch's transaction is open in its partition. If its log cannot be opened, the append will fail."""
    header = append.header
    try:
        return append.partition.has_open_transaction(header.producer_id, header.producer_epoch)
    except StorageError:
        return False
