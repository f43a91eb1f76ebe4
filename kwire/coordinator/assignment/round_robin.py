"""The round-robin strategy: the partitions of all topics are assigned to the members in turn.

It works as in Kafka's client. Members that do not subscribe to a topic are skipped. If all members have the same
subscription, their numbers of partitions differ by at most one. The previous assignment is ignored.
"""

from bisect import bisect_left
from collections.abc import Mapping

from kwire.coordinator.assignment.subscription import MemberSubscription, Topic, readerships, sorted_member_ids


def assign_round_robin(
    members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
) -> dict[str, dict[Topic, list[int]]]:
    member_ids = sorted_member_ids(members)
    assignment: list[dict[Topic, list[int]]] = [{} for _ in member_ids]
    readers_of = {
        topic: readership.readers
        for readership in readerships([members[member_id] for member_id in member_ids], partition_counts)
        for topic in readership.topics
    }
    next_position = 0
    for topic in sorted(readers_of):
        readers = readers_of[topic]
        position = bisect_left(readers, next_position)
        for partition in range(partition_counts[topic]):
            reader = readers[position % len(readers)]
            assignment[reader].setdefault(topic, []).append(partition)
            position += 1
            next_position = reader + 1
    return dict(zip(member_ids, assignment, strict=True))
