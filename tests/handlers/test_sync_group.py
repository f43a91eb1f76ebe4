"""SyncGroup in every version."""

import pytest

from kwire.errors import ErrorCode
from kwire.handlers.sync_group import handle
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.context import call, context_of, joined
from tests.coordinator.world import World


@pytest.mark.parametrize("version", range(6))
def test_stable_group_gives_the_assignment_again(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    member_id = joined(world)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
    response = call(handle, context_of(world, version), request)
    assert (response.error_code, response.assignment) == (0, b"mine")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (response.protocol_type, response.protocol_name) == expected


@pytest.mark.parametrize("version", range(6))
def test_wrong_generation_is_refused(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    assignments = [SyncGroupRequestAssignment(member_id="x", assignment=b"y")]
    request = SyncGroupRequest(group_id="g", generation_id=2, member_id=joined(world), assignments=assignments)
    response = call(handle, context_of(world, version), request)
    assert (response.error_code, response.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")


def test_wrong_protocol_is_refused() -> None:
    world = World(initial_rebalance_delay_ms=0)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=joined(world),
        protocol_type="consumer",
        protocol_name="sticky",
        assignments=[],
    )
    assert call(handle, context_of(world, 5), request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
