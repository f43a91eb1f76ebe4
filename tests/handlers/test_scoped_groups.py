"""Groups of a scope: members use plain names, also in the bytes that members of classic groups exchange."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.coordinator.group.classic.embedded_protocol import read_assignment, write_assignment
from kwire.errors import ErrorCode
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from kwire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kwire.wire.messages.describe_groups import DescribeGroupsRequest
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kwire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.wire.messages.list_transactions import ListTransactionsRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.node import QuietNode, in_loop
from tests.support.scopes import A, B, Client

SUBSCRIPTION = b"\x00\x00" + encode_message(ConsumerProtocolSubscription(topics=["orders"]), 0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, "offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0") as made:
        yield made


class Tenants:
    """Clients of two scopes and an administrator. Each has a topic `orders` with two partitions."""

    def __init__(self, node: QuietNode) -> None:
        self.node = node
        self.a, self.b, self.admin = (Client(node, scope) for scope in (A, B, None))

    async def prepare(self) -> None:
        await self.node.topics.offsets_topic()
        await self.node.topics.transactions_topic()
        self.ids = {
            client: (await self.node.create(client.full_name("orders"), 2)).topic_id
            for client in (self.a, self.b, self.admin)
        }


async def join(client: Client, member_id: str = "", instance_id: str | None = None) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    response: JoinGroupResponse = await client.ask(request)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return await join(client, response.member_id, instance_id)
    return response


async def sync(client: Client, joined: JoinGroupResponse, assignment: bytes = b"") -> SyncGroupResponse:
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)] if assignment else []
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )
    response: SyncGroupResponse = await client.ask(request)
    return response


async def beat(client: Client, epoch: int = 0, **values: object) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="new",
        member_epoch=epoch,
        rebalance_timeout_ms=30_000 if epoch == 0 else -1,
        topic_partitions=[] if epoch == 0 else None,
    )
    for name, value in values.items():
        setattr(request, name, value)
    response: ConsumerGroupHeartbeatResponse = await client.ask(request)
    return response


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    assert response.assignment is not None
    return {one.topic_id: sorted(one.partitions) for one in response.assignment.topic_partitions}


async def delete_offset(client: Client, topic: str) -> int:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=[partition])])
    response = await client.ask(request)
    assert response.topics[0].name == topic
    return int(response.topics[0].partitions[0].error_code)


async def commit(client: Client, topic: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    asked = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    response = await client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=[asked]), 9)
    assert response.topics[0].partitions[0].error_code == 0


@in_loop
async def test_groups_with_the_same_id_are_different_groups(node: QuietNode) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    joined = [await join(client, instance_id="static") for client in (tenants.a, tenants.b, tenants.admin)]
    assert [one.generation_id for one in joined] == [1, 1, 1]
    assert all(one.leader == one.member_id for one in joined)
    for client, other in ((tenants.b, joined[0]), (tenants.a, joined[1]), (tenants.a, joined[2])):
        stolen = HeartbeatRequest(group_id="g", generation_id=1, member_id=other.member_id)
        assert (await client.ask(stolen)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=other.member_id)])
        left = await client.ask(leaving)
        assert [one.error_code for one in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


@in_loop
async def test_subscription_of_a_classic_group_is_of_its_scope(node: QuietNode) -> None:
    """OffsetDelete reads the subscriptions of members, which have plain names."""
    tenants = Tenants(node)
    await tenants.prepare()
    await node.create(A.full_name("idle"), 1)
    for topic in ("orders", "idle"):
        await commit(tenants.a, topic)
    joined = await join(tenants.a)
    assignment = write_assignment({"orders": [0, 1]}, 0)
    assert (await sync(tenants.a, joined, assignment)).assignment == assignment
    assert await delete_offset(tenants.a, "orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete_offset(tenants.a, "idle") == ErrorCode.NONE
    (described,) = (await tenants.a.ask(DescribeGroupsRequest(groups=["g"]))).groups
    assert read_assignment(described.members[0].member_assignment).assigned_partitions[0].topic == "orders"


@in_loop
async def test_migration_keeps_plain_names_at_the_edge(node: QuietNode) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    joined = await join(tenants.a)
    await sync(tenants.a, joined, write_assignment({"orders": [0, 1]}, 0))
    # The classic group becomes a consumer group, and its member keeps its partitions.
    first = await beat(tenants.a, subscribed_topic_names=["orders"])
    assert first.error_code == 0
    (described,) = (
        await tenants.a.ask(ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True))
    ).groups
    assert {name for one in described.members for name in one.subscribed_topic_names} == {"orders"}
    classic = next(one for one in described.members if one.member_id == joined.member_id)
    assert [(one.topic_name, one.topic_id) for one in classic.assignment.topic_partitions] == [
        ("orders", tenants.ids[tenants.a])
    ]
    again = await join(tenants.a, joined.member_id)
    synced = await sync(tenants.a, again)
    assert synced.error_code == 0
    assert {one.topic for one in read_assignment(synced.assignment).assigned_partitions} <= {"orders"}
    assert b"kws-" not in synced.assignment
    # When the new member leaves, the group becomes classic again.
    assert (await beat(tenants.a, -1)).error_code == 0
    rejoined = await join(tenants.a, joined.member_id)
    assert rejoined.error_code == 0
    assert rejoined.members[0].metadata == SUBSCRIPTION
    await sync(tenants.a, rejoined, write_assignment({"orders": [0, 1]}, 0))
    assert await delete_offset(tenants.a, "orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("regex", [".*", "or.*", "orders"])
@in_loop
async def test_regular_expression_matches_plain_names_of_the_scope(node: QuietNode, regex: str) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    for client in (tenants.a, tenants.b):
        response = await beat(client, subscribed_topic_regex=regex)
        assert response.error_code == 0
        assert assigned(response) == {tenants.ids[client]: [0, 1]}


@pytest.mark.parametrize("regex", ["kws-.*", "kws-a+\\.orders", f"{B.prefix}orders"])
@in_loop
async def test_regular_expression_does_not_see_prefixes(node: QuietNode, regex: str) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    assert assigned(await beat(tenants.a, subscribed_topic_regex=regex)) == {}


@in_loop
async def test_administrator_cannot_subscribe_a_group_of_a_scope_to_other_topics(node: QuietNode) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    for name in ("orders", B.full_name("orders")):
        response = await beat(tenants.admin, group_id=A.full_name("g"), subscribed_topic_names=[name])
        assert response.error_code == ErrorCode.INVALID_REQUEST
    # A regular expression of a member of the group is one of plain names, whoever the member is.
    response = await beat(tenants.admin, group_id=A.full_name("g"), subscribed_topic_regex="or.*")
    assert assigned(response) == {tenants.ids[tenants.a]: [0, 1]}


@in_loop
async def test_pattern_of_transactional_ids_matches_plain_ids(node: QuietNode) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    for client in (tenants.a, tenants.b):
        await client.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000))

    async def found(client: Client, pattern: str) -> list[str]:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        return [one.transactional_id for one in (await client.ask(request)).transaction_states]

    assert await found(tenants.a, "t.") == await found(tenants.a, ".*") == ["tx"]
    assert await found(tenants.a, "kws-.*") == []
    assert sorted(await found(tenants.admin, ".*tx")) == [A.full_name("tx"), B.full_name("tx")]
    assert await found(tenants.admin, "tx") == []


@in_loop
async def test_empty_ids_are_invalid_in_a_scope_too(node: QuietNode) -> None:
    tenants = Tenants(node)
    await tenants.prepare()
    for client in (tenants.a, tenants.admin):
        init = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        assert (await client.ask(init)).error_code == ErrorCode.INVALID_REQUEST
        heartbeat = HeartbeatRequest(group_id="", generation_id=1, member_id="m")
        assert (await client.ask(heartbeat)).error_code == ErrorCode.INVALID_GROUP_ID
        response = await beat(client, group_id="", subscribed_topic_names=["orders"])
        assert response.error_code == ErrorCode.INVALID_REQUEST
