"""Reconciliation of one member with its target, step by step and in all states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.coordinator.group.consumer.members import CurrentAssignment, MemberState, Target
from kwire.coordinator.group.consumer.reconciliation import Owned, ReconciliationInput, reconciled
from kwire.errors import ErrorCode, KafkaError

T, U = b"t" * 16, b"u" * 16


def inputs(
    target: Target,
    *,
    epoch: int = 2,
    owned: Owned = None,
    taken: frozenset[tuple[bytes, int]] = frozenset(),
    subscribed: frozenset[bytes] = frozenset({T, U}),
    has_changed: bool = False,
) -> ReconciliationInput:
    return ReconciliationInput(
        target_epoch=epoch,
        target=target,
        subscribed_ids=subscribed,
        has_subscription_changed=has_changed,
        owned=owned,
        is_free=lambda topic_id, index: (topic_id, index) not in taken,
    )


def has(*indexes: int, epoch: int = 1, state: MemberState = MemberState.STABLE) -> CurrentAssignment:
    return CurrentAssignment(
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=state,
        assigned={T: dict.fromkeys(indexes, epoch)} if indexes else {},
    )


def test_member_at_its_target_stays_as_it_is() -> None:
    current = has(0, 1, epoch=2)
    assert reconciled(current, inputs({T: frozenset({0, 1})})) is current


def test_what_it_is_given_bears_the_epoch_at_which_it_was() -> None:
    after = reconciled(has(0), inputs({T: frozenset({0, 1})}))
    assert after.assigned == {T: {0: 1, 1: 2}}
    assert (after.state, after.member_epoch, after.previous_member_epoch) == (MemberState.STABLE, 2, 1)


def test_nothing_is_given_before_everything_is_given_up() -> None:
    after = reconciled(has(0, 1), inputs({T: frozenset({1, 2})}))
    assert (after.assigned, after.revoking) == ({T: {1: 1}}, {T: {0: 1}})
    assert (after.state, after.member_epoch) == (MemberState.UNREVOKED_PARTITIONS, 1)
    # It says nothing of what it has, or has it still.
    for owned in (None, {T: [0]}, {T: [1, 0]}):
        assert reconciled(after, inputs({T: frozenset({1, 2})}, owned=owned)) is after
    done = reconciled(after, inputs({T: frozenset({1, 2})}, owned={T: [1]}))
    assert (done.assigned, done.revoking) == ({T: {1: 1, 2: 2}}, {})
    assert (done.state, done.member_epoch, done.previous_member_epoch) == (MemberState.STABLE, 2, 1)


def test_what_it_has_given_up_already_needs_no_further_heartbeat() -> None:
    after = reconciled(has(0, 1), inputs({T: frozenset({1})}, owned={T: [1]}))
    assert (after.state, after.member_epoch, after.assigned) == (MemberState.STABLE, 2, {T: {1: 1}})


def test_what_others_have_is_waited_for() -> None:
    waiting = reconciled(has(0), inputs({T: frozenset({0, 1, 2})}, taken=frozenset({(T, 2)})))
    assert (waiting.state, waiting.assigned) == (MemberState.UNRELEASED_PARTITIONS, {T: {0: 1, 1: 2}})
    still = reconciled(waiting, inputs({T: frozenset({0, 1, 2})}, taken=frozenset({(T, 2)})))
    assert still is waiting
    done = reconciled(waiting, inputs({T: frozenset({0, 1, 2})}))
    assert (done.state, done.assigned) == (MemberState.STABLE, {T: {0: 1, 1: 2, 2: 2}})


def test_target_of_a_topic_that_it_does_not_read_any_more_counts_for_nothing() -> None:
    target = {T: frozenset({0}), U: frozenset({0})}
    after = reconciled(has(0), inputs(target, subscribed=frozenset({U})))
    assert (after.state, after.revoking) == (MemberState.UNREVOKED_PARTITIONS, {T: {0: 1}})
    assert after.assigned == {}


def test_subscription_may_change_before_there_is_a_new_target() -> None:
    target = {T: frozenset({0})}
    current = has(0, epoch=2)
    after = reconciled(current, inputs(target, subscribed=frozenset({U}), has_changed=True))
    assert (after.state, after.member_epoch) == (MemberState.UNREVOKED_PARTITIONS, 2)
    assert (after.assigned, after.revoking) == ({}, {T: {0: 2}})
    # Having given it up it does not run ahead of the target's epoch.
    done = reconciled(after, inputs(target, subscribed=frozenset({U}), owned={}))
    assert (done.state, done.member_epoch, done.assigned, done.revoking) == (MemberState.STABLE, 2, {}, {})
    at_once = reconciled(current, inputs(target, subscribed=frozenset({U}), has_changed=True, owned={}))
    assert (at_once.state, at_once.assigned) == (MemberState.STABLE, {})


def test_state_that_is_not_known_begins_anew_with_nothing() -> None:
    current = has(0, state=MemberState.UNKNOWN)
    for owned in (None, {T: [0]}):
        with pytest.raises(KafkaError) as caught:
            reconciled(current, inputs({T: frozenset({0})}, owned=owned))
        assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconciled(current, inputs({T: frozenset({0})}, owned={})).state is MemberState.STABLE


@given(
    first=st.frozensets(st.integers(0, 5)),
    targets=st.lists(st.frozensets(st.integers(0, 5)), min_size=1, max_size=4),
    taken=st.frozensets(st.integers(0, 5)),
)
def test_member_that_follows_comes_to_its_target(
    first: frozenset[int], targets: list[frozenset[int]], taken: frozenset[int]
) -> None:
    """Through any targets, with any partitions taken meanwhile: it never has what is taken, and arrives."""
    current = has(*first)
    owned: dict[bytes, list[int]] = {T: list(first)}
    for number, indexes in enumerate(targets, start=2):
        target = {T: indexes} if indexes else {}
        others = frozenset((T, index) for index in taken - first)
        for is_blocked in (True, True, True, False, False, False):
            before = current
            current = reconciled(
                current, inputs(target, epoch=number, owned=owned, taken=others if is_blocked else frozenset())
            )
            given = current.assigned.get(T, {}).keys() - before.assigned.get(T, {}).keys()
            assert not is_blocked or not {(T, index) for index in given} & others
            owned = {topic_id: list(held) for topic_id, held in current.assigned.items()}
        assert current.is_reconciled_to(number)
        assert current.assigned.get(T, {}).keys() == indexes
