"""Metadata of group members is bounded, and counted as long as it is referenced."""

import pytest

from kwire.coordinator.group.classic import join_group as classic_join
from kwire.coordinator.group.classic.metadata_budget import MetadataBudget
from kwire.errors import ErrorCode
from kwire.handlers import join_group, sync_group
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.context import call, context_of
from tests.coordinator.world import World


def join(member_id: str = "", *protocols: tuple[str, bytes]) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )


def test_bytes_count_as_long_as_they_are_held() -> None:
    budget = MetadataBudget(100)
    first = budget.reserve([("range", bytes(60))])
    assert first == (("range", bytes(60)),)
    assert budget.used_bytes == 65
    assert budget.reserve([("range", bytes(60))]) is None
    also = first
    del first
    assert budget.used_bytes == 65
    del also
    assert budget.used_bytes == 0
    assert budget.reserve([("range", bytes(60))]) is not None


def test_member_that_leaves_gives_its_bytes_back() -> None:
    world = World(initial_rebalance_delay_ms=0)
    budget = world.groups.metadata
    response = call(join_group.handle, context_of(world, 3), join("", ("range", bytes(1000))))
    assert response.error_code == 0
    assert budget.used_bytes == 1005
    # Joins again with less: only that is held.
    response = call(join_group.handle, context_of(world, 3), join(response.member_id, ("range", bytes(10))))
    assert (response.error_code, budget.used_bytes) == (0, 15)
    (group,) = world.groups.groups()
    group.members.clear()
    assert budget.used_bytes == 0


def test_coordinator_without_room_is_not_available() -> None:
    world = World(initial_rebalance_delay_ms=0)
    world.groups.metadata.limit_bytes = 100
    response = call(join_group.handle, context_of(world, 3), join("", ("range", bytes(200))))
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.groups.metadata.used_bytes == 0


def test_group_without_room_has_reached_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_join, "GROUP_METADATA_BYTES_MAX", 100)
    world = World(initial_rebalance_delay_ms=0)
    response = call(join_group.handle, context_of(world, 3), join("", ("range", bytes(200))))
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    response = call(join_group.handle, context_of(world, 3), join("", ("range", bytes(80))))
    assert response.error_code == 0
    # A member may say something else of the same size, because its own old words do not count.
    response = call(join_group.handle, context_of(world, 3), join(response.member_id, ("range", b"x" * 90)))
    assert response.error_code == 0


@pytest.mark.parametrize("version", range(10))
def test_member_with_too_many_protocols_is_refused(version: int) -> None:
    many = [(f"p{number}", b"") for number in range(join_group.PROTOCOLS_MAX + 1)]
    response = call(join_group.handle, context_of(World(), version), join("", *many))
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_assignments_that_no_record_could_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_group, "GROUP_METADATA_BYTES_MAX", 100)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="m",
        assignments=[SyncGroupRequestAssignment(member_id="m", assignment=bytes(101))],
    )
    response = call(sync_group.handle, context_of(World(), 5), request)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
