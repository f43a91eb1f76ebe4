"""Replaces a classic group by a consumer group, or the reverse.

A decision creates the new group. If the append of the decision's records fails, the old group continues unchanged. So
the new group is not put into the group table immediately. It is staged: `GroupReplacement` holds it until the first
record of the new group or the last record of the old group is applied. This happens immediately after the append. If
the append fails, the staged group is discarded. During a replay no group is staged, and groups are created from their
records.
"""

from collections.abc import Callable
from typing import TypeVar

from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.consumer.group import ConsumerGroup

AnyGroup = ClassicGroup | ConsumerGroup
G = TypeVar("G", ClassicGroup, ConsumerGroup)


class GroupReplacement:
    """Holds the staged group of one shard, if any.

    There is at most one, because the records of a decision are applied or discarded before the next decision.
    """

    def __init__(self, groups: dict[str, AnyGroup], schedule_wake: Callable[[AnyGroup], None]) -> None:
        self._groups = groups
        self._schedule_wake = schedule_wake
        # The staged group. The shard discards it before each decision: if there is still one then, the records of its
        # decision were not appended.
        self.staged: AnyGroup | None = None

    def stage(self, staged: AnyGroup) -> None:
        """Stage a new group. The current decision writes the new group's first or the old group's last records."""
        self.staged = staged

    def install_successor(self, group_id: str) -> None:
        """Put the staged group, if any, into the table. Called after the last record of the old group is applied."""
        staged, self.staged = self.staged, None
        if staged is not None and staged.group_id == group_id:
            self._add_to_table(staged)

    def install(self, group_id: str, kind: type[G], make: Callable[[], G]) -> G:
        """Put the staged group, or a new group, into the table. Called before the group's first record is applied."""
        staged, self.staged = self.staged, None
        if isinstance(staged, kind) and staged.group_id == group_id:
            self._add_to_table(staged)
            return staged
        group = make()
        self._groups[group_id] = group
        return group

    def _add_to_table(self, staged: AnyGroup) -> None:
        self._groups[staged.group_id] = staged
        # The decision may have set deadlines of the group.
        self._schedule_wake(staged)
