"""Properties of every assignment strategy."""

import pytest
from hypothesis import given

from kwire.coordinator.assignment import CONSUMER_GROUP_STRATEGIES, STRATEGIES, MemberSubscription, Strategy
from tests.coordinator.assignment_groups import Members, alike, any_members, counts, readers, reversed_entries

# uniform is sticky under another name, as the tests of sticky show.
every_strategy = pytest.mark.parametrize(
    "strategy", [pytest.param(STRATEGIES[name], id=name) for name in STRATEGIES if name != "uniform"]
)


def test_consumer_groups_name_only_strategies_that_exist() -> None:
    assert set(CONSUMER_GROUP_STRATEGIES) <= set(STRATEGIES)


@every_strategy
@given(members=any_members(), partition_counts=counts())
def test_each_partition_goes_to_one_subscriber(
    strategy: Strategy, members: Members, partition_counts: dict[str, int]
) -> None:
    assignment = strategy(members, partition_counts)
    assert set(assignment) == set(members)
    wanted = set().union(*(member.topics for member in members.values()))
    assert set(readers(assignment)) == {
        (topic, partition) for topic, count in partition_counts.items() if topic in wanted for partition in range(count)
    }
    for member_id, topics in assignment.items():
        assert set(topics) <= members[member_id].topics
        for partitions in topics.values():
            assert partitions
            assert partitions == sorted(partitions)


@every_strategy
@given(members=any_members(), partition_counts=counts())
def test_order_of_entries_does_not_matter(
    strategy: Strategy, members: Members, partition_counts: dict[str, int]
) -> None:
    assert strategy(members, partition_counts) == strategy(
        reversed_entries(members), dict(reversed(list(partition_counts.items())))
    )


@every_strategy
def test_group_without_members_gets_nothing(strategy: Strategy) -> None:
    assert strategy({}, {"a": 3}) == {}


@every_strategy
def test_member_without_topics_is_answered_too(strategy: Strategy) -> None:
    assert strategy(alike(1), {"a": 3}) == {"m0": {}}


@every_strategy
def test_members_beyond_the_partitions_stay_idle(strategy: Strategy) -> None:
    assert strategy(alike(3, "a"), {"a": 1}) == {"m0": {"a": [0]}, "m1": {}, "m2": {}}


@every_strategy
def test_topics_may_be_ids(strategy: Strategy) -> None:
    topic = bytes(range(16))
    members = {"m": MemberSubscription(topics=frozenset({topic}))}
    assert strategy(members, {topic: 2}) == {"m": {topic: [0, 1]}}
