"""The door of the group coordinator: what the node builds and the handlers ask."""

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from kwire.clock import Clock
from kwire.coordinator.group.classic import ClassicGroup
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.runtime import CallLater, Command, CoordinatorLog, CoordinatorRuntime

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class NamesGroup(Command[Answer_co], Protocol[Answer_co]):
    """A command of `commands.py`: it says which group it is about."""

    @property
    def group_id(self) -> str: ...


class GroupCoordinator:
    """Coordinates every group of this node. A shard is loaded when its first group is asked for."""

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        clock: Clock,
        call_later: CallLater,
        settings: GroupSettings | None = None,
        fresh_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.settings = settings or GroupSettings()
        # The random tail of a new member's id.
        self.fresh_id = fresh_id
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            shard_count=self.settings.offsets_topic_num_partitions,
            new_machine=lambda: GroupShard(self.settings),
            log=log,
            clock=clock,
            call_later=call_later,
        )

    def ask(self, command: NamesGroup[A], reply: Callable[[A], None]) -> None:
        """Put a command to its group; `reply` is called exactly once, possibly before this returns."""
        self._runtime.submit(command.group_id, command, reply)

    def shard_of(self, group_id: str) -> int:
        """The partition of the offsets topic that holds a group."""
        return self._runtime.shard_of(group_id)

    def groups(self) -> Iterator[ClassicGroup]:
        """The groups of every loaded shard."""
        return (group for shard in self._runtime.machines() for group in shard.groups.values())

    def shards(self) -> Iterator[GroupShard]:
        return self._runtime.machines()

    def waiting_count(self) -> int:
        """Requests that wait for a rebalance or for the log."""
        return self._runtime.waiting_count()

    def close(self) -> None:
        self._runtime.close()
