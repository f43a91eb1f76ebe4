"""round_robin: all partitions of all topics are dealt out one by one; who does not subscribe to a topic is passed over.

As Kafka's client does it. Even to one partition when all members subscribe alike, but blind to what they had before.
"""

from bisect import bisect_left
from collections.abc import Mapping

from kwire.coordinator.assignment.subscription import MemberSubscription, Topic, in_order, readerships


def assign_round_robin(
    members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
) -> dict[str, dict[Topic, list[int]]]:
    member_ids = in_order(members)
    assignment: list[dict[Topic, list[int]]] = [{} for _ in member_ids]
    readers_of = {
        topic: readership.readers
        for readership in readerships([members[member_id] for member_id in member_ids], partition_counts)
        for topic in readership.topics
    }
    next_position = 0
    for topic in sorted(readers_of):
        readers = readers_of[topic]
        place = bisect_left(readers, next_position)
        for partition in range(partition_counts[topic]):
            reader = readers[place % len(readers)]
            assignment[reader].setdefault(topic, []).append(partition)
            place += 1
            next_position = reader + 1
    return dict(zip(member_ids, assignment, strict=True))
