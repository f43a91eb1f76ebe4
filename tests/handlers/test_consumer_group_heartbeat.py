"""ConsumerGroupHeartbeat: from the wire to the group and back, on a node with topics, settings and restarts."""

import pytest

from kwire.config.description import ResourceType
from kwire.errors import ErrorCode
from kwire.wire.apis import CONSUMER_GROUP_HEARTBEAT, OFFSET_COMMIT
from kwire.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kwire.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.support.node import QuietNode, in_every_version, in_loop

VERSION = max(CONSUMER_GROUP_HEARTBEAT.versions)
LEAVING = -1


async def beat(
    node: QuietNode, member_id: str, epoch: int, version: int = VERSION, **fields: object
) -> ConsumerGroupHeartbeatResponse:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], **fields}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)  # type: ignore[arg-type]
    response: ConsumerGroupHeartbeatResponse = await node.ask(request, version)
    return response


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {one.topic_id: one.partitions for one in response.assignment.topic_partitions}


@in_every_version(CONSUMER_GROUP_HEARTBEAT)
@in_loop
async def test_member_joins_goes_on_and_leaves(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    topic = await node.create("t", 2)
    # In version 0 the answer brings the id, since version 1 the member has its own.
    joined = await beat(node, "" if version == 0 else "m", 0, version, subscribed_topic_names=["t"])
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id
    assert version == 0 or joined.member_id == "m"
    assert joined.member_epoch == 1
    assert joined.heartbeat_interval_ms == 5_000
    assert assigned(joined) == {topic.topic_id: [0, 1]}
    again = await beat(node, joined.member_id, 1, version)
    assert (again.error_code, again.member_epoch, assigned(again)) == (ErrorCode.NONE, 1, None)
    left = await beat(node, joined.member_id, LEAVING, version)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, LEAVING)
    gone = await beat(node, joined.member_id, 1, version)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert gone.error_message == f"Member {joined.member_id} is not a member of group g."


