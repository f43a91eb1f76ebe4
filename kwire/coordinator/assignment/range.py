"""range: each topic on its own is cut into runs of neighbouring partitions, one run for each subscriber.

As Kafka's: when all members read the same topics and these have equally many partitions, a member gets the same
partition numbers of each, so streams can be joined. The price is balance: what does not divide evenly goes to the
same first members, topic after topic.
"""

from collections.abc import Mapping

from kwire.coordinator.assignment.subscription import MemberSubscription, Topic, in_order, readerships


def assign_range(
    members: Mapping[str, MemberSubscription[Topic]], partition_counts: Mapping[Topic, int], /
) -> dict[str, dict[Topic, list[int]]]:
    member_ids = in_order(members)
    assignment: list[dict[Topic, list[int]]] = [{} for _ in member_ids]
    for readership in readerships([members[member_id] for member_id in member_ids], partition_counts):
        for topic in readership.topics:
            count = partition_counts[topic]
            share, longer = divmod(count, len(readership.readers))
            start = 0
            for place, reader in enumerate(readership.readers):
                end = start + share + (place < longer)
                if start == end:
                    break
                assignment[reader][topic] = list(range(start, end))
                start = end
    return dict(zip(member_ids, assignment, strict=True))
