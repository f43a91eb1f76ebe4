"""The door of the transaction coordinator: what the node builds and the handlers ask."""

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeVar

from kwire.clock import Clock
from kwire.coordinator.runtime import CallLater, Command, CoordinatorLog, CoordinatorRuntime, Timer, keys_of_shards
from kwire.coordinator.transaction.commands import ListTransactions, MarkersWritten
from kwire.coordinator.transaction.markers import MarkerWriter, WriteMarkers
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.shard import TransactionShard
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import KafkaError

logger = logging.getLogger(__name__)

# Between the loading of two shards, so that clients are served meanwhile.
LOAD_PAUSE_SECONDS = 0.005
# Until the next attempt, if some could not be loaded: what was prepared there has to be completed.
LOAD_RETRY_SECONDS = 5.0
# A state that no transaction is in: who lists these only wants the shard to be loaded.
NO_STATE = frozenset({"none"})

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class NamesTransaction(Command[Answer_co], Protocol[Answer_co]):
    """A command of `commands.py`: it says which transactional id it is about."""

    @property
    def transactional_id(self) -> str: ...


class TransactionCoordinator:
    """Coordinates every transaction of this node. `write_markers` tells partitions how a transaction ended."""

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        clock: Clock,
        call_later: CallLater,
        write_markers: MarkerWriter,
        transaction_version: Callable[[], int],
        settings: TransactionSettings | None = None,
        coordinator_epoch: int = 0,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self._write_markers = write_markers
        self._runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            shard_count=self.settings.state_log_num_partitions,
            new_machine=lambda: TransactionShard(self.settings, transaction_version, coordinator_epoch),
            log=log,
            clock=clock,
            call_later=call_later,
            on_effect=self._carry_out,
        )
        self._call_later = call_later
        self._loading: Timer | None = None
        # A name that falls on each shard: under it the shard can be asked about all of its transactional ids.
        self.shard_keys = keys_of_shards(self.settings.state_log_num_partitions, self._runtime.shard_of)

    def load(self) -> None:
        """Load every shard, one after the other: what was prepared is completed also if nobody asks for it."""
        self._load_from(0)

    def _load_from(self, shard: int) -> None:
        self._loading = None
        if shard < self.shard_count:
            self.ask(ListTransactions(transactional_id=self.shard_keys[shard], states=NO_STATE), lambda _: None)
            self._loading = self._call_later(LOAD_PAUSE_SECONDS, lambda: self._load_from(shard + 1))
        elif sum(1 for _ in self.shards()) < self.shard_count:
            self._loading = self._call_later(LOAD_RETRY_SECONDS, self.load)

    @property
    def shard_count(self) -> int:
        return len(self.shard_keys)

    def ask(self, command: NamesTransaction[A], reply: Callable[[A], None]) -> None:
        """Put a command to its transactional id; `reply` is called exactly once, possibly before this returns."""
        self._runtime.submit(command.transactional_id, command, reply)

    def shard_of(self, transactional_id: str) -> int:
        """The partition of the state topic that holds a transactional id."""
        return self._runtime.shard_of(transactional_id)

    def shards(self) -> Iterator[TransactionShard]:
        """Those that have been loaded."""
        return self._runtime.machines()

    def waiting_count(self) -> int:
        """Requests that wait for markers or for the log."""
        return self._runtime.waiting_count()

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._runtime.close()

    # Markers

    def _carry_out(self, effect: WriteMarkers, error: KafkaError | None) -> None:
        attempt = _Attempt(effect, self._runtime)
        if error is not None:
            # Whether it is committed will be seen: nobody may know the decision before.
            attempt.done(effect.partitions)
            return
        try:
            self._write_markers(effect, attempt.done)
        except Exception:
            logger.exception("markers of transaction %s of producer %d", effect.transactional_id, effect.producer_id)
            attempt.done(effect.partitions)


class _Attempt:
    """One attempt to write markers; it is over once."""

    __slots__ = ("_effect", "_is_over", "_runtime")

    def __init__(self, effect: WriteMarkers, runtime: CoordinatorRuntime[TransactionShard]) -> None:
        self._effect = effect
        self._runtime = runtime
        self._is_over = False

    def done(self, failed: Collection[TopicPartition]) -> None:
        if self._is_over:
            return
        self._is_over = True
        effect = self._effect
        self._runtime.tell(
            effect.transactional_id,
            MarkersWritten(
                transactional_id=effect.transactional_id,
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                failed=effect.partitions.intersection(failed),
            ),
        )
