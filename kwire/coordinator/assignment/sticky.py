"""sticky: first as even as subscriptions allow, then as little movement as possible.

Topics with the very same readers are one pool: for the balance only the size of each member's share of a pool matters,
not which partitions are in it. So shares are found first, as numbers (`sharing.py`). Pools are shared out again until
none changes any more; then no partition could go to a reader that has two or more less than its owner. Only at the end
do numbers become partitions, and every member keeps as much of what it had as its share holds.

When all members subscribe alike there is one pool, and the result is exact: sizes differ by one at most, and no other
assignment as even as this moves fewer partitions.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Generic

from kwire.coordinator.assignment.sharing import even_shares
from kwire.coordinator.assignment.subscription import MemberSubscription, Readership, Topic, in_order, readerships

# Pools that overlap in long chains come to rest slowly. After so many looks at a member's share, what has been reached
# is good enough: some members then have more than they should, but every partition has its reader.
BALANCE_VISITS_MAX = 1_000_000
# Looking at a pool takes as long as looking at so many shares, however few it has.
POOL_VISITS = 8

# Topic -> partition -> position of the member that has it and may keep it.
Owners = Mapping[Topic, Mapping[int, int]]


def assign_sticky(
    members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
) -> dict[str, dict[Topic, list[int]]]:
    member_ids = in_order(members)
    subscriptions = [members[member_id] for member_id in member_ids]
    owners = _owners(subscriptions, partition_counts)
    pools = [_Pool(readership, partition_counts, owners) for readership in readerships(subscriptions, partition_counts)]
    _balance(pools, len(member_ids))
    assignment: list[dict[Topic, list[int]]] = [{} for _ in member_ids]
    for pool in pools:
        for reader, topic, partition in pool.dealt(partition_counts, owners):
            assignment[reader].setdefault(topic, []).append(partition)
    for topics in assignment:
        for partitions in topics.values():
            partitions.sort()
    return dict(zip(member_ids, assignment, strict=True))


def _owners(
    subscriptions: list[MemberSubscription[Topic]], partition_counts: Mapping[Topic, int]
) -> dict[Topic, dict[int, int]]:
    """Of two members that claim a partition the first one has it."""
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
    # Pools with the fewest readers first: those that come later can make up for them, so less has to move.
    pools = sorted(pools, key=lambda pool: len(pool.readers))
    loads = [0] * member_count
    for pool in pools:
        for reader, share in zip(pool.readers, pool.shares, strict=True):
            loads[reader] += share
    for pool in pools:
        pool.hand_out(loads)
    visits = 0
    uneven = True
    while uneven and visits < BALANCE_VISITS_MAX:
        uneven = False
        for pool in pools:
            visits += POOL_VISITS + len(pool.readers)
            if not pool.is_even(loads):
                pool.share_again(loads)
                uneven = True


class _Pool(Generic[Topic]):
    """The partitions of all topics with the same readers, and how many of them each reader gets."""

    __slots__ = ("readers", "shares", "size", "topics")

    def __init__(
        self, readership: Readership[Topic], partition_counts: Mapping[Topic, int], owners: Owners[Topic]
    ) -> None:
        self.readers = readership.readers
        self.topics = readership.topics
        self.size = sum(partition_counts[topic] for topic in self.topics)
        held = Counter(chain.from_iterable(owners[topic].values() for topic in self.topics if topic in owners))
        self.shares = [held[reader] for reader in self.readers]

    def hand_out(self, loads: list[int]) -> None:
        """Give what nobody has to those with the least; nobody loses anything."""
        unowned = self.size - sum(self.shares)
        if unowned:
            gifts = even_shares([loads[reader] for reader in self.readers], [0] * len(self.readers), unowned)
            self._set([share + gift for share, gift in zip(self.shares, gifts, strict=True)], loads)

    def is_even(self, loads: list[int]) -> bool:
        """Has no reader two or more less than one from which it could take a partition of this pool?"""
        least = min([loads[reader] for reader in self.readers])
        givers = [loads[reader] for reader, share in zip(self.readers, self.shares, strict=True) if share]
        return max(givers, default=0) - least < 2

    def share_again(self, loads: list[int]) -> None:
        """Share the whole pool as evenly as can be, while its readers keep what they have of other pools."""
        others = [loads[reader] - share for reader, share in zip(self.readers, self.shares, strict=True)]
        self._set(even_shares(others, self.shares, self.size), loads)

    def _set(self, shares: list[int], loads: list[int]) -> None:
        for reader, old, new in zip(self.readers, self.shares, shares, strict=True):
            loads[reader] += new - old
        self.shares = shares

    def dealt(self, partition_counts: Mapping[Topic, int], owners: Owners[Topic]) -> Iterator[tuple[int, Topic, int]]:
        """The shares as partitions: (reader, topic, partition), each partition of the pool once."""
        room = dict(zip(self.readers, self.shares, strict=True))
        loose: list[tuple[Topic, int]] = []
        # Who must give something up gives up the last partitions of each topic, not all of its last topic: a busy
        # topic should stay spread over many members. So keeping goes through the topics in turns.
        kept_turns: dict[int, list[tuple[int, int, Topic, int]]] = {reader: [] for reader in self.readers}
        for number, topic in enumerate(self.topics):
            owner_of = owners.get(topic, {})
            turns: Counter[int] = Counter()
            for partition in range(partition_counts[topic]):
                owner = owner_of.get(partition)
                if owner is None:
                    loose.append((topic, partition))
                else:
                    kept_turns[owner].append((turns[owner], number, topic, partition))
                    turns[owner] += 1
        for reader, had in kept_turns.items():
            if len(had) > room[reader]:
                had.sort(key=lambda entry: entry[:2])
                loose.extend((topic, partition) for _, _, topic, partition in had[room[reader] :])
                del had[room[reader] :]
            room[reader] -= len(had)
            for _, _, topic, partition in had:
                yield reader, topic, partition
        # Neighbouring partitions go to different members, for the same reason.
        loose.sort()
        waiting = deque(reader for reader in self.readers if room[reader])
        for topic, partition in loose:
            reader = waiting.popleft()
            yield reader, topic, partition
            room[reader] -= 1
            if room[reader]:
                waiting.append(reader)
