"""LeaveGroup of one member and of several."""

import pytest

from kwire.errors import ErrorCode
from kwire.handlers.leave_group import handle
from kwire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.coordinator.context import call, context_of, joined
from tests.coordinator.world import World


@pytest.mark.parametrize("version", range(3))
def test_single_member_leaves_and_its_error_is_the_answer(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    member_id = joined(world)
    context = context_of(world, version)
    assert call(handle, context, LeaveGroupRequest(group_id="g", member_id="nobody")).error_code == 25
    assert call(handle, context, LeaveGroupRequest(group_id="g", member_id=member_id)).error_code == 0
    assert [len(group.members) for group in world.groups.groups()] == [0]


@pytest.mark.parametrize("version", range(3, 6))
def test_each_of_several_members_has_its_own_error(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    members = [MemberIdentity(member_id=joined(world)), MemberIdentity(member_id="", group_instance_id="i")]
    response = call(handle, context_of(world, version), LeaveGroupRequest(group_id="g", members=members))
    assert response.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in response.members] == [
        (members[0].member_id, None, 0),
        ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", [0, 5])
def test_group_without_a_name_is_invalid(version: int) -> None:
    response = call(handle, context_of(World(), version), LeaveGroupRequest(group_id="", member_id="m"))
    assert response.error_code == ErrorCode.INVALID_GROUP_ID
