"""The sticky strategy (`uniform` in consumer groups): balanced first, then minimal movement."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.coordinator.assignment import STRATEGIES, MemberSubscription, sticky
from kwire.coordinator.assignment.even_shares import even_shares
from kwire.coordinator.assignment.sticky import assign_sticky
from tests.coordinator.assignment_groups import (
    Assignment,
    Members,
    alike,
    any_members,
    counts,
    moved,
    readers,
    sizes,
    with_owned,
)


def assert_even(members: Members, assignment: Assignment) -> None:
    """No partition has an owner with two or more above another subscriber."""
    size = sizes(assignment)
    for (topic, _), owner in readers(assignment).items():
        assert all(size[owner] - size[other] < 2 for other in members if topic in members[other].topics)


def test_consumer_groups_call_it_uniform() -> None:
    assert STRATEGIES["uniform"] is STRATEGIES["sticky"] is assign_sticky


@given(members=any_members(), partition_counts=counts())
def test_no_single_move_would_be_fairer(members: Members, partition_counts: dict[str, int]) -> None:
    assert_even(members, assign_sticky(members, partition_counts))


@given(members=any_members(subscribe_alike=True), partition_counts=counts())
def test_sizes_differ_by_one_at_most_when_all_subscribe_alike(
    members: Members, partition_counts: dict[str, int]
) -> None:
    lengths = sizes(assign_sticky(members, partition_counts)).values()
    assert max(lengths) - min(lengths) <= 1


@given(members=any_members(), partition_counts=counts())
def test_an_even_assignment_stays(members: Members, partition_counts: dict[str, int]) -> None:
    assignment = assign_sticky(members, partition_counts)
    assert assign_sticky(with_owned(members, assignment), partition_counts) == assignment


@st.composite
def owned_somehow(draw: st.DrawFn) -> tuple[Assignment, dict[str, int]]:
    """Any distribution of partitions, however uneven, some of them free."""
    partition_counts = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 7), min_size=1))
    before: Assignment = {f"m{number}": {} for number in range(draw(st.integers(1, 6)))}
    for topic, count in partition_counts.items():
        for partition in range(count):
            owner = draw(st.sampled_from([None, *before]))
            if owner is not None:
                before[owner].setdefault(topic, []).append(partition)
    return before, partition_counts


@given(owned_somehow())
def test_no_even_assignment_moves_less_when_all_subscribe_alike(case: tuple[Assignment, dict[str, int]]) -> None:
    before, partition_counts = case
    members = with_owned(alike(len(before), *partition_counts), before)
    after = assign_sticky(members, partition_counts)
    share, longer = divmod(sum(partition_counts.values()), len(members))
    owned = sizes(before)
    # Try everyone who could have the longer share: what is above a share must move, nothing else.
    fewest = min(
        sum(max(0, owned[member_id] - share - (member_id in chosen)) for member_id in members)
        for chosen in combinations(members, longer)
    )
    assert len(moved(before, after)) == fewest


@given(
    st.integers(2, 8),
    st.integers(0, 7),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1),
)
def test_leaving_moves_nothing_of_those_who_stay(count: int, leaver: int, partition_counts: dict[str, int]) -> None:
    members = alike(count, "a", "b", "c")
    before = assign_sticky(members, partition_counts)
    left = f"m{leaver % count}"
    stay = {member_id: member for member_id, member in with_owned(members, before).items() if member_id != left}
    after = assign_sticky(stay, partition_counts)
    assert moved(before, after) == {pair for pair, owner in readers(before).items() if owner == left}


@given(st.integers(1, 8), st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1))
def test_joining_moves_only_what_the_new_member_gets(count: int, partition_counts: dict[str, int]) -> None:
    members = alike(count, "a", "b", "c")
    before = assign_sticky(members, partition_counts)
    # First in order: not even standing in front makes it take more than the smaller share.
    joined = with_owned(members, before) | {"a-new-one": MemberSubscription(topics=frozenset("abc"))}
    after = assign_sticky(joined, partition_counts)
    assert moved(before, after) == {pair for pair, owner in readers(after).items() if owner == "a-new-one"}
    assert sizes(after)["a-new-one"] == sum(partition_counts.values()) // (count + 1)


def test_new_partitions_move_nothing_old() -> None:
    members = alike(3, "a")
    before = assign_sticky(members, {"a": 4})
    after = assign_sticky(with_owned(members, before), {"a": 9})
    assert moved(before, after) == set()
    assert set(sizes(after).values()) == {3}


def test_deleted_topic_leaves_the_rest_where_it_is_if_that_is_even() -> None:
    members = alike(2, "a", "b")
    before = assign_sticky(members, {"a": 4, "b": 2})
    after = assign_sticky(with_owned(members, before), {"a": 4})
    assert moved(before, after) == set()
    assert sizes(after) == {"m0": 2, "m1": 2}


def test_member_loses_a_topic_it_no_longer_reads() -> None:
    members = {
        "m0": MemberSubscription(topics=frozenset("b"), owned={"a": [0, 1], "b": [0]}),
        "m1": MemberSubscription(topics=frozenset("ab"), owned={"b": [1]}),
    }
    assert assign_sticky(members, {"a": 2, "b": 2}) == {"m0": {"b": [0, 1]}, "m1": {"a": [0, 1]}}


def test_of_two_claims_the_first_member_in_order_wins() -> None:
    members = {
        member_id: MemberSubscription(topics=frozenset("a"), owned={"a": [1]}, instance_id=instance_id)
        for member_id, instance_id in (("m0", None), ("m1", "static"))
    }
    assert assign_sticky(members, {"a": 2}) == {"m0": {"a": [0]}, "m1": {"a": [1]}}


def test_static_member_under_a_new_id_keeps_what_it_brings_along() -> None:
    members = {
        member_id: MemberSubscription(topics=frozenset("a"), instance_id=f"i{number}")
        for number, member_id in enumerate(("x", "y", "z"))
    }
    before = assign_sticky(members, {"a": 8})
    held = with_owned(members, before)
    held["a-new-id"] = held.pop("y")
    after = assign_sticky(held, {"a": 8})
    assert after == {"x": before["x"], "a-new-id": before["y"], "z": before["z"]}


@pytest.mark.parametrize("count", [2, 3])
def test_every_topic_is_spread_over_all_members(count: int) -> None:
    partition_counts = {"a": 6, "b": 6}
    members = alike(count, "a", "b")
    first_alone = assign_sticky(alike(1, "a", "b"), partition_counts)
    # All come at once, or the first was there before and gives up what it has too much.
    for group in (members, with_owned(members, first_alone)):
        for got in assign_sticky(group, partition_counts).values():
            assert {topic: len(partitions) for topic, partitions in got.items()} == {"a": 6 // count, "b": 6 // count}


def test_what_few_can_read_is_handed_out_first() -> None:
    members = {
        "m0": MemberSubscription(topics=frozenset("ab"), owned={"a": [0], "b": [2]}),
        "m1": MemberSubscription(topics=frozenset("ab")),
        "m2": MemberSubscription(topics=frozenset("a")),
    }
    # Were a's free partition handed out before b's, m1 would get it, and then m0 would have to give one to m2.
    assert assign_sticky(members, {"a": 2, "b": 3}) == {
        "m0": {"a": [0], "b": [2]},
        "m1": {"b": [0, 1]},
        "m2": {"a": [1]},
    }


def chain_of(count: int) -> tuple[Members, dict[str, int]]:
    """Each member shares one topic with the one before and one with the one behind; all partitions are at one end."""
    members = {
        f"m{number:03}": MemberSubscription(topics=frozenset({f"t{number:03}", f"t{number + 1:03}"}))
        for number in range(count)
    }
    members["m000"] = MemberSubscription(topics=members["m000"].topics, owned={"t000": range(100), "t001": range(100)})
    return members, {f"t{number:03}": 100 if number < 2 else 1 for number in range(count + 1)}


def test_chain_of_overlapping_subscriptions_becomes_even() -> None:
    members, partition_counts = chain_of(40)
    assert_even(members, assign_sticky(members, partition_counts))


def test_balancing_that_takes_too_long_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky, "BALANCE_VISITS_MAX", 0)
    members, partition_counts = chain_of(40)
    assert len(readers(assign_sticky(members, partition_counts))) == sum(partition_counts.values())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7), st.integers(0, 40))
def test_sharing_is_what_giving_one_by_one_to_the_lowest_gives(rows: list[tuple[int, int]], count: int) -> None:
    bases = [base for base, _ in rows]
    shares = even_shares(bases, [held for _, held in rows], count)
    assert sum(shares) == count
    poured = list(bases)
    for _ in range(count):
        poured[poured.index(min(poured))] += 1
    assert sorted(base + share for base, share in zip(bases, shares, strict=True)) == sorted(poured)


def test_thing_left_over_stays_with_who_holds_it() -> None:
    assert even_shares([0, 0, 0], [1, 1, 2], 4) == [1, 1, 2]
    assert even_shares([0, 0, 0], [0, 2, 2], 4) == [1, 2, 1]


@given(members=any_members(), partition_counts=counts())
def test_joining_again_and_again_stays_even(members: Members, partition_counts: dict[str, int]) -> None:
    present: Members = {}
    assignment: Assignment = {}
    for member_id, member in members.items():
        present[member_id] = member
        assignment = assign_sticky(with_owned(present, assignment), partition_counts)
        assert_even(present, assignment)
