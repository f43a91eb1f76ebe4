"""The transactional batches of a Produce request.

If the transaction is already open in all partitions of the request, and no earlier batch of the producer waits, the
batches are appended immediately. Otherwise the transaction coordinator must admit them first
(`coordinator/transaction/admission.py`). The wait for the coordinator's reply takes at most the request's timeout or
one second, whichever is longer. The request's memory is reused before the reply, so these batches are copied, and
memory is reserved for the copies.
"""

import asyncio
import logging
from typing import Final

from kwire.broker.batch_validation import Validate, skip_validation
from kwire.coordinator.transaction.admission import AdmissionRequest
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.produce.append import PartitionAppend, unsettled
from kwire.handlers.shared.context import Context
from kwire.wire.messages.produce import ProduceRequest
from storage.errors import StorageError

log = logging.getLogger("kwire.handlers")

# The first version whose clients handle TRANSACTION_ABORTABLE, and the first in which the server adds partitions to the
# transaction.
FIRST_ABORTABLE_VERSION: Final = 11
FIRST_V2_VERSION: Final = 12

# Transient errors of the coordinator, which older clients treat as fatal in a Produce response. These clients get
# NOT_ENOUGH_REPLICAS instead, after which they retry and do not refresh their metadata to find another leader.
_TRANSIENT: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionAppends:
    """The transactional batches of one request, collected so that the coordinator gets one request for all of them."""

    def __init__(self, context: Context, request: ProduceRequest, wait_ms_max: int) -> None:
        """`wait_ms_max` is the maximum time to wait for the coordinator."""
        self._transaction_admission = context.services.transaction_admission
        self._clock = context.services.clock
        self._peer = context.peer
        self._version = context.api_version
        self._transactional_id = request.transactional_id
        self._timeout_ms = request.timeout_ms
        self._wait_ms_max = wait_ms_max
        self._is_v2 = context.api_version >= FIRST_V2_VERSION
        # If transaction.partition.verification.enable is false, the server assumes that older producers have added the
        # partitions to the transaction.
        self._needs_verification = self._is_v2 or context.services.config.transactions.is_verified
        self._appends: list[PartitionAppend] = []
        self._requested_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, append: PartitionAppend, validate: Validate) -> None:
        """Validate a batch and add it. Raises KafkaError, StorageError, and everything that `validate` raises."""
        batch, partition = append.batch, append.partition
        validated, header = partition.validated(batch, append.header, self._clock.now_ms(), validate)
        if self._transactional_id is None:
            # Kafka sends this error to a producer that has no permission on its transactional id, or has no such id.
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
            self._reserve(append)
            append.is_copy = True
        self._appends.append(append)

    def append(self) -> list[PartitionAppend]:
        """Append all batches, now or when the coordinator admits them. Return those whose outcome is not known yet."""
        if not self._appends:
            return []
        header, transactional_id = self._appends[0].header, self._transactional_id
        assert transactional_id is not None
        needs_admission = self._needs_verification and not all(_is_open(one) for one in self._appends)
        if not needs_admission and not self._transaction_admission.is_waiting(transactional_id, header.producer_id):
            return [one for one in self._appends if not self._append(one)]
        for one in self._appends:
            self._copy(one)
        unknown = [_topic_partition(one) for one in self._appends if one.failure is None and not _is_open(one)]
        admission_request = AdmissionRequest(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            unknown if self._needs_verification else (),
            self._is_v2,
        )
        self._requested_at = self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self._wait_ms_max / 1000, self._time_out)
        self._transaction_admission.admit(admission_request, self._on_admitted)
        return unsettled(self._appends)

    def _copy(self, append: PartitionAppend) -> None:
        if append.is_copy:
            return
        try:
            self._reserve(append)
        except KafkaError as error:
            append.fail(error)
        else:
            append.batch, append.is_copy = memoryview(bytearray(append.batch)), True

    def _reserve(self, append: PartitionAppend) -> None:
        try:
            append.reserve(self._peer, len(append.batch))
        except KafkaError:
            self._record_rejected(append)
            raise

    def _time_out(self) -> None:
        """Refuse the batches. A later reply of the coordinator does not append them; the producer sends them again."""
        for one in self._appends:
            self._refuse(one, ErrorCode.REQUEST_TIMED_OUT, "the transaction coordinator did not reply in time")

    def _on_admitted(self, error: ErrorCode) -> None:
        """Handle the coordinator's reply."""
        assert self._timer is not None
        self._timer.cancel()
        left_ms = max(self._timeout_ms - int((self._clock.monotonic() - self._requested_at) * 1000), 0)
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
            self._record_rejected(append)
            append.fail(KafkaError(code, message))
            append.settle()

    def _record_rejected(self, append: PartitionAppend) -> None:
        """Record the refused batch, so that no later batch of the producer is appended before this one is retried."""
        header = append.header
        if not _is_open(append):
            self._transaction_admission.record_rejected(
                header.producer_id, header.producer_epoch, _topic_partition(append), header.base_sequence
            )

    def _append(self, append: PartitionAppend) -> bool:
        """Append a batch. Return False if it is not yet committed, so that the request has to wait."""
        header, partition = append.header, _topic_partition(append)
        try:
            if not _is_open(append) and self._transaction_admission.is_out_of_order(
                header.producer_id, header.producer_epoch, partition, header.base_sequence
            ):
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch of this producer is missing")
            is_settled = append.append_to_log(skip_validation)
            append.release()
            if append.failure is None:
                self._transaction_admission.record_appended(header.producer_id, partition)
            return is_settled
        except KafkaError as error:
            append.fail(error)
        except Exception:
            # The caller may be the coordinator, and an exception would also affect its other requests.
            log.exception("failed to append a transactional batch to %s", partition)
            append.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return True

    def _reported(self, error: ErrorCode) -> ErrorCode:
        """Convert the coordinator's error to a code that clients of this version can handle."""
        if error in _TRANSIENT:
            is_known = self._is_v2 and error is ErrorCode.CONCURRENT_TRANSACTIONS
            return error if is_known else ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < FIRST_ABORTABLE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        return error


def _topic_partition(append: PartitionAppend) -> TopicPartition:
    return append.partition.topic_name, append.index


def _is_open(append: PartitionAppend) -> bool:
    """Whether the batch's transaction is open in its partition. False if the log cannot be opened.

    In this case the append fails and reports the error.
    """
    header = append.header
    try:
        return append.partition.has_open_transaction(header.producer_id, header.producer_epoch)
    except StorageError:
        return False
