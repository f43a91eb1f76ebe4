"""Read-only views of groups for monitoring: members, assignments and committed offsets.

A view shows the current state, which may not be committed yet. A metrics scrape of 100,000 groups must not wait until
the state of each shard is committed. Callers that need committed state submit a command to the coordinator.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.access.scope import prefix_of
from kwire.coordinator.group.classic.embedded_protocol import read_assignment
from kwire.coordinator.group.classic.members import Member
from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.consumer.members import ConsumerMember
from kwire.coordinator.group.group_interface import CLASSIC, EMPTY_STATE
from kwire.coordinator.group.offsets.committed import CommittedOffsets
from kwire.wire.errors import WireError

# The partitions of each topic. The key is the topic name in classic groups, and the topic id in consumer groups.
Assignment = Mapping[str | bytes, Sequence[int]]

NO_ASSIGNMENT: Assignment = {}


class MemberView(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: Assignment


class ViewedGroup(Protocol):
    """The attributes of a group that a view reads. Groups of both protocols have them."""

    @property
    def kind(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def members(self) -> Mapping[str, Member | ConsumerMember]: ...


class ViewedShard(Protocol):
    """The attributes of a shard that views read."""

    @property
    def offsets(self) -> CommittedOffsets: ...

    @property
    def groups(self) -> Mapping[str, ViewedGroup]: ...


class GroupView:
    """A view of one group. A group that has only offsets is shown as a classic group in the state Empty."""

    __slots__ = ("_group", "_offsets", "group_id")

    def __init__(self, group_id: str, group: ViewedGroup | None, offsets: CommittedOffsets) -> None:
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
        return (
            []
            if self._group is None
            else [_member_view(one, prefix_of(self.group_id)) for one in self._group.members.values()]
        )

    def offsets(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Return an iterator of (topic, partition, committed offset). Do not yield to the event loop while using it."""
        return self._offsets.of_group(self.group_id)


def find_group(shard: ViewedShard, group_id: str) -> GroupView | None:
    group = shard.groups.get(group_id)
    if group is None and not shard.offsets.has_any(group_id):
        return None
    return GroupView(group_id, group, shard.offsets)


def group_ids(shard: ViewedShard) -> list[str]:
    """Return all group ids of a shard, including those of groups that have only offsets."""
    return [*shard.groups, *(one for one in shard.offsets.group_ids() if one not in shard.groups)]


def _member_view(member: Member | ConsumerMember, prefix: str) -> MemberView:
    if isinstance(member, Member):
        return MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _classic_assignment(member.assignment, prefix),
        )
    subscription = member.subscription
    assigned: Assignment = {topic_id: sorted(indexes) for topic_id, indexes in member.current.assigned.items()}
    return MemberView(
        member.member_id, subscription.instance_id, subscription.client_id, subscription.client_host, assigned
    )


def _classic_assignment(data: bytes, prefix: str) -> Assignment:
    """Return the decoded assignment of a member; empty if the member has no assignment or is not a consumer."""
    try:
        decoded = read_assignment(data, prefix)
    except WireError:
        return NO_ASSIGNMENT
    return {one.topic: sorted(one.partitions) for one in decoded.assigned_partitions}
