"""Kafka's range assignor: each member gets a range of the partitions of each topic."""

from collections.abc import Mapping, Sequence

NAME = "range"


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Return the partitions of each member, by topic. `subscriptions` are the topics of each member id."""
    assigned: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    topics = sorted({topic for topics in subscriptions.values() for topic in topics})
    for topic in topics:
        members = sorted(member for member, wanted in subscriptions.items() if topic in wanted)
        share, extra = divmod(partition_counts.get(topic, 0), len(members))
        first = 0
        for number, member in enumerate(members):
            size = share + (number < extra)
            if size:
                assigned[member][topic] = list(range(first, first + size))
            first += size
    return assigned
