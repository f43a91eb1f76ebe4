"""The commands of the transaction coordinator and their answers.

They are plain values, without wire types or callbacks. Commands are compared by identity, like those of groups. Answers
may contain errors that older clients do not support (PRODUCER_FENCED, TRANSACTION_ABORTABLE). The request handlers
replace these errors.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec import Struct

from kwire.coordinator.transaction.states import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIME, TopicPartition
from kwire.errors import ErrorCode


class ProducerAnswer(Struct, frozen=True, kw_only=True):
    """The producer id and epoch that the producer must use from now on. They are valid only if there is no error.

    If `needs_producer_id` is True, the command had no effect, because it needs a new producer id. The caller must
    allocate one and submit the command again with this id as `fresh_producer_id`.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    needs_producer_id: bool = False


class InitProducer(Struct, frozen=True, eq=False, kw_only=True):
    """Start a producer. A producer that continues after an error sends its producer id and epoch."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID

    def refused(self, error: ErrorCode) -> ProducerAnswer:
        return ProducerAnswer(error=error)


class AddPartitions(Struct, frozen=True, eq=False, kw_only=True):
    """Add partitions to a transaction. The first command begins it. The answer is one error for all partitions.

    `is_v2` is True if the client uses a new epoch for every transaction (Produce 12 and newer).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    is_v2: bool = False

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class VerifyPartitions(Struct, frozen=True, eq=False, kw_only=True):
    """Check that these partitions belong to the transaction. The answer has one error per partition, in order."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]

    def refused(self, error: ErrorCode) -> list[ErrorCode]:
        return [error] * len(self.partitions)


class EndTransaction(Struct, frozen=True, eq=False, kw_only=True):
    """Commit or abort a transaction.

    `is_v2` is True if the client gets its next epoch from the answer (EndTxn 5 and newer).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    is_v2: bool = False
    fresh_producer_id: int = NO_PRODUCER_ID

    def refused(self, error: ErrorCode) -> ProducerAnswer:
        return ProducerAnswer(error=error)


class DescribeAnswer(Struct, frozen=True, kw_only=True):
    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = NO_TIME
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: Collection[TopicPartition] = ()


class DescribeTransaction(Struct, frozen=True, eq=False, kw_only=True):
    transactional_id: str

    def refused(self, error: ErrorCode) -> DescribeAnswer:
        return DescribeAnswer(error=error)


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListAnswer(Struct, frozen=True):
    error: ErrorCode
    transactions: Sequence[ListedTransaction] = ()


class ListTransactions(Struct, frozen=True, eq=False, kw_only=True):
    """List the transactional ids of one shard that match all filters.

    - `transactional_id` is any name that maps to the shard.
    - `states` has Kafka's names of states (`STATE_NAMES`). An unknown name matches no transaction.
    - `producer_ids` has the producer ids. An empty set of states or producer ids matches all transactions.
    - `duration_ms` selects transactions that began longer ago than this. A negative value matches all.
    - `matches` selects transactional ids for which this function returns True.
    """

    transactional_id: str
    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    matches: Callable[[str], bool] | None = None

    def refused(self, error: ErrorCode) -> ListAnswer:
        return ListAnswer(error)


class MarkersWritten(Struct, frozen=True, eq=False, kw_only=True):
    """Handle the end of an attempt to write the markers of a transaction. The answer is not used.

    `failed` has the partitions whose marker could not be written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    failed: frozenset[TopicPartition]

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class CheckDeadlines(Struct, frozen=True, eq=False):
    """Handle the deadlines of a transactional id that have passed. The shard creates this command itself."""

    transactional_id: str

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class RunTimeoutScan(Struct, frozen=True, eq=False):
    """Run the next chunk of the periodic scans. The shard creates this command itself."""

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


ClientCommand = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | DescribeTransaction
InternalCommand = MarkersWritten | CheckDeadlines
# Commands for a whole shard rather than for one of its transactional ids.
ShardCommand = ListTransactions | RunTimeoutScan
