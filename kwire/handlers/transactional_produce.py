"""The batches of a Produce request that belong to a transaction.

Where the transaction is open in the partition already they are appended at once, like all others. Else the coordinator
is asked first (`coordinator/transaction/admissions.py`), and the request's own memory is gone by the time of its
answer: these batches are copied.
"""

import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from kwire.broker.batch_validation import as_validated
from kwire.broker.partition import Partition
from kwire.coordinator.transaction.admissions import Entrance
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.produce_errors import refuse
from kwire.topic_config import KEPT_COMPRESSION
from kwire.wire.messages.produce import PartitionProduceResponse, ProduceRequest
from storage.batch import BatchHeader
from storage.errors import StorageError
from storage.log import Appended

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

# Bytes of batches in another codec than they came in, of all requests together, until they are appended.
CONVERTED_BYTES_MAX: Final = 128 * 1024 * 1024

# A batch was appended: tell it, or wait until it is safe.
OnAppended = Callable[[Partition, Appended, PartitionProduceResponse], None]


class _Part:
    __slots__ = ("answer", "batch", "header", "partition", "place")

    def __init__(
        self,
        place: TopicPartition,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        answer: PartitionProduceResponse,
    ) -> None:
        self.place = place
        self.partition = partition
        self.batch = batch
        self.header = header
        self.answer = answer


# Requests that hold such batches.
_holding: "WeakSet[TransactionalProduce]" = WeakSet()


class TransactionalProduce:
    """Those of one request. All of them are collected first: the coordinator is asked once."""

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self._admissions = context.services.admissions
        self._version = context.api_version
        self._transactional_id = request.transactional_id
        self._is_v2 = context.api_version >= FIRST_V2_VERSION
        # Producers of the first generation can be trusted to have added their partitions, if the operator wants that.
        self._is_asked_for = self._is_v2 or context.services.config.transactions.is_verified
        self._parts: list[_Part] = []
        self._converted_bytes = 0

    def add(
        self, topic_name: str, partition: Partition, batch: memoryview, header: BatchHeader
    ) -> PartitionProduceResponse:
        """The answer for this partition, to be filled in; raises KafkaError for a batch that cannot be in any.

        The batch has been validated.
        """
        if self._transactional_id is None:
            # What Kafka says to whom may not use a transactional id, also to whom has none.
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
            )
        if header.producer_id < 0 or header.base_sequence < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id or a sequence")
        first = self._parts[0].header if self._parts else header
        if (first.producer_id, first.producer_epoch) != (header.producer_id, header.producer_epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional batches of several producers in one request"
            )
        if partition.settings.compression != KEPT_COMPRESSION:
            self._hold_converted(len(batch))
        answer = PartitionProduceResponse(index=partition.index, error_code=0, base_offset=-1)
        self._parts.append(_Part((topic_name, partition.index), partition, batch, header, answer))
        return answer

    @property
    def count(self) -> int:
        return len(self._parts)

    def _hold_converted(self, size_bytes: int) -> None:
        """Count a batch in another codec than it came in: the bound on requests in memory does not know of it."""
        _holding.add(self)
        self._converted_bytes += size_bytes
        if sum(one._converted_bytes for one in _holding) > CONVERTED_BYTES_MAX:
            self._converted_bytes -= size_bytes
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "too many recompressed batches wait for their transactions, try again"
            )

    def append(self, on_appended: OnAppended, on_refused: Callable[[], None]) -> None:
        """Append everything, now or when the coordinator has agreed; one of the two is called for each part."""
        header, transactional_id = self._parts[0].header, self._transactional_id
        assert transactional_id is not None
        unknown = [part for part in self._parts if not _is_open(part)] if self._is_asked_for else []
        if not unknown and not self._admissions.is_waiting(transactional_id, header.producer_id):
            self._append_all(on_appended, on_refused)
            return
        for part in self._parts:
            part.batch = memoryview(bytearray(part.batch))

        def go(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._append_all(on_appended, on_refused)
                return
            for part in self._parts:
                if not _is_open(part):
                    self._admissions.turn_away(
                        header.producer_id, header.producer_epoch, part.place, part.header.base_sequence
                    )
                refuse(part.answer, KafkaError(self._told(error), "the partition is not in the transaction"))
                on_refused()

        self._admissions.enter(
            Entrance(
                transactional_id,
                header.producer_id,
                header.producer_epoch,
                [part.place for part in unknown],
                self._is_v2,
            ),
            go,
        )

    def _append_all(self, on_appended: OnAppended, on_refused: Callable[[], None]) -> None:
        for part in self._parts:
            try:
                appended = self._append(part)
            except (KafkaError, StorageError) as error:
                refuse(part.answer, error)
                on_refused()
            except Exception:
                # Whoever calls here may be about to answer others.
                log.exception("a batch of a transaction in %s", part.place)
                refuse(part.answer, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                on_refused()
            else:
                on_appended(part.partition, appended, part.answer)

    def _append(self, part: _Part) -> Appended:
        header = part.header
        if not _is_open(part) and self._admissions.is_ahead(
            header.producer_id, header.producer_epoch, part.place, header.base_sequence
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch of this producer has to come first"
            )
        appended = part.partition.append(part.batch, header, validate=as_validated)
        self._admissions.let_in(header.producer_id, part.place)
        return appended

    def _told(self, error: ErrorCode) -> ErrorCode:
        """The coordinator's error in words that this client's version knows."""
        if error in _PASSING:
            knows = self._is_v2 and error is ErrorCode.CONCURRENT_TRANSACTIONS
            return error if knows else ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < FIRST_ABORTABLE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        return error


def _is_open(part: _Part) -> bool:
    return part.partition.has_open_transaction(part.header.producer_id, part.header.producer_epoch)
