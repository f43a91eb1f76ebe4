"""The range strategy: the partitions of each topic are divided into contiguous ranges, one for each subscriber.

It works as in Kafka. If all members subscribe to the same topics and these have the same number of partitions, a member
gets the same partition numbers of each topic. So a member can join the records of these topics. The disadvantage is a
worse balance: in every topic, the first members get the remainder of the division.
"""

from collections.abc import Mapping

from kwire.coordinator.assignment.subscription import MemberSubscription, Topic, readerships, sorted_member_ids


def assign_range(
    members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
) -> dict[str, dict[Topic, list[int]]]:
    member_ids = sorted_member_ids(members)
    assignment: list[dict[Topic, list[int]]] = [{} for _ in member_ids]
    for readership in readerships([members[member_id] for member_id in member_ids], partition_counts):
        for topic in readership.topics:
            count = partition_counts[topic]
            share, longer = divmod(count, len(readership.readers))
            start = 0
            for position, reader in enumerate(readership.readers):
                end = start + share + (position < longer)
                if start == end:
                    break
                assignment[reader][topic] = list(range(start, end))
                start = end
    return dict(zip(member_ids, assignment, strict=True))
