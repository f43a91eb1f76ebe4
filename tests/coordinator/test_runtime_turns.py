"""Commits of one event-loop turn: which of them share an append, and what happens when it fails."""

import pytest

from kwire.coordinator import runtime
from kwire.coordinator.group.commands import CommitOffsets, FetchAnswer, FetchOffsets
from kwire.coordinator.group.commands import OffsetToCommit as Offset
from kwire.coordinator.group.records import OffsetCommitRecord, decode_record
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.log_records import PendingRecord, ProducerIdAndEpoch, TransactionEnd
from kwire.errors import ErrorCode, KafkaError
from tests.coordinator.world import World


def commit(
    world: World, offset: int, *, count: int = 1, generation_id: int = -1, transaction: ProducerIdAndEpoch | None = None
) -> list[ErrorCode]:
    """Commit the offset for some partitions; the list fills when the answer comes."""
    answers: list[ErrorCode] = []
    command = CommitOffsets(
        group_id="g",
        generation_id=generation_id,
        transaction=transaction,
        offsets=[Offset("t", partition, offset) for partition in range(count)],
    )
    world.groups.submit(command, answers.extend)
    return answers


def fetched(world: World) -> list[int]:
    """The offsets that a fetch is answered with, by partition."""
    answers: list[FetchAnswer] = []
    world.groups.submit(FetchOffsets(group_id="g", topics=None), answers.append)
    (answer,) = answers
    return [committed.offset for topic in answer.topics for _, committed in topic.offsets if committed]


def logged(world: World) -> list[int]:
    """The offsets of the commits in the log, in its order."""
    found = []
    for one in world.log.appended:
        if not isinstance(one, TransactionEnd):
            key, value = (one.key, one.value) if isinstance(one, PendingRecord) else one
            record = decode_record(key, value)
            assert isinstance(record, OffsetCommitRecord)
            assert record.value is not None
            found.append(record.value.offset)
    return found


@pytest.fixture
def world() -> World:
    world = World().with_turns()
    assert fetched(world) == []  # the shard is loaded
    return world


def test_first_commit_of_a_turn_is_appended_at_once_and_the_others_together(world: World) -> None:
    first, *others = [commit(world, offset) for offset in range(5)]
    assert (first, others) == ([ErrorCode.NONE], [[]] * 4)
    assert world.groups.waiting_count() == 4
    world.end_turn()
    assert others == [[ErrorCode.NONE]] * 4
    assert world.log.append_sizes == [1, 4]
    assert logged(world) == [0, 1, 2, 3, 4]
    assert world.durable() == world.replayed()
    # The next turn begins anew.
    assert commit(world, 5) == [ErrorCode.NONE]


def test_answers_wait_until_the_shared_append_is_committed(world: World) -> None:
    world.log.is_holding = True
    answers = [commit(world, offset) for offset in range(3)]
    world.end_turn()
    assert answers == [[]] * 3
    world.log.release()
    assert answers == [[ErrorCode.NONE]] * 3


def test_shared_append_that_is_never_committed_is_told_to_all(world: World) -> None:
    world.log.is_holding = True
    answers = [commit(world, offset) for offset in range(3)]
    world.end_turn()
    world.log.release(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert answers == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]] * 3


def test_another_command_of_the_turn_is_decided_after_the_commits_before_it(world: World) -> None:
    answers = [commit(world, offset) for offset in range(3)]
    assert fetched(world) == [2]
    assert answers == [[ErrorCode.NONE]] * 3
    later = commit(world, 3)
    assert not later
    assert fetched(world) == [3]
    world.end_turn()
    assert logged(world) == [0, 1, 2, 3]


def test_commit_that_is_refused_is_answered_at_once(world: World) -> None:
    answers = [commit(world, offset) for offset in range(2)]
    assert commit(world, 9, generation_id=3) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert answers == [[ErrorCode.NONE], []]


