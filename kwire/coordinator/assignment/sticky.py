"""The sticky strategy: balances as well as the subscriptions allow, and then moves as few partitions as possible.

The partitions of all topics with the same subscribers form one pool. A member's share is the number of partitions that
it gets from a pool. The balance depends only on the shares, so these are computed first (`even_shares.py`). Pools are
rebalanced until no share changes. Then no member can get a partition from a member that has at least two partitions
more. After that, the partitions are chosen. Every member keeps as many of its partitions as its share allows.

If all members have the same subscription, there is one pool and the result is optimal. The members' numbers of
partitions differ by at most one, and no equally balanced assignment moves fewer partitions.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Generic

from kwire.coordinator.assignment.even_shares import even_shares
from kwire.coordinator.assignment.subscription import (
    MemberSubscription,
    Readership,
    Topic,
    readerships,
    sorted_member_ids,
)

# The balancing stops after it has visited this many shares, because it is slow if pools overlap in long chains. Some
# members may then have too many partitions, but every partition is assigned.
BALANCE_VISITS_MAX = 1_000_000
# The fixed cost of visiting a pool. The unit is the visit of one share.
POOL_VISITS = 8

# Topic -> partition -> position of the member that owns the partition and may keep it.
Owners = Mapping[Topic, Mapping[int, int]]


def assign_sticky(
    members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
) -> dict[str, dict[Topic, list[int]]]:
    member_ids = sorted_member_ids(members)
    subscriptions = [members[member_id] for member_id in member_ids]
    owners = _owners(subscriptions, partition_counts)
    pools = [_Pool(readership, partition_counts, owners) for readership in readerships(subscriptions, partition_counts)]
    _balance(pools, len(member_ids))
    assignment: list[dict[Topic, list[int]]] = [{} for _ in member_ids]
    for pool in pools:
        for reader, topic, partition in pool.assigned_partitions(partition_counts, owners):
            assignment[reader].setdefault(topic, []).append(partition)
    for topics in assignment:
        for partitions in topics.values():
            partitions.sort()
    return dict(zip(member_ids, assignment, strict=True))


def _owners(
    subscriptions: list[MemberSubscription[Topic]], partition_counts: Mapping[Topic, int]
) -> dict[Topic, dict[int, int]]:
    """Return the current owner of each partition. If two members own a partition, the first one is used."""
    owners: dict[Topic, dict[int, int]] = {}
    for position, subscription in enumerate(subscriptions):
        for topic, partitions in subscription.owned.items():
            if topic in subscription.topics and topic in partition_counts:
                count = partition_counts[topic]
                owner_of = owners.setdefault(topic, {})
                for partition in partitions:
                    if 0 <= partition < count:
                        owner_of.setdefault(partition, position)
    return owners


def _balance(pools: "list[_Pool[Topic]]", member_count: int) -> None:
    # Begin with the pools that have the fewest readers. The pools with more readers can then even out differences
    # between members, so fewer partitions move.
    pools = sorted(pools, key=lambda pool: len(pool.readers))
    loads = [0] * member_count
    for pool in pools:
        for reader, share in zip(pool.readers, pool.shares, strict=True):
            loads[reader] += share
    for pool in pools:
        pool.assign_unowned(loads)
    visits = 0
    uneven = True
    while uneven and visits < BALANCE_VISITS_MAX:
        uneven = False
        for pool in pools:
            visits += POOL_VISITS + len(pool.readers)
            if not pool.is_even(loads):
                pool.rebalance(loads)
                uneven = True


class _Pool(Generic[Topic]):
    """The partitions of all topics with the same readers, and the share of each reader: its number of partitions."""

    __slots__ = ("readers", "shares", "size", "topics")

    def __init__(
        self, readership: Readership[Topic], partition_counts: Mapping[Topic, int], owners: Owners[Topic]
    ) -> None:
        self.readers = readership.readers
        self.topics = readership.topics
        self.size = sum(partition_counts[topic] for topic in self.topics)
        held = Counter(chain.from_iterable(owners[topic].values() for topic in self.topics if topic in owners))
        self.shares = [held[reader] for reader in self.readers]

    def assign_unowned(self, loads: list[int]) -> None:
        """Add the partitions without an owner to the shares of the members with the fewest partitions."""
        unowned = self.size - sum(self.shares)
        if unowned:
            additions = even_shares([loads[reader] for reader in self.readers], [0] * len(self.readers), unowned)
            self._set([share + addition for share, addition in zip(self.shares, additions, strict=True)], loads)

    def is_even(self, loads: list[int]) -> bool:
        """Return whether this pool is balanced.

        The pool is not balanced if one of its readers can give a partition to a reader that has at least two fewer.
        """
        least = min([loads[reader] for reader in self.readers])
        givers = [loads[reader] for reader, share in zip(self.readers, self.shares, strict=True) if share]
        return max(givers, default=0) - least < 2

    def rebalance(self, loads: list[int]) -> None:
        """Distribute the whole pool as evenly as possible. The shares of other pools do not change."""
        others = [loads[reader] - share for reader, share in zip(self.readers, self.shares, strict=True)]
        self._set(even_shares(others, self.shares, self.size), loads)

    def _set(self, shares: list[int], loads: list[int]) -> None:
        for reader, old, new in zip(self.readers, self.shares, shares, strict=True):
            loads[reader] += new - old
        self.shares = shares

    def assigned_partitions(
        self, partition_counts: Mapping[Topic, int], owners: Owners[Topic]
    ) -> Iterator[tuple[int, Topic, int]]:
        """Choose the partitions of each reader. Yields (reader, topic, partition) for each partition of the pool."""
        room = dict(zip(self.readers, self.shares, strict=True))
        unassigned: list[tuple[Topic, int]] = []
        # A member that must lose partitions loses the last ones of each topic, not all partitions of its last topic.
        # So the partitions of a busy topic stay distributed over many members. For this, a member's partitions are
        # sorted by their rank within their topic, and the first ones are kept.
        kept_by_rank: dict[int, list[tuple[int, int, Topic, int]]] = {reader: [] for reader in self.readers}
        for number, topic in enumerate(self.topics):
            owner_of = owners.get(topic, {})
            ranks: Counter[int] = Counter()
            for partition in range(partition_counts[topic]):
                owner = owner_of.get(partition)
                if owner is None:
                    unassigned.append((topic, partition))
                else:
                    kept_by_rank[owner].append((ranks[owner], number, topic, partition))
                    ranks[owner] += 1
        for reader, owned in kept_by_rank.items():
            if len(owned) > room[reader]:
                owned.sort(key=lambda entry: entry[:2])
                unassigned.extend((topic, partition) for _, _, topic, partition in owned[room[reader] :])
                del owned[room[reader] :]
            room[reader] -= len(owned)
            for _, _, topic, partition in owned:
                yield reader, topic, partition
        # Assign adjacent partitions to different members, so that a busy topic is distributed over many members.
        unassigned.sort()
        waiting = deque(reader for reader in self.readers if room[reader])
        for topic, partition in unassigned:
            reader = waiting.popleft()
            yield reader, topic, partition
            room[reader] -= 1
            if room[reader]:
                waiting.append(reader)
