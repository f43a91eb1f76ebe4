"""The round-robin strategy: partitions in turn, skipping members that do not subscribe."""

from itertools import cycle

from hypothesis import given

from kwire.coordinator.assignment import MemberSubscription
from kwire.coordinator.assignment.round_robin import assign_round_robin
from kwire.coordinator.assignment.subscription import sorted_member_ids
from tests.coordinator.assignment_groups import Assignment, Members, alike, any_members, counts, sizes


def test_dealing_goes_on_from_topic_to_topic() -> None:
    assert assign_round_robin(alike(2, "a", "b"), {"a": 3, "b": 3}) == {
        "m0": {"a": [0, 2], "b": [1]},
        "m1": {"a": [1], "b": [0, 2]},
    }


def test_who_does_not_subscribe_is_passed_over() -> None:
    members = {
        "m0": MemberSubscription(topics=frozenset("a")),
        "m1": MemberSubscription(topics=frozenset("ab")),
        "m2": MemberSubscription(topics=frozenset("abc")),
    }
    assert assign_round_robin(members, {"a": 1, "b": 2, "c": 3}) == {
        "m0": {"a": [0]},
        "m1": {"b": [0]},
        "m2": {"b": [1], "c": [0, 1, 2]},
    }


@given(members=any_members(subscribe_alike=True), partition_counts=counts())
def test_sizes_differ_by_one_at_most_when_all_subscribe_alike(
    members: Members, partition_counts: dict[str, int]
) -> None:
    lengths = sizes(assign_round_robin(members, partition_counts)).values()
    assert max(lengths) - min(lengths) <= 1


@given(members=any_members(), partition_counts=counts())
def test_dealing_is_what_walking_round_the_table_gives(members: Members, partition_counts: dict[str, int]) -> None:
    expected: Assignment = {member_id: {} for member_id in members}
    table = cycle(sorted_member_ids(members))
    for topic, count in sorted(partition_counts.items()):
        if any(topic in member.topics for member in members.values()):
            for partition in range(count):
                member_id = next(member_id for member_id in table if topic in members[member_id].topics)
                expected[member_id].setdefault(topic, []).append(partition)
    assert assign_round_robin(members, partition_counts) == expected
