"""The door of the group coordinator: what the node builds and the handlers ask."""

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from kwire.clock import Clock
from kwire.coordinator.coordinator import Coordinator
from kwire.coordinator.decisions import Command
from kwire.coordinator.group.classic import ClassicGroup
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.routing import ConsumerGroups, SettingsOf
from kwire.coordinator.group.metadata_budget import MetadataBudget
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.group.succession import AnyGroup
from kwire.coordinator.group.topics_view import TopicsView
from kwire.coordinator.runtime import CallLater, CallSoon, CoordinatorLog, Done
from kwire.errors import ErrorCode, KafkaError

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class NamesGroup(Command[Answer_co], Protocol[Answer_co]):
    """A command of `commands.py`: it says which group it is about."""

    @property
    def group_id(self) -> str: ...


class GroupCoordinator(Coordinator[GroupShard]):
    """Coordinates every group of this node. A shard is loaded when its first group is asked for."""

    def __init__(
        self,
        *,
        log: CoordinatorLog,
        clock: Clock,
        call_later: CallLater,
        call_soon: CallSoon | None = None,
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
        super().__init__(
            shard_count=self.settings.offsets_topic_num_partitions,
            new_machine=lambda: GroupShard(self.settings, topics, consumers),
            log=log,
            clock=clock,
            call_later=call_later,
            call_soon=call_soon,
        )

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

    def groups(self) -> Iterator[ClassicGroup]:
        """The classic groups of every loaded shard."""
        return (group for group in self._all_groups() if isinstance(group, ClassicGroup))

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        """The consumer groups of every loaded shard."""
        return (group for group in self._all_groups() if isinstance(group, ConsumerGroup))

    def _all_groups(self) -> Iterator[AnyGroup]:
        return (group for shard in self.shards() for group in shard.groups.values())

    def has_offsets_in(self, topic: str) -> bool:
        """Whether any group has committed offsets in a topic. Raises KafkaError until all shards are loaded."""
        shard_count = 0
        for shard in self.shards():
            if shard.offsets.has_topic(topic):
                return True
            shard_count += 1
        if shard_count < self.shard_count:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are still being loaded")
        return False
