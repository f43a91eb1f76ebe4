"""DescribeGroups: each group on its own, and what each version says of one that does not exist."""

from kwire.access.acl import OPERATIONS, ResourceType, operation_bits
from kwire.coordinator.group.commands import CommitOffsets, JoinGroup, OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.describe_groups import handle
from kwire.wire.apis import DESCRIBE_GROUPS
from kwire.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tests.coordinator.context import call, context_of, joined
from tests.coordinator.world import World
from tests.support.node import in_every_version

GROUP_OPERATIONS = operation_bits(OPERATIONS[ResourceType.GROUP])
UNASKED = -2147483648


def described(world: World, version: int, *names: str, with_operations: bool = False) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=with_operations)
    return call(handle, context_of(world, version), request).groups


@in_every_version(DESCRIBE_GROUPS)
def test_stable_group_is_told_with_members_subscriptions_and_assignments(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    member_id = joined(world)
    (group,) = described(world, version, "g")
    assert (group.error_code, group.error_message, group.group_id) == (0, None, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.group_instance_id, member.client_id) == (member_id, None, "m")
    assert (member.member_metadata, member.member_assignment) == (b"topics", b"mine")
    assert group.authorized_operations == UNASKED


@in_every_version(DESCRIBE_GROUPS)
def test_group_that_does_not_exist_is_dead_and_an_error_since_version_6(version: int) -> None:
    """Also the empty name, which only old clients ask for; and a name that is asked for twice is answered twice."""
    for group in described(World(), version, "none", "", "none"):
        assert (group.group_state, group.protocol_type, group.members) == ("Dead", "", [])
        if version >= 6:
            assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert group.error_message == f"Group {group.group_id} not found."
        else:
            assert group.error_code == 0


def test_group_of_offsets_only_is_empty() -> None:
    world = World()
    world.groups.submit(CommitOffsets(group_id="alone", offsets=[OffsetToCommit("t", 0, 1)]), lambda errors: None)
    (group,) = described(world, 6, "alone")
    assert (group.error_code, group.group_state, group.protocol_type, group.members) == (0, "Empty", "", [])


def test_members_are_told_without_their_bytes_while_the_group_rebalances() -> None:
    world = World(initial_rebalance_delay_ms=0)
    joined(world)
    # A second member asks to join; the first has not heard of it.
    world.groups.submit(
        JoinGroup(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"topics"),),
            requires_member_id=False,
            fresh_id="2",
        ),
        lambda answer: None,
    )
    (group,) = described(world, 6, "g")
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(one.member_metadata, one.member_assignment) for one in group.members] == [(b"", b"")] * 2


@in_every_version(DESCRIBE_GROUPS)
def test_what_the_caller_may_do_is_told_if_asked_for_and_the_group_exists(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    joined(world)
    found, missing = described(world, version, "g", "none", with_operations=version >= 3)
    assert found.authorized_operations == (GROUP_OPERATIONS if version >= 3 else UNASKED)
    assert missing.authorized_operations == (GROUP_OPERATIONS if 3 <= version < 6 else UNASKED)


def test_operations_are_read_delete_describe_and_those_of_configs() -> None:
    assert GROUP_OPERATIONS == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def test_coordinator_that_is_gone_says_so() -> None:
    world = World()
    world.groups.close()
    (group,) = described(world, 6, "g")
    assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")
