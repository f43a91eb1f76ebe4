"""Heartbeat in every version."""

import pytest

from kwire.coordinator.group.shard import GroupShard
from kwire.errors import ErrorCode
from kwire.handlers.heartbeat import handle
from kwire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.coordinator.context import call, context_of, joined
from tests.coordinator.world import World


@pytest.mark.parametrize("version", range(5))
def test_member_of_the_generation_is_welcome_and_others_are_not(version: int) -> None:
    world = World(initial_rebalance_delay_ms=0)
    member_id = joined(world)
    errors = [
        call(
            handle,
            context_of(world, version),
            HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=name),
        ).error_code
        for name, generation_id in ((member_id, 1), (member_id, 2), ("nobody", 1))
    ]
    assert errors == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]


def test_heartbeat_is_answered_without_waiting() -> None:
    world = World(initial_rebalance_delay_ms=0)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined(world))
    assert isinstance(handle(context_of(world, 4), request), HeartbeatResponse)


def test_static_member_that_was_replaced_is_told_apart_by_its_instance_id() -> None:
    world = World(initial_rebalance_delay_ms=0)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined(world), group_instance_id="i")
    assert call(handle, context_of(world, 4), request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_is_welcome_while_its_group_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(initial_rebalance_delay_ms=0)
    joined(world)
    world.restart()
    apply = GroupShard.apply

    def slow(shard: GroupShard, key: bytes, value: bytes | None) -> None:
        world.clock.advance(10)
        apply(shard, key, value)

    monkeypatch.setattr(GroupShard, "apply", slow)
    # Who it is cannot be known yet, so anybody is.
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="anybody")
    assert call(handle, context_of(world, 4), request).error_code == ErrorCode.NONE
    world.timers.advance(1_000)
    assert call(handle, context_of(world, 4), request).error_code == ErrorCode.UNKNOWN_MEMBER_ID
