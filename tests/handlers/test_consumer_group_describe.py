"""ConsumerGroupDescribe: consumer groups as an administrator sees them."""

from kwire.access.acl import OPERATIONS, ResourceType, operation_bits
from kwire.broker.admin.features import FeatureUpdate, UpgradeType
from kwire.errors import ErrorCode
from kwire.wire.apis import CONSUMER_GROUP_DESCRIBE
from kwire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.node import QuietNode, in_every_version, in_loop

GROUP_OPERATIONS = operation_bits(OPERATIONS[ResourceType.GROUP])
NO_OPERATIONS = -(1 << 31)


async def join(node: QuietNode, member_id: str, **fields: object) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
        **fields,  # type: ignore[arg-type]
    )
    assert (await node.ask(request, 1)).error_code == ErrorCode.NONE


async def describe(
    node: QuietNode, version: int, *group_ids: str, with_operations: bool = False
) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=with_operations)
    groups: list[DescribedGroup] = (await node.ask(request, version)).groups
    assert [group.group_id for group in groups] == list(group_ids)
    return groups


@in_every_version(CONSUMER_GROUP_DESCRIBE)
@in_loop
async def test_group_is_told_with_epochs_members_and_assignments(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    topic = await node.create("t", 2)
    await join(node, "a", instance_id="i", rack_id="r")
    await join(node, "b", server_assignor="range", subscribed_topic_regex="x.*")
    (group,) = await describe(node, version, "g")
    assert (group.error_code, group.error_message) == (ErrorCode.NONE, None)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    assert group.assignor_name == "range"
    assert group.authorized_operations == NO_OPERATIONS
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 1)
    assert (first.client_id, first.client_host) == ("test", "/192.0.2.7")
    assert first.subscribed_topic_names == ["t"]
    assert first.subscribed_topic_regex == ""
    assert second.subscribed_topic_regex == "x.*"
    assert [(one.topic_id, one.topic_name, one.partitions) for one in first.assignment.topic_partitions] == [
        (topic.topic_id, "t", [0, 1])
    ]
    assert [one.partitions for one in first.target_assignment.topic_partitions] == [[0]]
    assert second.assignment.topic_partitions == []
    assert [one.partitions for one in second.target_assignment.topic_partitions] == [[1]]
    assert first.member_type == (1 if version >= 1 else -1)


@in_loop
async def test_each_group_is_judged_on_its_own(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    await join(node, "a")
    request = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    await node.ask(request, 9)
    found, nothing, classic, again = await describe(node, 1, "g", "none", "classic", "g", with_operations=True)
    assert found == again
    assert found.group_state == "Stable"
    assert found.authorized_operations == GROUP_OPERATIONS
    assert nothing.error_code == classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert nothing.error_message == "Group none not found."
    assert classic.error_message == "Group classic is not a consumer group."
    assert (nothing.group_state, nothing.members, nothing.authorized_operations) == ("", [], NO_OPERATIONS)


@in_loop
async def test_topics_that_are_gone_are_left_out(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    topic = await node.create("t", 1)
    await join(node, "a")
    await node.topics.delete(topic)
    (group,) = await describe(node, 1, "g")
    assert group.members[0].assignment.topic_partitions == []
    assert group.members[0].target_assignment.topic_partitions == []


@in_loop
async def test_protocol_can_be_switched_off(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    assert node.services.features.level("group.version") == 1
    await join(node, "a")
    lower = {"group.version": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)}
    await node.services.features.update(lower, validate_only=False)
    (group,) = await describe(node, 1, "g")
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    assert (await node.ask(request, 1)).error_code == ErrorCode.UNSUPPORTED_VERSION


@in_loop
async def test_nothing_asked_is_nothing_told(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    assert await describe(node, 1) == []
