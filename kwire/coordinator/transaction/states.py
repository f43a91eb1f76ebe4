"""Where a transactional id can stand: all that a restart has to find again."""

from enum import IntEnum

from msgspec import Struct

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
# Versions of Kafka's feature `transaction.version`: since 1 records have tagged fields, since 2 every transaction of a
# producer has an epoch of its own (KIP-890).
VERSION_WITH_TAGGED_FIELDS = 1
VERSION_WITH_EPOCH_PER_TRANSACTION = 2

TopicPartition = tuple[str, int]


class State(IntEnum):
    """Kafka's numbers. Its 6 (dead) and 7 (about to fence an epoch) are never written and not needed here."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def told_name(self) -> str:
        """How Kafka's tools spell it."""
        return _TOLD_NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """It is decided how the transaction ends, but not all partitions know."""
        return self is State.PREPARE_COMMIT or self is State.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        return self is State.COMPLETE_COMMIT or self is State.COMPLETE_ABORT


_TOLD_NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
# What a client may ask for when it lists transactions, also the two that no transaction is ever seen in.
TOLD_STATES = frozenset({*_TOLD_NAMES.values(), "Dead", "PrepareEpochFence"})


class Standing(Struct, frozen=True, kw_only=True):
    """Where one transactional id stands, as its last record says."""

    state: State
    producer_id: int
    producer_epoch: int
    # The id before the last change of any kind: mostly the same one.
    previous_producer_id: int = NO_PRODUCER_ID
    # The id that the producer goes on with when the prepared transaction is complete, if its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int
    # The version of the protocol that the client used for the last change.
    version: int = 0
