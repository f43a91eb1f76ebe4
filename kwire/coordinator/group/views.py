"""Groups as people look at them from outside: who is in them, what each member has, how far the group has come.

Nothing here decides or changes anything. What is seen is the state of this moment: a look at a hundred thousand groups
for a scrape must not wait for each of their shards to commit. Whoever needs an answer that no crash can take back asks
the coordinator by a command.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.consumer.members import ConsumerMember
from kwire.coordinator.group.embedded import read_assignment
from kwire.coordinator.group.kinds import CLASSIC, EMPTY_STATE
from kwire.coordinator.group.members import Member
from kwire.coordinator.group.offsets import CommittedOffsets
from kwire.wire.errors import WireError

# Partitions by topic: its name, or its id where members speak the consumer protocol.
Assignment = Mapping[str | bytes, Sequence[int]]

NO_ASSIGNMENT: Assignment = {}


class MemberView(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: Assignment


class SeenGroup(Protocol):
    """What is looked at of a group that has or had members, whichever protocol they speak."""

    @property
    def kind(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def members(self) -> Mapping[str, Member | ConsumerMember]: ...


class SeenShard(Protocol):
    """One partition of `__consumer_offsets`, as far as it is looked at."""

    @property
    def offsets(self) -> CommittedOffsets: ...

    @property
    def groups(self) -> Mapping[str, SeenGroup]: ...


class GroupView:
    """A group. One that nobody joined has offsets only, and is classic and empty."""

    __slots__ = ("_group", "_offsets", "group_id")

    def __init__(self, group_id: str, group: SeenGroup | None, offsets: CommittedOffsets) -> None:
        self.group_id = group_id
        self._group = group
        self._offsets = offsets

    @property
    def kind(self) -> str:
        return CLASSIC if self._group is None else self._group.kind

    @property
    def state(self) -> str:
        return EMPTY_STATE if self._group is None else self._group.state

    @property
    def member_count(self) -> int:
        return 0 if self._group is None else len(self._group.members)

    @property
    def offset_count(self) -> int:
        return self._offsets.count(self.group_id)

    def members(self) -> list[MemberView]:
        return [] if self._group is None else [_member_view(one) for one in self._group.members.values()]

    def offsets(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Topic, partition, and what was committed. Not to be held on to over a turn of the loop."""
        return self._offsets.of_group(self.group_id)


def find_group(shard: SeenShard, group_id: str) -> GroupView | None:
    group = shard.groups.get(group_id)
    if group is None and not shard.offsets.has_any(group_id):
        return None
    return GroupView(group_id, group, shard.offsets)


def group_ids(shard: SeenShard) -> list[str]:
    """All of this moment: those with members, or a past, and those that only have offsets."""
    return [*shard.groups, *(one for one in shard.offsets.group_ids() if one not in shard.groups)]


def _member_view(member: Member | ConsumerMember) -> MemberView:
    if isinstance(member, Member):
        return MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _classic_assignment(member.assignment),
        )
    said = member.subscription
    assigned: Assignment = {topic_id: sorted(indexes) for topic_id, indexes in member.current.assigned.items()}
    return MemberView(member.member_id, said.instance_id, said.client_id, said.client_host, assigned)


def _classic_assignment(data: bytes) -> Assignment:
    """What the leader of a group of consumers gave a member; nothing if these are no consumers, or not yet decided."""
    try:
        decoded = read_assignment(data)
    except WireError:
        return NO_ASSIGNMENT
    return {one.topic: sorted(one.partitions) for one in decoded.assigned_partitions}
