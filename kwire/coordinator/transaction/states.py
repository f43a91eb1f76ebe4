"""The stored state of a transactional id."""

from enum import IntEnum

from msgspec import Struct

from kwire.enum_members import fast_members

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
# Versions of Kafka's feature `transaction.version`. Since version 1, records have tagged fields. Since version 2, every
# transaction has its own producer epoch (KIP-890).
VERSION_WITH_TAGGED_FIELDS = 1
VERSION_WITH_EPOCH_PER_TRANSACTION = 2

TopicPartition = tuple[str, int]


@fast_members
class State(IntEnum):
    """The state of a transaction, with Kafka's numbers. Kafka's 6 (Dead) and 7 (PrepareEpochFence) are never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        """The name of the state in Kafka's tools."""
        return _KAFKA_NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is to be committed or aborted, but some partitions may still lack their marker."""
        return self is State.PREPARE_COMMIT or self is State.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        return self is State.COMPLETE_COMMIT or self is State.COMPLETE_ABORT


_KAFKA_NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
# The state names that ListTransactions accepts. No transaction ever has one of the last two states.
STATE_NAMES = frozenset({*_KAFKA_NAMES.values(), "Dead", "PrepareEpochFence"})


class TransactionMetadata(Struct, frozen=True, kw_only=True):
    """The state of one transactional id, as in its last record (Kafka's TransactionMetadata)."""

    state: State
    producer_id: int
    producer_epoch: int
    # The producer id before the last change. Usually it is the same as `producer_id`.
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer id after the prepared transaction is complete, if the epochs of `producer_id` are exhausted.
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int
    # The transaction version that the client used for the last change.
    version: int = 0
