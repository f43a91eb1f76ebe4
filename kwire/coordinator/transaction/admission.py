"""Admission of transactional batches: a batch is appended only if its partition belongs to the transaction.

If the coordinator has not added a partition to the transaction, the partition never gets a marker. Consumers that read
only committed records would then wait forever (KIP-890). So the first batch of a transaction in a partition waits until
the coordinator has confirmed the partition. A producer with transaction protocol V1 has added the partition before, by
AddPartitionsToTxn. For a producer with V2, the coordinator adds the partition now. Batches of one producer are appended
in the order of their requests, even if only some of them have to wait.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from kwire.coordinator.transaction.commands import AddPartitions, VerifyPartitions
from kwire.coordinator.transaction.coordinator import HasTransactionalId, TransactionCoordinator
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode

logger = logging.getLogger(__name__)

A = TypeVar("A")

# The maximum number of entries in `_rejected`. When a new entry would exceed it, the oldest entry is removed.
REJECTED_MAX: Final = 100_000

# A callback that is called once per request, in the order of the requests. It is called with NONE if the batches are
# admitted, and then appends them. Otherwise it is called with the error.
OnAdmission = Callable[[ErrorCode], None]
# A transactional id and a producer id.
_QueueKey = tuple[str, int]


class AdmissionRequest(Struct, frozen=True, eq=False):
    """Describes the transactional batches of one request.

    `partitions` has only the partitions that do not have a batch of the transaction yet.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    # Whether the producer uses V2 and so does not send AddPartitionsToTxn.
    is_v2: bool


class _WaitingRequest:
    """A request in a queue. `error` is the coordinator's answer; None until the coordinator has answered."""

    __slots__ = ("error", "proceed")

    def __init__(self, proceed: OnAdmission) -> None:
        self.proceed = proceed
        self.error: ErrorCode | None = None


class TransactionAdmission:
    """Admits transactional batches, for all producers of this node. Use it only in the event loop's thread."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        # The waiting requests of each producer, in order. The key includes the transactional id, because the
        # coordinator answers in order only within a transactional id. If requests of two transactional ids shared a
        # queue, a batch that waits for the other id's answer could be appended after the marker of its own transaction.
        self._waiting: dict[_QueueKey, deque[_WaitingRequest]] = {}
        # The epoch and the lowest sequence number of rejected batches, by producer id and partition. An entry is
        # removed when a batch of the producer is appended to the partition.
        self._rejected: dict[tuple[int, TopicPartition], tuple[int, int]] = {}

    def is_waiting(self, transactional_id: str, producer_id: int) -> bool:
        """Return whether batches of this producer wait. If they do, its later batches must wait too."""
        return (transactional_id, producer_id) in self._waiting

    def admit(self, request: AdmissionRequest, proceed: OnAdmission) -> None:
        """Call `proceed` when the coordinator has answered this request and all earlier requests of the producer."""
        waiting_request = _WaitingRequest(proceed)
        queue_key = request.transactional_id, request.producer_id
        self._waiting.setdefault(queue_key, deque()).append(waiting_request)
        if not request.partitions:
            self._on_answer(queue_key, waiting_request, ErrorCode.NONE)
            return
        if request.is_v2:
            addition = AddPartitions(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                partitions=request.partitions,
                is_v2=True,
            )
            self._submit(addition, lambda error: self._on_answer(queue_key, waiting_request, error))
            return
        verification = VerifyPartitions(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=request.partitions,
        )
        self._submit(verification, lambda errors: self._on_answer(queue_key, waiting_request, _first(errors)))

    def _submit(self, command: HasTransactionalId[A], reply: Callable[[A], None]) -> None:
        try:
            self._coordinator.submit(command, reply)
        except Exception:
            logger.exception("transactional id %s: the coordinator failed", command.transactional_id)
            reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _on_answer(self, queue_key: _QueueKey, waiting_request: _WaitingRequest, error: ErrorCode) -> None:
        waiting_request.error = error
        waiting = self._waiting[queue_key]
        while waiting and (answer := waiting[0].error) is not None:
            try:
                waiting[0].proceed(answer)
            except Exception:
                # Continue, because the later requests must not wait forever.
                logger.exception("producer %d: admitted batches could not be appended", queue_key[1])
            waiting.popleft()
        if not waiting:
            del self._waiting[queue_key]

    # --- sequence numbers

    def record_rejected(self, producer_id: int, producer_epoch: int, partition: TopicPartition, sequence: int) -> None:
        """Record that a batch was rejected. The producer will send the batch again.

        Until the batch is appended, `is_out_of_order` is True for later batches of the producer in this partition.
        """
        epoch, lowest = self._rejected.pop((producer_id, partition), (producer_epoch, sequence))
        if epoch == producer_epoch:
            sequence = min(lowest, sequence)
        if len(self._rejected) >= REJECTED_MAX:
            del self._rejected[next(iter(self._rejected))]
        self._rejected[producer_id, partition] = producer_epoch, sequence

    def is_out_of_order(self, producer_id: int, producer_epoch: int, partition: TopicPartition, sequence: int) -> bool:
        """Return whether an earlier batch of the producer was rejected in this partition and must be appended first."""
        epoch, lowest = self._rejected.get((producer_id, partition), (producer_epoch, sequence))
        return epoch == producer_epoch and sequence > lowest

    def record_appended(self, producer_id: int, partition: TopicPartition) -> None:
        """Record that a batch was appended, so that the producer no longer has a rejected batch in this partition."""
        if self._rejected:
            self._rejected.pop((producer_id, partition), None)


def _first(errors: Sequence[ErrorCode]) -> ErrorCode:
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
