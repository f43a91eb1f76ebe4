"""DeleteGroups: each group on its own, gone for good when it is answered."""

from kwire.coordinator.group.commands import LeaveGroup, LeavingMember
from kwire.errors import ErrorCode
from kwire.handlers.delete_groups import handle
from kwire.wire.apis import DELETE_GROUPS
from kwire.wire.messages.delete_groups import DeleteGroupsRequest
from kwire.wire.messages.list_groups import ListGroupsRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.coordinator.context import call, context_of, joined
from tests.coordinator.world import World
from tests.support.node import QuietNode, in_every_version, in_loop


@in_every_version(DELETE_GROUPS)
def test_each_group_has_its_own_answer_and_a_name_that_comes_twice_has_one(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    joined(world, group_id="busy")
    member_id = joined(world, group_id="done")
    world.groups.submit(LeaveGroup(group_id="done", members=[LeavingMember(member_id)]), lambda answer: None)
    request = DeleteGroupsRequest(groups_names=["busy", "done", "none", "", "busy", "done"])
    results = call(handle, context_of(world, version), request).results
    assert [(one.group_id, one.error_code) for one in results] == [
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("done", ErrorCode.NONE),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    messages = [one.error_message for one in results]
    told = ["Group busy has members.", None, "Group none not found.", "Group  not found."]
    assert messages == (told if version >= 3 else [None] * 4)
    assert [group.group_id for group in world.groups.groups()] == ["busy"]


def test_coordinator_that_is_gone_says_so() -> None:
    world = World()
    world.groups.close()
    (result,) = call(handle, context_of(world, 3), DeleteGroupsRequest(groups_names=["g"])).results
    assert (result.error_code, result.error_message) == (ErrorCode.NOT_COORDINATOR, None)


def committing(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    return OffsetCommitRequest(
        group_id="g", member_id="", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


@in_loop
async def test_deleted_group_stays_deleted_after_a_restart(node: QuietNode) -> None:
    await node.create("t")
    await node.topics.offsets_topic()
    await node.ask(committing(7), 8)
    fetching = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    node.restart()
    assert (await node.ask(fetching, 7)).topics[0].partitions[0].committed_offset == 7
    (result,) = (await node.ask(DeleteGroupsRequest(groups_names=["g"]), 3)).results
    assert result.error_code == ErrorCode.NONE
    node.restart()
    assert (await node.ask(fetching, 7)).topics[0].partitions[0].committed_offset == -1
    assert (await node.ask(ListGroupsRequest(), 5)).groups == []
