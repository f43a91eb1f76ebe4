"""Which transactional batches may be appended: those of partitions that the coordinator has in the transaction.

A batch in a transaction that nobody knows of would never get a marker, and every reader of committed data would wait
for it for ever (KIP-890). So the first batch of a transaction in a partition waits until the coordinator has said that
the partition belongs to it: producers of the first generation have told it before, for those of the second it is added
now. Batches of one producer are appended in the order in which they came, also where only some of them have to wait.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from kwire.coordinator.transaction.commands import AddPartitions, VerifyPartitions
from kwire.coordinator.transaction.coordinator import NamesTransaction, TransactionCoordinator
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode

logger = logging.getLogger(__name__)

A = TypeVar("A")

# Partitions whose first batch was turned away and has not come again; the oldest are forgotten.
TURNED_AWAY_MAX: Final = 100_000

# Called once, in the order of the requests: whether the batches may be appended. It appends them before it returns.
Go = Callable[[ErrorCode], None]
# A transactional id and a producer id.
_Line = tuple[str, int]


class Entrance(Struct, frozen=True, eq=False):
    """One request's batches of a transaction. `partitions` are those in which the transaction is not open yet."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    # The producer does not add partitions itself.
    is_v2: bool


class _Place:
    __slots__ = ("error", "go")

    def __init__(self, go: Go) -> None:
        self.go = go
        self.error: ErrorCode | None = None


class Admissions:
    """All of this node. Everything happens on the event loop."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        # Requests that wait, in the order in which they came. By both, because only answers about one transactional id
        # keep their order: behind one that names another, an append could come after its marker.
        self._waiting: dict[_Line, deque[_Place]] = {}
        # The lowest sequence that was turned away, by producer and partition, with the epoch it had.
        self._turned_away: dict[tuple[int, TopicPartition], tuple[int, int]] = {}

    def is_waiting(self, transactional_id: str, producer_id: int) -> bool:
        """Whether batches of this producer wait: whatever it sends has to wait behind them."""
        return (transactional_id, producer_id) in self._waiting

    def enter(self, entrance: Entrance, go: Go) -> None:
        place = _Place(go)
        line = entrance.transactional_id, entrance.producer_id
        self._waiting.setdefault(line, deque()).append(place)
        if not entrance.partitions:
            self._told(line, place, ErrorCode.NONE)
            return
        if entrance.is_v2:
            addition = AddPartitions(
                transactional_id=entrance.transactional_id,
                producer_id=entrance.producer_id,
                producer_epoch=entrance.producer_epoch,
                partitions=entrance.partitions,
                is_v2=True,
            )
            self._ask(addition, lambda error: self._told(line, place, error))
            return
        question = VerifyPartitions(
            transactional_id=entrance.transactional_id,
            producer_id=entrance.producer_id,
            producer_epoch=entrance.producer_epoch,
            partitions=entrance.partitions,
        )
        self._ask(question, lambda errors: self._told(line, place, _first(errors)))

    def _ask(self, command: NamesTransaction[A], reply: Callable[[A], None]) -> None:
        try:
            self._coordinator.ask(command, reply)
        except Exception:
            logger.exception("the coordinator of %s cannot be asked", command.transactional_id)
            reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _told(self, line: _Line, place: _Place, error: ErrorCode) -> None:
        place.error = error
        waiting = self._waiting[line]
        while waiting and (told := waiting[0].error) is not None:
            try:
                waiting[0].go(told)
            except Exception:
                # Those behind it are not to wait for ever.
                logger.exception("batches of producer %d that were let in", line[1])
            waiting.popleft()
        if not waiting:
            del self._waiting[line]

    # --- sequences

    def turn_away(self, producer_id: int, producer_epoch: int, partition: TopicPartition, sequence: int) -> None:
        """A batch could not be let in and will come again: what follows it must not be taken for the first one."""
        epoch, lowest = self._turned_away.pop((producer_id, partition), (producer_epoch, sequence))
        if epoch == producer_epoch:
            sequence = min(lowest, sequence)
        if len(self._turned_away) >= TURNED_AWAY_MAX:
            del self._turned_away[next(iter(self._turned_away))]
        self._turned_away[producer_id, partition] = producer_epoch, sequence

    def is_ahead(self, producer_id: int, producer_epoch: int, partition: TopicPartition, sequence: int) -> bool:
        """Whether an earlier batch of the same producer was turned away here and has to come first."""
        epoch, lowest = self._turned_away.get((producer_id, partition), (producer_epoch, sequence))
        return epoch == producer_epoch and sequence > lowest

    def let_in(self, producer_id: int, partition: TopicPartition) -> None:
        """A batch was appended."""
        if self._turned_away:
            self._turned_away.pop((producer_id, partition), None)


def _first(errors: Sequence[ErrorCode]) -> ErrorCode:
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
