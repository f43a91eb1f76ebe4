"""The range strategy: contiguous partitions, the same numbers of each topic."""

from hypothesis import given

from kwire.coordinator.assignment import MemberSubscription
from kwire.coordinator.assignment.range import assign_range
from tests.coordinator.assignment_groups import Members, alike, any_members, counts


def test_equal_topics_are_cut_at_the_same_places() -> None:
    assert assign_range(alike(2, "a", "b"), {"a": 3, "b": 3}) == {
        "m0": {"a": [0, 1], "b": [0, 1]},
        "m1": {"a": [2], "b": [2]},
    }


def test_only_subscribers_of_a_topic_count() -> None:
    members = {
        "m0": MemberSubscription(topics=frozenset("ab")),
        "m1": MemberSubscription(topics=frozenset("b")),
        "m2": MemberSubscription(topics=frozenset("bc")),
    }
    assert assign_range(members, {"a": 2, "b": 5, "c": 1}) == {
        "m0": {"a": [0, 1], "b": [0, 1]},
        "m1": {"b": [2, 3]},
        "m2": {"b": [4], "c": [0]},
    }


def test_restarted_static_member_gets_its_range_again() -> None:
    def group(first_id: str) -> Members:
        return {
            first_id: MemberSubscription(topics=frozenset("a"), instance_id="i0"),
            "k": MemberSubscription(topics=frozenset("a"), instance_id="i1"),
        }

    assert assign_range(group("b"), {"a": 3})["b"] == assign_range(group("z"), {"a": 3})["z"] == {"a": [0, 1]}


def test_static_members_stand_before_others() -> None:
    members = alike(1, "a") | {"z": MemberSubscription(topics=frozenset("a"), instance_id="i9")}
    assert assign_range(members, {"a": 3}) == {"z": {"a": [0, 1]}, "m0": {"a": [2]}}


@given(members=any_members(), partition_counts=counts())
def test_ranges_have_no_holes_and_differ_by_one_at_most(members: Members, partition_counts: dict[str, int]) -> None:
    assignment = assign_range(members, partition_counts)
    for topic in partition_counts:
        ranges = [assignment[member_id].get(topic, []) for member_id in members if topic in members[member_id].topics]
        for partitions in ranges:
            assert partitions == list(range(partitions[0], partitions[0] + len(partitions))) if partitions else True
        lengths = [len(partitions) for partitions in ranges]
        assert max(lengths, default=0) - min(lengths, default=0) <= 1
