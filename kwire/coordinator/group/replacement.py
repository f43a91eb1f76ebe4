"""How a group of one kind takes the place of one of the other.

The new group is made by a decision, but the decision may not come to be: if its records cannot be appended, the old
group goes on as if nothing had been. So the new group waits outside the table until its own first record is applied, or
the old one's last, which is right after the append or never. Replay has nobody waiting, and makes groups of what it
reads.
"""

from collections.abc import Callable
from typing import TypeVar

from kwire.coordinator.group.classic import ClassicGroup
from kwire.coordinator.group.consumer.group import ConsumerGroup

AnyGroup = ClassicGroup | ConsumerGroup
G = TypeVar("G", ClassicGroup, ConsumerGroup)


class Succession:
    """Of one shard. Only one group waits at a time: a decision is applied before the next is taken, or not at all."""

    def __init__(self, groups: dict[str, AnyGroup], note_wake: Callable[[AnyGroup], None]) -> None:
        self._groups = groups
        self._note_wake = note_wake
        self._heir: AnyGroup | None = None

    def begin(self) -> None:
        """Another decision is to be taken: whoever still waits belongs to one that did not come to be."""
        self._heir = None

    def announce(self, heir: AnyGroup) -> None:
        """This decision's records are the first of this group, or the last of the one before it."""
        self._heir = heir

    def follow(self, group_id: str) -> None:
        """The last record of a group has been applied: the one announced takes its place, if there is one."""
        heir, self._heir = self._heir, None
        if heir is not None and heir.group_id == group_id:
            self._enter(heir)

    def install(self, group_id: str, kind: type[G], make: Callable[[], G]) -> G:
        """A first record is applied: put the group into the table, the one announced or else a new one."""
        heir, self._heir = self._heir, None
        if isinstance(heir, kind) and heir.group_id == group_id:
            self._enter(heir)
            return heir
        group = make()
        self._groups[group_id] = group
        return group

    def _enter(self, heir: AnyGroup) -> None:
        self._groups[heir.group_id] = heir
        # The decision has given it deadlines.
        self._note_wake(heir)
