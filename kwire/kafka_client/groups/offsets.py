"""GroupOffsets: commits and fetches the offsets of groups of a cluster. All methods raise KafkaError."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kwire.errors import ErrorCode
from kwire.kafka_client.errors import error_code, refusal
from kwire.kafka_client.groups.coordinators import GROUPS_PER_REQUEST, PASSING, Coordinators
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kwire.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

# The last versions with names of topics instead of ids.
COMMIT_VERSION_MAX: Final = 9
FETCH_VERSION_MAX: Final = 9
SEVERAL_GROUPS_VERSION: Final = 8
# In a commit: not by a member. The coordinator accepts it while the group has no members.
NO_MEMBER: Final = ""
NO_GENERATION: Final = -1
NO_OFFSET: Final = -1


class Committed(NamedTuple):
    """A committed offset. The coordinator does not tell when it was committed."""

    offset: int
    leader_epoch: int
    metadata: str


# Committed offsets by topic and partition.
OffsetsOfGroup = Mapping[str, Mapping[int, Committed]]


class GroupOffsets:
    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators

    async def commit(
        self,
        group_id: str,
        topic: str,
        offsets: Sequence[tuple[int, int]],
        member_id: str = NO_MEMBER,
        generation: int = NO_GENERATION,
    ) -> Mapping[int, ErrorCode]:
        """Commit offsets, given as (partition, offset), and return the partitions that were refused."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        response: OffsetCommitResponse = await self._coordinators.ask(
            group_id, OFFSET_COMMIT, request, _passing_code, version_max=COMMIT_VERSION_MAX
        )
        return {
            one.partition_index: error_code(one.error_code)
            for found in response.topics
            for one in found.partitions
            if one.error_code
        }

    async def committed(
        self, group_id: str, topics: Mapping[str, Sequence[int]] | None = None, *, is_stable: bool = False
    ) -> OffsetsOfGroup:
        """Return the committed offsets of a group, of all topics if `topics` is None.

        With `is_stable`, the coordinator answers when no transaction with offsets of these partitions is open.
        """
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=list(some)) for name, some in topics.items()],
            groups=[_group(group_id, topics)],
            require_stable=is_stable,
        )
        response: OffsetFetchResponse = await self._coordinators.ask(
            group_id, OFFSET_FETCH, request, _code_of_fetch, version_max=FETCH_VERSION_MAX
        )
        code = _code_of_fetch(response)
        if code:
            raise refusal(f"the offsets of group {group_id!r}", code)
        # The versions before 8 are of one group.
        return _offsets_in(response.groups[0].topics if response.groups else response.topics)

    async def committed_of_all(self, group_ids: Iterable[str]) -> Mapping[str, OffsetsOfGroup]:
        """Return all committed offsets of groups by their ids, in few requests."""
        found: dict[str, OffsetsOfGroup] = {}
        for node, ids in (await self._coordinators.nodes_of(group_ids)).items():
            link = self._coordinators.cluster.link(node, Purpose.CONTROL)
            connection = await link.connection()
            if not connection.versions.has(OFFSET_FETCH, SEVERAL_GROUPS_VERSION):
                for group_id in ids:
                    found[group_id] = await self.committed(group_id)
                continue
            for first in range(0, len(ids), GROUPS_PER_REQUEST):
                request = OffsetFetchRequest(
                    groups=[_group(one, None) for one in ids[first : first + GROUPS_PER_REQUEST]]
                )
                response: OffsetFetchResponse = await link.request(OFFSET_FETCH, request, version_max=FETCH_VERSION_MAX)
                for group in response.groups:
                    if group.error_code:
                        self._coordinators.moved(group.group_id)
                        raise refusal(f"the offsets of group {group.group_id!r}", group.error_code)
                    found[group.group_id] = _offsets_in(group.topics)
        return found


def _offsets_in(topics: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics]) -> OffsetsOfGroup:
    return {
        topic.name: {
            one.partition_index: Committed(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
            for one in topic.partitions
            if one.committed_offset != NO_OFFSET
        }
        for topic in topics
    }


def _group(group_id: str, topics: Mapping[str, Sequence[int]] | None) -> OffsetFetchRequestGroup:
    if topics is None:
        return OffsetFetchRequestGroup(group_id=group_id, topics=None)
    named = [OffsetFetchRequestTopics(name=name, partition_indexes=list(some)) for name, some in topics.items()]
    return OffsetFetchRequestGroup(group_id=group_id, topics=named)


def _passing_code(response: OffsetCommitResponse) -> int:
    codes = (one.error_code for topic in response.topics for one in topic.partitions)
    return next((code for code in codes if code in PASSING), 0)


def _code_of_fetch(response: OffsetFetchResponse) -> int:
    """Return the error of the group, or the first one of a partition."""
    partitions: list[OffsetFetchResponsePartition | OffsetFetchResponsePartitions] = []
    for group in response.groups:
        if group.error_code:
            return group.error_code
        partitions += [one for topic in group.topics for one in topic.partitions]
    partitions += [one for topic in response.topics for one in topic.partitions]
    return response.error_code or next((one.error_code for one in partitions if one.error_code), 0)