@in_loop
async def test_two_members_share_and_hand_over(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    topic_id = (await node.create("t", 6)).topic_id
    await beat(node, "a", 0, subscribed_topic_names=["t"])
    assert assigned(await beat(node, "b", 0, subscribed_topic_names=["t"])) == {}
    assert assigned(await beat(node, "a", 1)) == {topic_id: [0, 1, 2]}
    # The same topic may stand twice in what a member says it has.
    owned = [TopicPartitions(topic_id=topic_id, partitions=[0]), TopicPartitions(topic_id=topic_id, partitions=[1, 2])]
    moved = await beat(node, "a", 1, topic_partitions=owned)
    assert (moved.member_epoch, assigned(moved)) == (2, None)
    assert assigned(await beat(node, "b", 2)) == {topic_id: [3, 4, 5]}


@in_loop
async def test_group_survives_a_restart(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    topic_id = (await node.create("t", 3)).topic_id
    await beat(node, "m", 0, subscribed_topic_names=["t"], instance_id="i")
    node.restart()
    again = await beat(node, "m", 1, instance_id="i")
    assert (again.error_code, again.member_epoch, assigned(again)) == (ErrorCode.NONE, 1, None)
    full = await beat(node, "m", 0, subscribed_topic_names=["t"], instance_id="i")
    assert (full.member_epoch, assigned(full)) == (1, {topic_id: [0, 1, 2]})


@in_loop
async def test_topics_that_come_widen_and_go_are_noticed(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    joined = await beat(node, "m", 0, subscribed_topic_names=["t"])
    assert (joined.member_epoch, assigned(joined)) == (1, {})
    topic = await node.create("t", 1)
    assert assigned(await beat(node, "m", 1)) == {topic.topic_id: [0]}
    widening = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=1000, validate_only=False
    )
    assert (await node.ask(widening, 3)).results[0].error_code == ErrorCode.NONE
    assert assigned(await beat(node, "m", 2)) == {topic.topic_id: [0, 1]}
    await node.topics.delete(topic)
    assert assigned(await beat(node, "m", 3)) == {}
    assert (await beat(node, "m", 3, topic_partitions=[])).member_epoch == 4


@in_loop
async def test_new_configs_of_a_topic_are_no_reason_to_assign_anew(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    topic = await node.create("t", 1)
    await beat(node, "m", 0, subscribed_topic_names=["t"])
    before = node.topics.catalogue.revision
    await node.topics.configure(topic, {"retention.ms": "1000"})
    assert node.topics.catalogue.revision == before
    assert (await beat(node, "m", 1)).member_epoch == 1


@in_loop
async def test_expression_is_a_subscription(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    ids = {(await node.create(name, 1)).topic_id for name in ("app-1", "app-2")}
    await node.create("web", 1)
    joined = await beat(node, "m", 0, subscribed_topic_regex="app-.*")
    assert assigned(joined) == {topic_id: [0] for topic_id in sorted(ids)}
    refused = await beat(node, "n", 0, subscribed_topic_regex="(?=a)")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message is not None
    assert "(?=a)" in refused.error_message


@in_loop
async def test_settings_of_one_group_count_for_it(node: QuietNode) -> None:
    await node.topics.offsets_topic()
    overrides = {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "50000"}
    async with node.configs.change_lock:
        await node.configs.replace(ResourceType.GROUP, "g", overrides)
    joined = await beat(node, "m", 0, subscribed_topic_names=["t"])
    assert joined.heartbeat_interval_ms == 7_000
    (group,) = node.groups.consumer_groups()
    assert group.session_deadlines_ms["m"] == round(node.clock.monotonic() * 1000) + 50_000
    async with node.configs.change_lock:
        await node.configs.replace(ResourceType.GROUP, "g", {})
    assert (await beat(node, "m", 1)).heartbeat_interval_ms == 5_000


@pytest.mark.parametrize("setting", ["group.consumer.max.size=1", "group.consumer.assignors=range"])
def test_settings_of_all_groups_count(tmp_path: object, setting: str) -> None:
    @in_loop
    async def run() -> None:
        with QuietNode(tmp_path, setting) as node:  # type: ignore[arg-type]
            await node.topics.offsets_topic()
            first = await beat(node, "a", 0, subscribed_topic_names=["t"], server_assignor="range")
            assert first.error_code == ErrorCode.NONE
            second = await beat(node, "b", 0, subscribed_topic_names=["t"], server_assignor="uniform")
            assert second.error_code == (
                ErrorCode.GROUP_MAX_SIZE_REACHED if "size" in setting else ErrorCode.UNSUPPORTED_ASSIGNOR
            )
            assert second.error_message

    run()


@in_every_version(OFFSET_COMMIT)
@in_loop
async def test_member_commits_at_its_epoch_and_in_a_version_that_knows_epochs(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    topic = await node.create("t", 1)
    await beat(node, "m", 0, subscribed_topic_names=["t"])

    async def commit(epoch: int) -> int:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=epoch,
            member_id="m",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
                    ],
                )
            ],
        )
        error: int = (await node.ask(request, version)).topics[0].partitions[0].error_code
        return error

    if version < 9:
        assert await commit(1) == ErrorCode.UNSUPPORTED_VERSION
    else:
        assert await commit(1) == ErrorCode.NONE
        assert await commit(2) == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("version", [9, 10])
@in_loop
async def test_member_is_told_offsets_only_at_its_epoch(node: QuietNode, version: int) -> None:
    await node.topics.offsets_topic()
    topic = await node.create("t", 1)
    await beat(node, "m", 0, subscribed_topic_names=["t"])

    async def fetch(member_id: str | None, epoch: int) -> int:
        asked = OffsetFetchRequestTopics(name="t", topic_id=topic.topic_id, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=[asked])
        error: int = (await node.ask(OffsetFetchRequest(groups=[group]), version)).groups[0].error_code
        return error

    assert await fetch("m", 1) == ErrorCode.NONE
    assert await fetch("m", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert await fetch("n", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    # An administrator is no member.
    assert await fetch(None, -1) == ErrorCode.NONE
