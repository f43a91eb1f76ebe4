"""Classic members of a consumer group, from the wire to the group and back, in every version of their requests."""

import pytest

from kwire.coordinator.group.classic.embedded_protocol import read_assignment
from kwire.errors import ErrorCode
from kwire.wire.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kwire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.wire.messages.list_groups import ListGroupsRequest
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.node import QuietNode, in_every_version, in_loop

SUBSCRIPTION = b"\x00\x00" + encode_message(ConsumerProtocolSubscription(topics=["t"]), 0)
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = (max(api.versions) for api in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT))


async def beat(node: QuietNode, epoch: int) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="new",
        member_epoch=epoch,
        rebalance_timeout_ms=30_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    response: ConsumerGroupHeartbeatResponse = await node.ask(request, 1)
    return response


async def join(node: QuietNode, member_id: str = "", version: int = JOIN_VERSION) -> JoinGroupResponse:
    """With the round for an id, where the version has it."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    response: JoinGroupResponse = await node.ask(request, version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return await join(node, response.member_id, version)
    return response


async def sync(node: QuietNode, joined: JoinGroupResponse, version: int = SYNC_VERSION) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    response: SyncGroupResponse = await node.ask(request, version)
    return response


async def heartbeat(node: QuietNode, joined: JoinGroupResponse, version: int = HEARTBEAT_VERSION) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    error: int = (await node.ask(request, version)).error_code
    return error


def partitions_of(answer: SyncGroupResponse) -> list[int]:
    assert answer.error_code == ErrorCode.NONE
    return [index for one in read_assignment(answer.assignment).assigned_partitions for index in one.partitions]


async def give_up_all(node: QuietNode) -> None:
    """The member of the consumer protocol says that it has nothing; it is given its own share again."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="new", member_epoch=1, topic_partitions=[])
    assert (await node.ask(request, 1)).error_code == ErrorCode.NONE


async def kind(node: QuietNode) -> str:
    (group,) = (await node.ask(ListGroupsRequest(), 5)).groups
    found: str = group.group_type
    return found


@in_every_version(JOIN_GROUP)
@in_loop
async def test_classic_member_joins_a_consumer_group_and_stays_when_it_becomes_classic(
    node: QuietNode, version: int
) -> None:
    await node.topics.offsets_topic()
    await node.create("t", 2)
    await beat(node, 0)
    joined = await join(node, version=version)
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (0, 2, "", [])
    assert joined.protocol_name == "range"
    assert await kind(node) == "consumer"
    node.restart()
    assert await beat(node, 1)
    assert await heartbeat(node, joined) == ErrorCode.NONE
    assert (await beat(node, -1)).error_code == ErrorCode.NONE
    assert await kind(node) == "classic"
    node.restart()
    # It has to join once, to have a leader; that is itself.
    assert (await sync(node, joined)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = await join(node, joined.member_id, version)
    assert (again.error_code, again.generation_id, again.leader) == (0, 3, joined.member_id)


@in_every_version(SYNC_GROUP)
@in_loop
async def test_assignment_comes_from_the_group(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    await node.create("t", 2)
    await beat(node, 0)
    joined = await join(node)
    assert partitions_of(await sync(node, joined, version)) == []
    await give_up_all(node)
    again = await join(node, joined.member_id)
    answer = await sync(node, again, version)
    assert partitions_of(answer) == [1]
    assert answer.protocol_name == ("range" if version >= 5 else None)


@in_every_version(HEARTBEAT)
@in_loop
async def test_heartbeat_says_when_to_join(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    await node.create("t", 2)
    await beat(node, 0)
    joined = await join(node)
    await sync(node, joined)
    assert await heartbeat(node, joined, version) == ErrorCode.NONE
    await give_up_all(node)
    assert await heartbeat(node, joined, version) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await join(node, joined.member_id)
    assert partitions_of(await sync(node, again)) == [1]
    assert await heartbeat(node, again, version) == ErrorCode.NONE


@in_every_version(LEAVE_GROUP)
@in_loop
async def test_members_of_both_protocols_can_be_sent_away(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    await node.create("t", 2)
    await beat(node, 0)
    joined = await join(node)
    for member_id in (joined.member_id, "new"):
        members = [MemberIdentity(member_id=member_id, group_instance_id=None)]
        answer = await node.ask(LeaveGroupRequest(group_id="g", member_id=member_id, members=members), version)
        assert answer.error_code == ErrorCode.NONE
        assert [one.error_code for one in answer.members] == ([ErrorCode.NONE] if version >= 3 else [])
    assert await heartbeat(node, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(node, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("policy", ["disabled", "Upgrade", "DOWNGRADE", "bidirectional"])
def test_policy_says_which_groups_may_move(tmp_path: object, policy: str) -> None:
    @in_loop
    async def run() -> None:
        with QuietNode(tmp_path, f"group.consumer.migration.policy={policy}") as node:  # type: ignore[arg-type]
            await node.topics.offsets_topic()
            await node.create("t", 2)
            await beat(node, 0)
            joined = await join(node)
            if policy == "disabled":
                assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                return
            assert joined.error_code == ErrorCode.NONE
            await beat(node, -1)
            has_downgrades = policy in ("DOWNGRADE", "bidirectional")
            assert await kind(node) == ("classic" if has_downgrades else "consumer")

    run()
