"""OffsetDelete: partition by partition, and only what nobody reads."""

from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.offset_delete import handle
from kwire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.coordinator.context import FakeTopics, call, context_of, joined
from tests.coordinator.world import World, all_offsets
from tests.handlers.test_delete_groups import committing
from tests.support.node import QuietNode, in_loop


def deleting(group_id: str, **topics: list[int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ],
    )


def deleted(world: World, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    return call(handle, context_of(world, 0, FakeTopics("t", "u")), request)


def errors(response: OffsetDeleteResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.name: [(one.partition_index, one.error_code) for one in topic.partitions] for topic in response.topics
    }


def world_with(*places: tuple[str, int]) -> World:
    world = World(initial_rebalance_delay_ms=0)
    offsets = [OffsetToCommit(topic, partition, 1) for topic, partition in places]
    world.groups.submit(CommitOffsets(group_id="g", offsets=offsets), lambda errors: None)
    return world


def left(world: World) -> list[tuple[str, int]]:
    return [(topic, partition) for shard in world.groups.shards() for _, topic, partition, _ in all_offsets(shard)]


def test_each_partition_is_judged_on_its_own() -> None:
    world = world_with(("t", 0), ("t", 1), ("u", 2))
    response = deleted(world, deleting("g", gone=[0], t=[0, 2, 3, -1, 0], u=[2]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.error_code == 0
    assert errors(response) == {
        "gone": [(0, unknown)],
        "t": [(0, 0), (2, 0), (3, unknown), (-1, unknown), (0, 0)],
        "u": [(2, 0)],
    }
    assert left(world) == [("t", 1)]


def test_error_of_the_group_leaves_the_topics_out() -> None:
    world = world_with(("t", 0))
    for group_id, code in (("none", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)):
        response = deleted(world, deleting(group_id, t=[0], gone=[0]))
        assert (response.error_code, response.topics) == (code, [])
    # Also if none of the topics exists: that there is no such group matters more.
    assert deleted(world, deleting("none", gone=[0])).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert left(world) == [("t", 0)]


def test_topic_that_a_member_may_read_is_refused() -> None:
    world = world_with(("t", 0))
    joined(world)
    # What this member says of itself is no subscription: it may be reading anything.
    assert errors(deleted(world, deleting("g", t=[0]))) == {"t": [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]}
    assert left(world) == [("t", 0)]


def test_coordinator_that_is_gone_says_so() -> None:
    world = world_with(("t", 0))
    world.groups.close()
    response = deleted(world, deleting("g", t=[0]))
    assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])


@in_loop
async def test_deleted_offset_stays_deleted_after_a_restart(node: QuietNode) -> None:
    await node.create("t")
    await node.topics.offsets_topic()
    await node.ask(committing(7), 8)
    response = await node.ask(deleting("g", t=[0]), 0)
    assert errors(response) == {"t": [(0, 0)]}
    node.restart()
    fetching = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    assert (await node.ask(fetching, 7)).topics[0].partitions[0].committed_offset == -1
