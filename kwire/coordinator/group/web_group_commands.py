"""What can be asked about a group that is defined outside the coordinator: that it be there, and how it stands."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from kwire.errors import ErrorCode


class DefineAnswer(Struct, frozen=True):
    error: ErrorCode
    message: str | None = None


class DefineGroup(Struct, frozen=True, eq=False, kw_only=True):
    """Let there be a consumer group of this name, though it has no members yet: everybody sees it from now on."""

    group_id: str

    def refused(self, error: ErrorCode) -> DefineAnswer:
        return DefineAnswer(error)


class GroupFacts(NamedTuple):
    """`generation` is what members are fenced by; `rebalanced_wall_ms` is 0 if nobody was ever given anything."""

    state: str
    kind: str
    member_count: int
    generation: int
    rebalanced_wall_ms: int


class FactsAnswer(Struct, frozen=True):
    """`facts` is None if there is no such group. `committed` are the partitions of the topic that have an offset, with
    the id of the topic it was committed for."""

    error: ErrorCode
    facts: GroupFacts | None = None
    committed: Sequence[tuple[int, bytes]] = field(default_factory=tuple)


class AskFacts(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    topic: str

    def refused(self, error: ErrorCode) -> FactsAnswer:
        return FactsAnswer(error)
