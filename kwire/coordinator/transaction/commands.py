"""What can be asked of the transaction coordinator, and what it answers: plain values, no wire types, no callbacks.

A command is compared by identity, like those of groups. An error that older clients do not know (PRODUCER_FENCED,
TRANSACTION_ABORTABLE) is told all the same; what these hear instead is for the handlers to say.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec import Struct

from kwire.coordinator.transaction.states import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIME, TopicPartition
from kwire.errors import ErrorCode


class ProducerAnswer(Struct, frozen=True, kw_only=True):
    """The producer id and epoch to go on with; valid only without an error.

    `needs_producer_id`: nothing was decided, for want of a fresh producer id. Take one and ask again with it.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    needs_producer_id: bool = False


class InitProducer(Struct, frozen=True, eq=False, kw_only=True):
    """A producer starts, or goes on after an error with the id and epoch that it has."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID

    def refused(self, error: ErrorCode) -> ProducerAnswer:
        return ProducerAnswer(error=error)


class AddPartitions(Struct, frozen=True, eq=False, kw_only=True):
    """The transaction reaches these partitions too; the first ones begin it. Answered by one error for all.

    `is_v2`: the client knows that every transaction has an epoch of its own (Produce 12 and newer).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    is_v2: bool = False

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class VerifyPartitions(Struct, frozen=True, eq=False, kw_only=True):
    """Whether the transaction reaches these partitions. Answered by one error for each, in order."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]

    def refused(self, error: ErrorCode) -> list[ErrorCode]:
        return [error] * len(self.partitions)


class EndTransaction(Struct, frozen=True, eq=False, kw_only=True):
    """Commit or abort. `is_v2`: the client takes its next epoch from the answer (EndTxn 5 and newer)."""

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
    """The transactional ids of one shard, those that are asked for; an empty set asks for all.

    `transactional_id` is any name that falls on the shard. States are spelt as Kafka does, `TOLD_STATES`; of one that
    does not exist there is nothing. `duration_ms`: only transactions that began longer ago. `matches`: only these ids.
    """

    transactional_id: str
    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    matches: Callable[[str], bool] | None = None

    def refused(self, error: ErrorCode) -> ListAnswer:
        return ListAnswer(error)


class MarkersWritten(Struct, frozen=True, eq=False, kw_only=True):
    """An attempt to write the markers of a transaction is over. Told by the door; nobody waits for an answer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    failed: frozenset[TopicPartition]

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class PassTime(Struct, frozen=True, eq=False):
    """A deadline of the transactional id may have passed. Asked by the shard itself; nobody waits for an answer."""

    transactional_id: str

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class LookRound(Struct, frozen=True, eq=False):
    """The next portion of what is looked at regularly is due. Asked by the shard itself."""

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


ClientCommand = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | DescribeTransaction
InnerCommand = MarkersWritten | PassTime
# What concerns a whole shard rather than one of its transactional ids.
ShardCommand = ListTransactions | LookRound
