"""GroupDescriptions: lists, describes and deletes groups of a cluster. All methods raise KafkaError."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kwire.errors import ErrorCode
from kwire.kafka_client.errors import NotSupported, error_code, refusal
from kwire.kafka_client.groups.coordinators import GROUPS_PER_REQUEST, Coordinators
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from kwire.wire.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from kwire.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from kwire.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"


class ListedGroup(NamedTuple):
    """`kind` is empty if the broker does not tell it (before Apache Kafka 3.8)."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class DescribedMember(NamedTuple):
    """`assignment` is in the format of the group's protocol type in a classic group, and decoded in others."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: bytes | Mapping[str, Sequence[int]]


class DescribedGroup(NamedTuple):
    """`generation` is the epoch of a group of the consumer protocol; None for classic groups, which do not tell it."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    generation: int | None
    members: Sequence[DescribedMember]


class GroupDescriptions:
    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        self._cluster = coordinators.cluster

    async def all(self) -> list[ListedGroup]:
        """Return the groups of all brokers, ordered by id. Raises KafkaError if one broker does not answer."""
        await self._cluster.refresh()
        brokers = list(self._cluster.metadata.brokers)
        found = await asyncio.gather(*(self._groups_of(node) for node in brokers))
        # While a coordinator moves, two brokers may name the group.
        return sorted({one.group_id: one for some in found for one in some}.values())

    async def _groups_of(self, node: int) -> list[ListedGroup]:
        response: ListGroupsResponse = await self._cluster.link(node, Purpose.CONTROL).request(
            LIST_GROUPS, ListGroupsRequest()
        )
        if response.error_code:
            raise refusal(f"the groups of broker {node}", response.error_code)
        return [
            ListedGroup(one.group_id, one.protocol_type, one.group_state, one.group_type.lower())
            for one in response.groups
        ]

    async def find(self, group_id: str) -> DescribedGroup | None:
        """Return a group; None if it does not exist. Repeated while its coordinator moves."""
        request = DescribeGroupsRequest(groups=[group_id])
        response = await self._coordinators.ask(group_id, DESCRIBE_GROUPS, request, _first_code)
        described = response.groups[0]
        code = described.error_code
        if code and code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise refusal(f"group {group_id!r}", code, described.error_message)
        if not code and described.group_state != DEAD:
            return _classic(described)
        try:
            asked = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            response = await self._coordinators.ask(group_id, CONSUMER_GROUP_DESCRIBE, asked, _first_code)
        except NotSupported:
            return None
        described = response.groups[0]
        if described.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        if described.error_code:
            raise refusal(f"group {group_id!r}", described.error_code, described.error_message)
        return _consumer(described)

    async def describe(self, groups: Iterable[ListedGroup]) -> Mapping[str, DescribedGroup]:
        """Return descriptions of groups by id, in few requests. Groups that were deleted meanwhile are left out."""
        classic: list[str] = []
        others: list[str] = []
        for one in groups:
            (others if one.kind == CONSUMER else classic).append(one.group_id)
        found: dict[str, DescribedGroup] = {}
        for node, ids in (await self._coordinators.nodes_of(classic)).items():
            for some in _chunks(ids):
                request = DescribeGroupsRequest(groups=some)
                for described in await self._described(node, DESCRIBE_GROUPS, request):
                    if not described.error_code and described.group_state != DEAD:
                        found[described.group_id] = _classic(described)
        for node, ids in (await self._coordinators.nodes_of(others)).items():
            for some in _chunks(ids):
                asked = ConsumerGroupDescribeRequest(group_ids=some, include_authorized_operations=False)
                for described in await self._described(node, CONSUMER_GROUP_DESCRIBE, asked):
                    if not described.error_code:
                        found[described.group_id] = _consumer(described)
        return found

    async def _described(self, node: int, api: Any, request: Any) -> Sequence[Any]:
        response = await self._cluster.link(node, Purpose.CONTROL).request(api, request)
        for one in response.groups:
            code = error_code(one.error_code)
            if code is ErrorCode.NOT_COORDINATOR:
                self._coordinators.moved(one.group_id)
            if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                raise refusal(f"group {one.group_id!r}", code, one.error_message)
        groups: Sequence[Any] = response.groups
        return groups

    async def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        request = DeleteGroupsRequest(groups_names=[group_id])
        response = await self._coordinators.ask(
            group_id, DELETE_GROUPS, request, lambda answer: int(answer.results[0].error_code)
        )
        result = response.results[0]
        if result.error_code:
            raise refusal(f"group {group_id!r}", result.error_code, result.error_message)


def _chunks(ids: Sequence[str]) -> Iterable[list[str]]:
    return (list(ids[first : first + GROUPS_PER_REQUEST]) for first in range(0, len(ids), GROUPS_PER_REQUEST))


def _first_code(response: Any) -> int:
    return int(response.groups[0].error_code)


def _classic(described: Any) -> DescribedGroup:
    members = [
        DescribedMember(
            one.member_id, one.group_instance_id, one.client_id, one.client_host, bytes(one.member_assignment)
        )
        for one in described.members
    ]
    return DescribedGroup(described.group_id, CLASSIC, described.protocol_type, described.group_state, None, members)


def _consumer(described: Any) -> DescribedGroup:
    members = [
        DescribedMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            {topic.topic_name: sorted(topic.partitions) for topic in one.assignment.topic_partitions},
        )
        for one in described.members
    ]
    return DescribedGroup(described.group_id, CONSUMER, CONSUMER, described.group_state, described.group_epoch, members)
