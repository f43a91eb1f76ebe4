"""RemoteGroupReports: reports on the groups of a cluster, of the classic and of the consumer protocol."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.views import Assignment, MemberView
from kwire.coordinator.group_reports import GROUPS_PER_CHUNK, GroupReports, LagMeter, visible_ids
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.descriptions import (
    CLASSIC,
    DescribedGroup,
    DescribedMember,
    GroupDescriptions,
    ListedGroup,
)
from kwire.kafka_client.groups.offsets import GroupOffsets, OffsetsOfGroup
from kwire.streams.remote_groups.assignors import read_partitions
from kwire.wire.errors import WireError
from kwire.wire.types import ZERO_UUID

# The coordinator does not tell when an offset was committed and when it expires.
UNKNOWN_TIME = -1
# Members of groups of other types, such as Kafka Connect, have assignments in formats of their own.
_CONSUMER_TYPES = ("consumer", "")


class RemoteGroup:
    """A group of the cluster with all its committed offsets: a ReportedGroup."""

    def __init__(self, listed: ListedGroup, described: DescribedGroup | None, offsets: OffsetsOfGroup) -> None:
        self.group_id = listed.group_id
        self.kind = listed.kind if described is None else described.kind
        self.state = listed.state if described is None else described.state
        self._described = described
        self._offsets = offsets

    @property
    def member_count(self) -> int:
        return 0 if self._described is None else len(self._described.members)

    @property
    def offset_count(self) -> int:
        return sum(map(len, self._offsets.values()))

    def members(self) -> Sequence[MemberView]:
        if self._described is None:
            return ()
        is_readable = self._described.protocol_type in _CONSUMER_TYPES
        return [
            MemberView(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                _assignment_of(one) if is_readable else {},
            )
            for one in self._described.members
        ]

    def offsets(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._offsets.items():
            for partition, one in partitions.items():
                committed = CommittedOffset(
                    one.offset, one.leader_epoch, one.metadata, UNKNOWN_TIME, UNKNOWN_TIME, ZERO_UUID
                )
                yield topic, partition, committed


class RemoteGroupReports(GroupReports):
    def __init__(self, cluster: Cluster, lags: LagMeter) -> None:
        super().__init__(lags)
        coordinators = Coordinators(cluster)
        self._offsets = GroupOffsets(coordinators)
        self._descriptions = GroupDescriptions(coordinators)

    def name_of(self, topic_id: bytes) -> str | None:
        """Assignments of a cluster have the names of topics."""
        return None

    async def find(self, group_id: str) -> RemoteGroup | None:
        described = await self._descriptions.find(group_id)
        if described is None:
            return None
        listed = ListedGroup(group_id, described.protocol_type, described.state, described.kind)
        return RemoteGroup(listed, described, await self._offsets.committed(group_id))

    async def named(self, group_ids: Iterable[str]) -> list[RemoteGroup]:
        """Return groups of the classic protocol, in few requests. Those that do not exist have no members."""
        return await self._groups_of([ListedGroup(one, "", "", CLASSIC) for one in group_ids])

    async def page(
        self, after: str | None, count: int, may_see: Callable[[str], bool] | None = None
    ) -> list[RemoteGroup]:
        listed = {one.group_id: one for one in await self._descriptions.all() if after is None or one.group_id > after}
        ids = list(listed)
        if may_see is not None:
            ids = await visible_ids(ids, may_see)
        return await self._groups_of([listed[one] for one in ids[:count]])

    async def all(self) -> AsyncIterator[list[RemoteGroup]]:
        listed = await self._descriptions.all()
        for first in range(0, len(listed), GROUPS_PER_CHUNK):
            yield await self._groups_of(listed[first : first + GROUPS_PER_CHUNK])

    async def _groups_of(self, listed: Sequence[ListedGroup]) -> list[RemoteGroup]:
        described = await self._descriptions.describe(listed)
        offsets: Mapping[str, OffsetsOfGroup] = await self._offsets.committed_of_all(one.group_id for one in listed)
        return [RemoteGroup(one, described.get(one.group_id), offsets.get(one.group_id, {})) for one in listed]


def _assignment_of(member: DescribedMember) -> Assignment:
    try:
        decoded = read_partitions(member.assignment) if isinstance(member.assignment, bytes) else member.assignment
    except WireError:
        return {}
    return {topic: sorted(partitions) for topic, partitions in decoded.items()}
