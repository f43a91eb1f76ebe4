"""The coordinator runtime: order, loading, failures and closing."""

from itertools import pairwise

import pytest

from kwire.coordinator import runtime, sharding
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.commands import (
    CommitOffsets,
    FetchAnswer,
    FetchOffsets,
    GroupCommand,
    JoinAnswer,
    JoinGroup,
)
from kwire.coordinator.group.commands import OffsetToCommit as Offset
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.log_records import ProducerIdAndEpoch, TransactionEnd
from kwire.coordinator.sharding import java_hash
from kwire.errors import ErrorCode, KafkaError
from tests.coordinator.world import World


def commit(world: World, offset: int, group_id: str = "g") -> list[ErrorCode]:
    """Commit one offset; the list fills when the answer comes."""
    answers: list[ErrorCode] = []
    world.groups.submit(CommitOffsets(group_id=group_id, offsets=[Offset("t", 0, offset)]), answers.extend)
    return answers


def fetch(world: World, group_id: str = "g") -> list[FetchAnswer]:
    answers: list[FetchAnswer] = []
    world.groups.submit(FetchOffsets(group_id=group_id, topics=None), answers.append)
    return answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("abc", 96354), ("polygenelubricants", -(1 << 31)), ("grün", 3185949), ("a\U0001f600", 1866116)],
)
def test_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_group_with_the_smallest_hash_lives_in_shard_zero() -> None:
    assert World().groups.shard_of("polygenelubricants") == 0


def test_name_has_the_same_shard_however_many_others_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "CACHED_NAMES_MAX", 2)
    monkeypatch.setattr(sharding, "CACHED_NAME_LENGTH_MAX", 5)
    names = ["a", "b", "c", "a", "a name too long to be remembered", "b", "a name too long to be remembered"]
    groups = World().groups
    assert [groups.shard_of(name) for name in names] == [abs(java_hash(name)) % groups.shard_count for name in names]


def test_read_waits_for_what_was_appended_before_it_and_for_nothing_else() -> None:
    world = World()
    world.log.is_holding = True
    commit(world, 1)
    early = fetch(world)
    assert not early
    world.log.release()
    (answer,) = early
    assert answer.error is ErrorCode.NONE
    # Everything is committed: the log need not say so again.
    world.log.is_holding = True
    assert fetch(world) == [answer]
    commit(world, 2)
    assert not fetch(world)


