"""The base class of the group coordinator and the transaction coordinator: shards, loading and closing."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kwire.clock import Clock
from kwire.coordinator.coordinator_log import CoordinatorLog
from kwire.coordinator.decisions import StateMachine
from kwire.coordinator.runtime import CallLater, CallSoon, CoordinatorRuntime, OnEffect, Timer
from kwire.coordinator.sharding import keys_of_shards

# The pause before the load of the next shard is started. Clients are served during the pause.
LOAD_PAUSE_SECONDS = 0.005

M = TypeVar("M", bound=StateMachine)


class Coordinator(ABC, Generic[M]):
    """Loads and runs the state machines of one internal topic: one shard per partition."""

    # After this delay, shards that could not be loaded are loaded again. With None, such a shard is loaded again at the
    # next request for it.
    load_retry_seconds: float | None = None

    def __init__(
        self,
        *,
        shard_count: int,
        new_machine: Callable[[], M],
        log: CoordinatorLog,
        clock: Clock,
        call_later: CallLater,
        call_soon: CallSoon | None = None,
        on_effect: OnEffect | None = None,
    ) -> None:
        self._runtime: CoordinatorRuntime[M] = CoordinatorRuntime(
            shard_count=shard_count,
            new_machine=new_machine,
            log=log,
            clock=clock,
            call_later=call_later,
            call_soon=call_soon,
            on_effect=on_effect,
        )
        self._call_later = call_later
        self._loading: Timer | None = None
        # Maps a name to its partition of the internal topic.
        self.shard_of = self._runtime.shard_of
        # For each shard, a name that maps to the shard. A command for a whole shard uses this name as its id.
        self.shard_keys = keys_of_shards(shard_count, self.shard_of)

    @abstractmethod
    def submit(self, command: Any, reply: Callable[[Any], None]) -> None:
        """Run a command on its shard. Calls `reply` exactly once, before this returns or later."""

    def load(self) -> None:
        """Load every shard, one after the other: deadlines must be handled even in shards that get no requests."""
        self._load_from(0)

    def _load_from(self, shard: int) -> None:
        self._loading = None
        if shard < self.shard_count:
            self._runtime.load(shard)
            self._loading = self._call_later(LOAD_PAUSE_SECONDS, lambda: self._load_from(shard + 1))
        elif self.load_retry_seconds is not None and sum(1 for _ in self.shards()) < self.shard_count:
            self._loading = self._call_later(self.load_retry_seconds, self.load)

    @property
    def shard_count(self) -> int:
        return len(self.shard_keys)

    def shards(self) -> Iterator[M]:
        """Return the state machines of the loaded shards."""
        return self._runtime.machines()

    def waiting_count(self) -> int:
        """Return the number of commands that have not been answered yet."""
        return self._runtime.waiting_count()

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._runtime.close()
