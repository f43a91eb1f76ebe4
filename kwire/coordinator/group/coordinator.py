"""The group coordinator: the entry point that the node creates and the request handlers call."""

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from kwire.clock import Clock
from kwire.coordinator.coordinator import Coordinator
from kwire.coordinator.coordinator_log import CoordinatorLog
from kwire.coordinator.decisions import Command
from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.metadata_budget import MetadataBudget
from kwire.coordinator.group.commands import CommitOffsets
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.routing import ConsumerGroups, SettingsOf
from kwire.coordinator.group.offsets.repeated_commit import RepeatedCommit
from kwire.coordinator.group.replacement import AnyGroup
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.group.topics_view import TopicsView
from kwire.coordinator.runtime import CallLater, CallSoon, Done
from kwire.errors import ErrorCode, KafkaError

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class HasGroupId(Command[Answer_co], Protocol[Answer_co]):
    """A command for one group. `commands.py` defines these commands."""

    @property
    def group_id(self) -> str: ...


class GroupCoordinator(Coordinator[GroupShard]):
    """Coordinates all groups of this node. A command for a group loads the group's shard if it is not loaded."""

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
        self._clock = clock
        # Returns a new random id. It is the suffix of a classic member's id, or the whole id of another member.
        self.fresh_id = fresh_id
        self.metadata = MetadataBudget()
        consumers = ConsumerGroups(topics, consumer_settings)
        # `watch(group_id, call)` calls `call` whenever assignments of the group may have changed, until `unwatch` is
        # called. The readers of HTTP members use this.
        self.watch, self.unwatch = consumers.watch, consumers.unwatch
        super().__init__(
            shard_count=self.settings.offsets_topic_num_partitions,
            new_machine=lambda: GroupShard(self.settings, topics, consumers),
            log=log,
            clock=clock,
            call_later=call_later,
            call_soon=call_soon,
        )

    def submit(self, command: HasGroupId[A], reply: Callable[[A], None]) -> None:
        """Run a command on its group. Calls `reply` exactly once, before this returns or later."""
        self._runtime.submit(command.group_id, command, reply)

    def repeated_commit(self, command: CommitOffsets) -> RepeatedCommit:
        """Prepare for commits that differ from `command` only in offsets. Raises ValueError if that is not possible."""
        return RepeatedCommit(self._runtime, self._clock, command, self.settings.offset_metadata_max_bytes)

    def end_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        done: Done,
    ) -> None:
        """Write a transaction marker into this partition of the offsets topic, and apply or drop the pending offsets.

        Calls `done` once, before this returns or later: with None when the marker is on disk, or with the error.
        """
        self._runtime.end_transaction(shard, producer_id, producer_epoch, coordinator_epoch, is_commit, done)

    def groups(self) -> Iterator[ClassicGroup]:
        """Return the classic groups of every loaded shard."""
        return (group for group in self._all_groups() if isinstance(group, ClassicGroup))

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        """Return the consumer groups of every loaded shard."""
        return (group for group in self._all_groups() if isinstance(group, ConsumerGroup))

    def _all_groups(self) -> Iterator[AnyGroup]:
        return (group for shard in self.shards() for group in shard.groups.values())

    def has_offsets_in(self, topic: str) -> bool:
        """Return whether any group has committed offsets in a topic.

        Raises KafkaError if no loaded shard has such offsets and some shards are not loaded yet.
        """
        shard_count = 0
        for shard in self.shards():
            if shard.offsets.has_topic(topic):
                return True
            shard_count += 1
        if shard_count < self.shard_count:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are still being loaded; try again later")
        return False