def test_large_shard_answers_loading_until_replay_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for offset in range(25):
        commit(world, offset)
    world.restart()
    apply = GroupShard.apply

    def slow(shard: GroupShard, key: bytes, value: bytes | None) -> None:
        world.clock.advance(1)
        apply(shard, key, value)

    monkeypatch.setattr(GroupShard, "apply", slow)
    began_ms = world.now_ms
    assert commit(world, 99) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.now_ms - began_ms == 1000 * runtime.REPLAY_TURN_SECONDS
    assert fetch(world)[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.timers.advance(100)
    (answer,) = fetch(world)
    assert answer.error is ErrorCode.NONE
    assert [committed and committed.offset for _, committed in answer.topics[0].offsets] == [24]


def test_shards_that_load_at_the_same_time_share_half_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    names = world.groups.shard_keys
    for offset in range(25):
        for name in names:
            commit(world, offset, name)
    world.restart()
    apply = GroupShard.apply
    applied_at_ms: list[int] = []

    def slow(shard: GroupShard, key: bytes, value: bytes | None) -> None:
        applied_at_ms.append(world.now_ms)
        world.clock.advance(1)
        apply(shard, key, value)

    monkeypatch.setattr(GroupShard, "apply", slow)
    assert {fetch(world, name)[0].error for name in names} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    world.timers.advance(1_000)
    assert {fetch(world, name)[0].error for name in names} == {ErrorCode.NONE}
    pause_ms = round(1000 * runtime.REPLAY_PAUSE_SECONDS)
    pauses = [later - earlier for earlier, later in pairwise(applied_at_ms) if later - earlier > 1]
    # Each turn takes five records.
    assert len(pauses) >= len(applied_at_ms) // 6 - 1
    assert min(pauses) >= pause_ms


def test_shard_that_cannot_be_read_is_not_available_and_tried_again() -> None:
    world = World()
    commit(world, 1)
    shard = world.groups.shard_of("g")
    whole = world.log.shards[shard]
    world.log.shards[shard] = [(b"\x00\x01\x00", None), *whole]
    world.restart()
    assert commit(world, 2) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.shards[shard] = whole
    assert commit(world, 3) == [ErrorCode.NONE]


def test_record_of_an_unknown_type_is_left_alone() -> None:
    world = World()
    world.log.shards[world.groups.shard_of("g")] = [(b"\x00\x63whatever", b"\x00\x00")]
    assert commit(world, 1) == [ErrorCode.NONE]


def test_answers_leave_in_the_order_of_the_log() -> None:
    world = World()
    order: list[str] = []
    world.log.is_holding = True
    world.groups.submit(CommitOffsets(group_id="g", offsets=[Offset("t", 0, 1)]), lambda _: order.append("commit"))
    world.groups.submit(FetchOffsets(group_id="g", topics=None), lambda _: order.append("fetch"))
    assert order == []
    world.log.release()
    assert order == ["commit", "fetch"]


def test_offset_committed_for_one_group_is_not_seen_by_another() -> None:
    world = World()
    commit(world, 1, "g")
    assert fetch(world, "other")[0].topics == []


def test_decision_that_is_never_committed_is_not_told_to_anybody() -> None:
    world = World()
    world.log.is_holding = True
    answers = commit(world, 1)
    assert not answers
    world.log.release(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_only_what_may_work_later_is_told_so(
    monkeypatch: pytest.MonkeyPatch, refusal: ErrorCode, told: ErrorCode
) -> None:
    world = World()

    def refuse(*_: object) -> int:
        raise KafkaError(refusal)

    monkeypatch.setattr(world.log, "append", refuse)
    assert commit(world, 1) == [told]


def test_closing_answers_everyone_who_waits_and_stops_the_timers() -> None:
    world = World()
    answers: list[JoinAnswer] = []
    command = JoinGroup(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        requires_member_id=False,
        fresh_id="1",
    )
    world.groups.submit(command, answers.append)
    assert not answers
    world.groups.close()
    assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    assert world.timers.live_count() == 0
    assert commit(world, 1) == [ErrorCode.NOT_COORDINATOR]


def test_too_many_waiting_commands_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "WAITING_COMMANDS_MAX", 0)
    assert commit(World(), 1) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_member_id_begins_with_a_short_form_of_what_the_client_calls_itself() -> None:
    world = World()
    answers: list[JoinAnswer] = []
    command = JoinGroup(
        group_id="g",
        client_id="c" * 32767,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        requires_member_id=True,
        fresh_id="1",
    )
    world.groups.submit(command, answers.append)
    assert [answer.member_id for answer in answers] == ["c" * 255 + "-1"]


def test_command_whose_own_step_failed_does_not_come_in_the_way_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may know it and answer it later, together with others."""
    world = World()
    failed = FetchOffsets(group_id="g", topics=None)

    def break_down(*_: object) -> Result:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(GroupShard, "step", break_down)
        with pytest.raises(RuntimeError):
            world.groups.submit(failed, lambda _: None)
    step = GroupShard.step

    def answer_both(shard: GroupShard, command: GroupCommand, moment: Moment) -> Result:
        result = step(shard, command, moment)
        result.refuse(failed, ErrorCode.NOT_COORDINATOR)
        return result

    monkeypatch.setattr(GroupShard, "step", answer_both)
    assert commit(world, 1) == [ErrorCode.NONE]


# Ends of transactions


def commit_pending(world: World, offset: int, producer_id: int = 7) -> list[ErrorCode]:
    answers: list[ErrorCode] = []
    command = CommitOffsets(
        group_id="g", transaction=ProducerIdAndEpoch(producer_id, 0), offsets=[Offset("t", 0, offset)]
    )
    world.groups.submit(command, answers.extend)
    return answers


def end(world: World, is_commit: bool = True, *, producer_id: int = 7, shard: int | None = None) -> list[object]:
    """`None` or an error code, when it is told."""
    told: list[object] = []
    index = world.groups.shard_of("g") if shard is None else shard
    world.groups.end_transaction(
        index, producer_id, 0, 0, is_commit, lambda error: told.append(None if error is None else error.code)
    )
    return told


def test_end_that_comes_while_a_shard_is_loaded_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for offset in range(25):
        commit_pending(world, offset)
    commit_pending(world, 99, producer_id=8)
    world.restart()
    apply = GroupShard.apply_pending

    def slow(shard: GroupShard, producer_id: int, key: bytes, value: bytes | None) -> None:
        world.clock.advance(1)
        apply(shard, producer_id, key, value)

    monkeypatch.setattr(GroupShard, "apply_pending", slow)
    # The first to ask for the shard, and one behind it.
    first, second = end(world), end(world, False, producer_id=8)
    assert (first, second) == ([], [])
    world.timers.advance(100)
    assert (first, second) == ([None], [None])
    (answer,) = fetch(world)
    assert [committed and committed.offset for _, committed in answer.topics[0].offsets] == [24]
    assert not any(shard.offsets.pending for shard in world.groups.shards())
    assert world.log.shards[world.groups.shard_of("g")][-2:] == [TransactionEnd(7, True), TransactionEnd(8, False)]


def test_end_in_a_shard_that_cannot_be_read_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    commit_pending(world, 1)
    shard = world.groups.shard_of("g")
    whole = world.log.shards[shard]
    world.log.shards[shard] = [(b"\x00\x01\x00", None), *whole]
    world.restart()
    assert end(world) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    # Also if that shows only after others have been waiting for it.
    monkeypatch.setattr(runtime, "REPLAY_TURN_SECONDS", 0.0)
    world.log.shards[shard] = [*whole, (b"\x00\x01\x00", None)]
    told = end(world)
    assert not told
    world.timers.advance(100)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.shards[shard] = whole
    told = end(world)
    world.timers.advance(100)
    assert told == [None]


def test_end_that_waits_is_told_when_the_coordinator_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "REPLAY_TURN_SECONDS", 0.0)
    world = World()
    commit_pending(world, 1)
    world.timers.advance(100)
    world.restart()
    told = end(world)
    assert not told
    world.groups.close()
    assert told == [ErrorCode.NOT_COORDINATOR]
    assert end(world) == [ErrorCode.NOT_COORDINATOR]


def test_too_many_ends_that_wait_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "REPLAY_TURN_SECONDS", 0.0)
    monkeypatch.setattr(runtime, "WAITING_COMMANDS_MAX", 1)
    world = World()
    commit(world, 1)
    world.timers.advance(100)
    commit(world, 1)
    world.restart()
    first = end(world)
    assert end(world) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.timers.advance(100)
    assert first == [None]


def test_end_is_told_when_it_is_committed_or_will_not_be() -> None:
    world = World()
    commit_pending(world, 1)
    world.log.is_holding = True
    told = end(world)
    assert not told
    world.log.release()
    assert told == [None]
    world.log.is_holding = True
    told = end(world)
    world.log.release(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_end_where_there_is_no_such_partition_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    assert end(world, shard=world.groups.shard_count) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert end(world, shard=-1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def missing(*_: object) -> int:
        raise LookupError

    monkeypatch.setattr(world.log, "append_marker", missing)
    assert end(world) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_read_waits_for_an_end_that_is_not_committed_yet() -> None:
    world = World()
    commit_pending(world, 5)
    world.log.is_holding = True
    end(world)
    early = fetch(world)
    assert not early
    world.log.release()
    (answer,) = early
    assert [committed and committed.offset for _, committed in answer.topics[0].offsets] == [5]
