"""The input of an assignment strategy, the order of members, and the topics grouped by their subscribers."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field


class TopicKey(Protocol):
    """A topic's name or id. Strategies need only its hash and its order."""

    def __hash__(self) -> int: ...

    def __lt__(self, other: Any, /) -> bool: ...


Topic = TypeVar("Topic", bound=TopicKey)


class MemberSubscription(Struct, Generic[Topic], frozen=True, kw_only=True):
    """One member, as input of a strategy.

    `owned` is the member's previous assignment. If a static member has rejoined with a new member id, `owned` is the
    assignment of its old member id. There is no rack, because Kafka's server-side assignors do not use it either.
    """

    topics: frozenset[Topic]
    owned: Mapping[Topic, Collection[int]] = field(default_factory=dict)
    instance_id: str | None = None


class Strategy(Protocol):
    """An assignment strategy: a pure function. Its result does not depend on the order of the entries in the mappings.

    A topic without an entry in `partition_counts` does not exist and is ignored. The result has one entry per member:
    the member's topics, each with its partitions in ascending order.
    """

    def __call__(
        self, members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
    ) -> dict[str, dict[Topic, list[int]]]: ...


def sorted_member_ids(members: Mapping[str, MemberSubscription[Any]]) -> list[str]:
    """Return the member ids in Kafka's order: static members by instance id, then the others by member id.

    With this order, a static member that restarts and gets a new member id keeps its position.
    """

    def sort_key(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=sort_key)


class Readership(Struct, Generic[Topic], frozen=True):
    """Topics that have the same readers. A reader is a member's position in `sorted_member_ids`.

    Both lists are ascending.
    """

    readers: list[int]
    topics: list[Topic]


def readerships(
    subscriptions: Iterable[MemberSubscription[Topic]], partition_counts: Mapping[Topic, int]
) -> list[Readership[Topic]]:
    """Group all subscribed topics by their readers. Each topic is in exactly one group.

    Most members have the same subscription. So the topics are processed once per distinct subscription, not per member.
    """
    alike: dict[frozenset[Topic], list[int]] = {}
    for position, subscription in enumerate(subscriptions):
        alike.setdefault(subscription.topics, []).append(position)
    member_groups = list(alike.values())
    groups_of: dict[Topic, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic in topics:
            if topic in partition_counts:
                groups_of.setdefault(topic, []).append(number)
    together: dict[tuple[int, ...], list[Topic]] = {}
    for topic in sorted(groups_of):
        together.setdefault(tuple(groups_of[topic]), []).append(topic)
    return [
        Readership(sorted(position for number in key for position in member_groups[number]), topics)
        for key, topics in together.items()
    ]
