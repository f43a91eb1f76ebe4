"""Commands for groups that are created over HTTP: create a group, and summarize the state of a group."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from kwire.errors import ErrorCode


class DefineAnswer(Struct, frozen=True):
    error: ErrorCode
    message: str | None = None


class DefineGroup(Struct, frozen=True, eq=False, kw_only=True):
    """Create a consumer group without members. All clients can see the new group."""

    group_id: str

    def refused(self, error: ErrorCode) -> DefineAnswer:
        return DefineAnswer(error)


class GroupSummary(NamedTuple):
    """A group's state. `generation` is the group epoch in a consumer group.

    `rebalanced_wall_ms` is the time at which the last assignment was computed. It is 0 if there is no assignment, or if
    the group is a classic group.
    """

    state: str
    kind: str
    member_count: int
    generation: int
    rebalanced_wall_ms: int


class GroupSummaryAnswer(Struct, frozen=True):
    """The answer to SummarizeGroup. `summary` is None if the group does not exist.

    `committed` has (partition, topic id) for each committed offset of the topic. The offset was committed for this
    topic id.
    """

    error: ErrorCode
    summary: GroupSummary | None = None
    committed: Sequence[tuple[int, bytes]] = field(default_factory=tuple)


class SummarizeGroup(Struct, frozen=True, eq=False, kw_only=True):
    """Get the state of a group, and the partitions of a topic for which the group has committed offsets."""

    group_id: str
    topic: str

    def refused(self, error: ErrorCode) -> GroupSummaryAnswer:
        return GroupSummaryAnswer(error)
