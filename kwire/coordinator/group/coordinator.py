"""The door of the group coordinator: what the node builds and the handlers ask."""

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from kwire.clock import Clock
from kwire.coordinator.group.classic import ClassicGroup
from kwire.coordinator.group.commands import ListGroups
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.routing import ConsumerGroups, SettingsOf
from kwire.coordinator.group.metadata_budget import MetadataBudget
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.group.succession import AnyGroup
from kwire.coordinator.group.topics_view import TopicsView
from kwire.coordinator.runtime import (
    CallLater,
    Command,
    CoordinatorLog,
    CoordinatorRuntime,
    Done,
    Timer,
    keys_of_shards,
)
from kwire.errors import ErrorCode, KafkaError

# Between the loading of two shards, so that clients are served meanwhile.
LOAD_PAUSE_SECONDS = 0.005
# A kind that no group is of: who lists these only wants the shard to be loaded.
NO_KIND = frozenset({"none"})

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
        topics: TopicsView | None = None,
        consumer_settings: SettingsOf | None = None,
        fresh_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.settings = settings or GroupSettings()
        # The random tail of a new member's id.
        self.fresh_id = fresh_id
        self.metadata = MetadataBudget()
        consumers = ConsumerGroups(topics, consumer_settings)
        # `watch(group_id, call)` and `unwatch`: whoever reads on behalf of members hears when partitions may move.
        self.watch, self.unwatch = consumers.watch, consumers.unwatch
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            shard_count=self.settings.offsets_topic_num_partitions,
            new_machine=lambda: GroupShard(self.settings, topics, consumers),
            log=log,
            clock=clock,
            call_later=call_later,
        )
        self._call_later = call_later
        self._loading: Timer | None = None
        # A name that falls on each shard: under it the shard can be asked about all of its groups.
        self.shard_keys = keys_of_shards(self.settings.offsets_topic_num_partitions, self._runtime.shard_of)

    def load(self) -> None:
        """Load every shard, one after the other: offsets expire also in groups that nobody asks for."""
        self._load_from(0)

    def _load_from(self, shard: int) -> None:
        self._loading = None
        if shard < self.shard_count:
            self.ask(ListGroups(group_id=self.shard_keys[shard], kinds=NO_KIND), lambda _: None)
            self._loading = self._call_later(LOAD_PAUSE_SECONDS, lambda: self._load_from(shard + 1))

    @property
    def shard_count(self) -> int:
        return len(self.shard_keys)

    def ask(self, command: NamesGroup[A], reply: Callable[[A], None]) -> None:
        """Put a command to its group; `reply` is called exactly once, possibly before this returns."""
        self._runtime.submit(command.group_id, command, reply)

    def end_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        done: Done,
    ) -> None:
        """Write the marker of a transaction into this partition of the offsets topic: its offsets count, or are gone.

        `done` is called once, possibly before this returns: with None when that is committed.
        """
        self._runtime.end_transaction(shard, producer_id, producer_epoch, coordinator_epoch, is_commit, done)

    def shard_of(self, group_id: str) -> int:
        """The partition of the offsets topic that holds a group."""
        return self._runtime.shard_of(group_id)

    def groups(self) -> Iterator[ClassicGroup]:
        """The classic groups of every loaded shard."""
        return (group for group in self._all_groups() if isinstance(group, ClassicGroup))

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        """The consumer groups of every loaded shard."""
        return (group for group in self._all_groups() if isinstance(group, ConsumerGroup))

    def _all_groups(self) -> Iterator[AnyGroup]:
        return (group for shard in self._runtime.machines() for group in shard.groups.values())

    def shards(self) -> Iterator[GroupShard]:
        return self._runtime.machines()

    def has_offsets_in(self, topic: str) -> bool:
        """Whether any group has committed offsets in a topic. Raises KafkaError until all shards are loaded."""
        shard_count = 0
        for shard in self._runtime.machines():
            if shard.offsets.has_topic(topic):
                return True
            shard_count += 1
        if shard_count < self.shard_count:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are still being loaded")
        return False

    def waiting_count(self) -> int:
        """Requests that wait for a rebalance or for the log."""
        return self._runtime.waiting_count()

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._runtime.close()
