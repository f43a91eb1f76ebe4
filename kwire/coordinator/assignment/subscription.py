"""What every strategy is told about a group, and the two questions all of them begin with: in which order do members
stand, and who may read a topic?
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field


class TopicKey(Protocol):
    """What stands for a topic: a name, an id. A strategy only looks it up and sorts by it."""

    def __hash__(self) -> int: ...

    def __lt__(self, other: Any, /) -> bool: ...


Topic = TypeVar("Topic", bound=TopicKey)


class MemberSubscription(Struct, Generic[Topic], frozen=True, kw_only=True):
    """One member, as a strategy sees it.

    `owned` is what the assignment before gave it; a static member that came back under a new id brings along what the
    old id had. There is no rack: Kafka's own strategies on the server do not look at it either.
    """

    topics: frozenset[Topic]
    owned: Mapping[Topic, Collection[int]] = field(default_factory=dict)
    instance_id: str | None = None


class Strategy(Protocol):
    """Who reads what. A pure function: equal arguments, in whatever order their entries stand, give equal answers.

    A topic without an entry in `partition_counts` does not exist and is passed over, subscribed or owned. The answer
    has an entry for each member; in it are only topics of which the member got a partition, with partitions ascending.
    """

    def __call__(
        self, members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
    ) -> dict[str, dict[Topic, list[int]]]: ...


def in_order(members: Mapping[str, MemberSubscription[Any]]) -> list[str]:
    """Static members by their instance id, then the others by their member id, as Kafka does: a static member that
    restarts gets a new member id, but keeps its place.
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)


class Readership(Struct, Generic[Topic], frozen=True):
    """Topics, ascending, that the very same members may read. Members are positions in `in_order`, ascending."""

    readers: list[int]
    topics: list[Topic]


def readerships(
    subscriptions: Iterable[MemberSubscription[Topic]], partition_counts: Mapping[Topic, int]
) -> list[Readership[Topic]]:
    """All topics that somebody reads, by who reads them; each topic is in one of them.

    Members mostly subscribe alike. So the work is done for each subscription there is, not for each member.
    """
    alike: dict[frozenset[Topic], list[int]] = {}
    for position, subscription in enumerate(subscriptions):
        alike.setdefault(subscription.topics, []).append(position)
    teams = list(alike.values())
    teams_of: dict[Topic, list[int]] = {}
    for team, topics in enumerate(alike):
        for topic in topics:
            if topic in partition_counts:
                teams_of.setdefault(topic, []).append(team)
    together: dict[tuple[int, ...], list[Topic]] = {}
    for topic in sorted(teams_of):
        together.setdefault(tuple(teams_of[topic]), []).append(topic)
    return [
        Readership(sorted(position for team in key for position in teams[team]), topics)
        for key, topics in together.items()
    ]
