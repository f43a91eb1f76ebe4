"""Generated groups for the tests of assignment strategies."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import strategies as st

from kwire.coordinator.assignment import MemberSubscription

Members = dict[str, MemberSubscription[str]]
Assignment = dict[str, dict[str, list[int]]]

TOPICS = ("a", "b", "c", "d", "e")
PARTITIONS_MAX = 9


def alike(count: int, *topics: str) -> Members:
    """Members m0, m1, ... that subscribe alike and have nothing yet."""
    return {f"m{number}": MemberSubscription(topics=frozenset(topics)) for number in range(count)}


def with_owned(members: Members, assignment: Assignment) -> Members:
    """The same members, after they got what the assignment gives them."""
    return {
        member_id: MemberSubscription(
            topics=member.topics, owned=assignment.get(member_id, {}), instance_id=member.instance_id
        )
        for member_id, member in members.items()
    }


def sizes(assignment: Assignment) -> dict[str, int]:
    return {member_id: sum(map(len, topics.values())) for member_id, topics in assignment.items()}


def readers(assignment: Assignment) -> dict[tuple[str, int], str]:
    """Who got each partition; a partition that two got is an error."""
    pairs = [
        ((topic, partition), member_id)
        for member_id, topics in assignment.items()
        for topic, partitions in topics.items()
        for partition in partitions
    ]
    assert [pair for pair, times in Counter(pair for pair, _ in pairs).items() if times > 1] == []
    return dict(pairs)


def moved(before: Assignment, after: Assignment) -> set[tuple[str, int]]:
    """Partitions that had a reader and now have another."""
    new = readers(after)
    return {pair for pair, member_id in readers(before).items() if pair in new and new[pair] != member_id}


# Subscriptions as bit masks: one draw for each, so that hundreds of groups take no time to make.
SUBSCRIPTIONS = tuple(
    frozenset(topic for bit, topic in enumerate(TOPICS) if mask >> bit & 1) for mask in range(1 << len(TOPICS))
)
# Partitions -1 and above PARTITIONS_MAX - 1 never exist.
CLAIMS = tuple((topic, partition) for topic in TOPICS for partition in range(-1, PARTITIONS_MAX + 2))


def counts() -> st.SearchStrategy[dict[str, int]]:
    """Some topics do not exist, some have no partition."""
    return st.dictionaries(st.sampled_from(TOPICS), st.integers(0, PARTITIONS_MAX))


@st.composite
def any_members(draw: st.DrawFn, subscribe_alike: bool = False) -> Members:
    """What members claim to own may be nonsense: what others have, topics they left, partitions that do not exist."""
    common = draw(st.sampled_from(SUBSCRIPTIONS))
    numbers = draw(st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True))
    members: Members = {}
    for number in numbers:
        owned: dict[str, list[int]] = {}
        for topic, partition in draw(st.lists(st.sampled_from(CLAIMS), max_size=8)):
            owned.setdefault(topic, []).append(partition)
        members[f"m{number}"] = MemberSubscription(
            topics=common if subscribe_alike else draw(st.sampled_from(SUBSCRIPTIONS)),
            owned=owned,
            instance_id=f"i{99 - number}" if number % 3 == 0 else None,
        )
    return members


def reversed_entries(members: Mapping[str, MemberSubscription[str]]) -> Members:
    """An equal group whose entries stand in another order."""
    return {
        member_id: MemberSubscription(
            topics=frozenset(sorted(member.topics, reverse=True)),
            owned=dict(reversed(list(member.owned.items()))),
            instance_id=member.instance_id,
        )
        for member_id, member in reversed(list(members.items()))
    }
