"""The transaction coordinator: the entry point that the node creates and the request handlers call."""

import logging
from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from kwire.clock import Clock
from kwire.coordinator.coordinator import Coordinator
from kwire.coordinator.coordinator_log import CoordinatorLog
from kwire.coordinator.decisions import Command
from kwire.coordinator.runtime import CallLater, CoordinatorRuntime
from kwire.coordinator.transaction.commands import MarkersWritten
from kwire.coordinator.transaction.marker_effect import MarkerWriter, WriteMarkers
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.shard import TransactionShard
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import KafkaError

logger = logging.getLogger(__name__)

# After this delay, shards that could not be loaded are loaded again, because their prepared transactions must be
# completed.
LOAD_RETRY_SECONDS = 5.0

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class HasTransactionalId(Command[Answer_co], Protocol[Answer_co]):
    """A command for one transactional id. `commands.py` defines these commands."""

    @property
    def transactional_id(self) -> str: ...


class TransactionCoordinator(Coordinator[TransactionShard]):
    """Coordinates all transactions of this node. `write_markers` writes the markers that end a transaction."""

    load_retry_seconds = LOAD_RETRY_SECONDS

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
        super().__init__(
            shard_count=self.settings.state_log_num_partitions,
            new_machine=lambda: TransactionShard(self.settings, transaction_version, coordinator_epoch),
            log=log,
            clock=clock,
            call_later=call_later,
            on_effect=self._carry_out,
        )

    def submit(self, command: HasTransactionalId[A], reply: Callable[[A], None]) -> None:
        """Run a command on its transactional id. Calls `reply` exactly once, before this returns or later."""
        self._runtime.submit(command.transactional_id, command, reply)

    # Markers

    def _carry_out(self, effect: WriteMarkers, error: KafkaError | None) -> None:
        attempt = _Attempt(effect, self._runtime)
        if error is not None:
            # It is not known whether the decision is committed, so no marker may be written now. The shard retries.
            attempt.done(effect.partitions)
            return
        try:
            self._write_markers(effect, attempt.done)
        except Exception:
            logger.exception(
                "transaction %s of producer %d: the markers cannot be written",
                effect.transactional_id,
                effect.producer_id,
            )
            attempt.done(effect.partitions)


class _Attempt:
    """One attempt to write markers. Only the first call of `done` submits the result to the shard."""

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
        self._runtime.submit_internal(
            effect.transactional_id,
            MarkersWritten(
                transactional_id=effect.transactional_id,
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                failed=effect.partitions.intersection(failed),
            ),
        )
