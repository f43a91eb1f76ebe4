"""Bounds of a shard: work per turn and memory, for any number of groups and members."""

import pytest

from kwire.coordinator.group import shard as shards
from kwire.coordinator.group.commands import CommitOffsets, JoinAnswer, JoinGroup, LeaveGroup, LeavingMember
from kwire.coordinator.group.commands import OffsetToCommit as Offset
from kwire.coordinator.group.consumer import group as consumer_group
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat
from kwire.errors import ErrorCode
from tests.coordinator.world import World

SESSION_MS = 10_000


def join(world: World, group_id: str) -> JoinAnswer:
    """Get an id and do not come back with it."""
    answers: list[JoinAnswer] = []
    command = JoinGroup(
        group_id=group_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=(("range", b""),),
        fresh_id=world.groups.fresh_id(),
    )
    world.groups.submit(command, answers.append)
    (answer,) = answers
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    return answer


def test_deadlines_of_many_groups_that_pass_at_once_are_looked_at_in_turns() -> None:
    world = World()
    for number in range(3 * shards.DUE_GROUPS_MAX * world.groups.shard_count):
        join(world, f"g{number}")
    (shard, *_) = world.groups.shards()
    due = shard.due(world.now_ms + SESSION_MS)
    assert len(due) == shards.DUE_GROUPS_MAX
    # What is left is due at once.
    assert shard.wake_ms() == world.now_ms + SESSION_MS


def test_deadlines_of_many_groups_that_pass_at_once_are_all_kept() -> None:
    world = World()
    for number in range(3 * shards.DUE_GROUPS_MAX * world.groups.shard_count):
        join(world, f"g{number}")
    world.timers.advance(SESSION_MS)
    assert not list(world.groups.groups())


def test_groups_that_come_and_go_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SPARE_WAKES_MAX", 10)
    world = World()
    join(world, "stays")
    for _ in range(100):
        member = LeavingMember(join(world, "g").member_id)
        world.groups.submit(LeaveGroup(group_id="g", members=[member]), lambda _: None)
        world.clock.advance(1)
    assert all(len(shard._wakes) <= 10 + 2 * len(shard.groups) + 2 for shard in world.groups.shards())
    world.timers.advance(SESSION_MS)
    assert not list(world.groups.groups())


def test_many_members_that_fall_silent_at_once_go_in_batches_that_can_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_group, "EXPIRED_MEMBERS_MAX", 3)
    world = World().with_topics()
    world.topics.put("t", 1)
    for number in range(10):
        command = ConsumerHeartbeat(
            group_id="g",
            member_id=f"m{number}",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=frozenset({"t"}),
            owned={},
        )
        world.groups.submit(command, lambda answer: None)
    world.log.appended.clear()
    batches: list[int] = []
    append = world.log.append

    def counted(shard: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> int:
        batches.append(len(records))
        return append(shard, records, now_ms)

    monkeypatch.setattr(world.log, "append", counted)
    world.timers.advance(world.consumer_settings.session_timeout_ms)
    (group,) = world.groups.consumer_groups()
    assert not group.members
    # Three tombstones for each member, and the group's new epoch.
    assert batches == [10, 10, 10, 4]


def test_retention_time_beyond_all_time_is_kept_as_long_as_can_be_said() -> None:
    world = World()
    errors: list[ErrorCode] = []
    command = CommitOffsets(group_id="g", retention_time_ms=(1 << 63) - 1, offsets=[Offset("t", 0, 1)])
    world.groups.submit(command, errors.extend)
    assert errors == [ErrorCode.NONE]
    (shard,) = world.groups.shards()
    ((_, _, committed),) = shard.offsets.of_group("g")
    assert committed.expire_timestamp_ms > 1 << 61