def test_commits_that_cannot_be_appended_are_refused_and_not_applied(world: World) -> None:
    first = commit(world, 0)
    world.log.is_failing = True
    others = [commit(world, offset) for offset in (1, 2)]
    world.end_turn()
    assert (first, others) == ([ErrorCode.NONE], [[ErrorCode.COORDINATOR_NOT_AVAILABLE]] * 2)
    assert world.groups.waiting_count() == 0
    world.log.is_failing = False
    assert fetched(world) == [0]
    assert world.durable() == world.replayed()


def test_commits_that_are_too_large_only_together_are_appended_one_by_one(world: World) -> None:
    world.log.largest = 3
    answers = [commit(world, 0), commit(world, 1, count=2), commit(world, 2, count=4), commit(world, 3, count=3)]
    world.end_turn()
    assert answers == [
        [ErrorCode.NONE],
        [ErrorCode.NONE] * 2,
        [ErrorCode.UNKNOWN_SERVER_ERROR] * 4,
        [ErrorCode.NONE] * 3,
    ]
    assert world.log.append_sizes == [1, 2, 3]
    assert fetched(world) == [3, 3, 3]


def test_marker_comes_after_the_commits_before_it(world: World) -> None:
    transaction = ProducerIdAndEpoch(7, 0)
    assert commit(world, 0, transaction=transaction) == [ErrorCode.NONE]
    plain = [commit(world, offset) for offset in (1, 2)]
    told: list[object] = []
    world.groups.end_transaction(world.groups.shard_of("g"), *transaction, 0, True, told.append)
    assert (plain, told) == ([[ErrorCode.NONE]] * 2, [None])
    assert logged(world) == [0, 1, 2]
    assert isinstance(world.log.appended[-1], TransactionEnd)
    # The plain commit is the later one.
    assert fetched(world) == [2]


def test_commit_in_a_transaction_comes_after_the_commits_before_it(world: World) -> None:
    for offset in (0, 1, 2):
        commit(world, offset)
    assert commit(world, 3, transaction=ProducerIdAndEpoch(7, 0)) == [ErrorCode.NONE]
    assert logged(world) == [0, 1, 2, 3]


def test_shared_append_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "DEFERRED_RECORDS_MAX", 4)
    answers = [commit(world, offset, count=2) for offset in range(4)]
    assert answers == [[ErrorCode.NONE] * 2] * 3 + [[]]
    world.end_turn()
    assert answers[3] == [ErrorCode.NONE] * 2
    assert world.log.append_sizes == [2, 4, 2]


def test_closing_refuses_what_is_not_appended(world: World) -> None:
    answers = [commit(world, offset) for offset in range(3)]
    world.groups.close()
    world.end_turn()
    assert answers == [[ErrorCode.NONE], [ErrorCode.NOT_COORDINATOR], [ErrorCode.NOT_COORDINATOR]]
    assert logged(world) == [0]


def test_failure_in_a_shared_append_is_told_to_its_commits_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [commit(world, offset) for offset in range(3)]

    def break_down(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(GroupShard, "apply_decoded", break_down)
        assert fetched(world) == [0]
    assert answers == [[ErrorCode.NONE], [ErrorCode.UNKNOWN_SERVER_ERROR], [ErrorCode.UNKNOWN_SERVER_ERROR]]
    assert world.groups.waiting_count() == 0


@pytest.mark.parametrize("retention_ms", [-1, 0, 60_000, 1 << 63 - 1])
@pytest.mark.parametrize("transaction", [None, ProducerIdAndEpoch(7, 0)])
def test_state_is_what_a_replay_of_the_records_gives(
    world: World, retention_ms: int, transaction: ProducerIdAndEpoch | None
) -> None:
    """A decision is applied without decoding its records; those with an expiry store less than was asked for."""
    command = CommitOffsets(
        group_id="g",
        retention_time_ms=retention_ms,
        transaction=transaction,
        offsets=[Offset("t", 0, 1, 5, "metadata", bytes(range(16))), Offset("t", 1, 2)],
    )
    answers: list[ErrorCode] = []
    world.groups.submit(command, answers.extend)
    assert answers == [ErrorCode.NONE] * 2
    assert len(world.durable()) == 2
    assert world.durable() == world.replayed()
