"""The traffic of topics since the start of the node, for metrics.

Partitions count their traffic themselves. Before each scrape, and whenever a log is parked, the counts are added here.
Topics have a count of their own in the order of their first traffic, up to a maximum. All further topics share one
count, and all rooms share another, because there may be a hundred thousand rooms.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from kwire.broker.partition import Partition
from kwire.broker.partition.traffic import Traffic

__all__ = ["TopicTraffic", "Traffic"]

NOTHING = Traffic()


class TopicTraffic:
    """The traffic of topics. Every count only rises, until its topic is deleted."""

    def __init__(self, topics_max: int) -> None:
        self._topics_max = topics_max
        self.by_topic: dict[str, Traffic] = {}
        self.of_rooms = NOTHING
        self.of_other_topics = NOTHING

    def add_from(self, partitions: Iterable[Partition]) -> None:
        """Add the traffic of these partitions since the last call."""
        for partition in partitions:
            traffic = partition.take_traffic()
            if traffic != NOTHING:
                self._add(partition, traffic)

    def _add(self, partition: Partition, traffic: Traffic) -> None:
        name = partition.topic_name
        known = self.by_topic.get(name)
        if partition.settings.is_room:
            self.of_rooms = self.of_rooms.plus(traffic)
        elif known is not None or len(self.by_topic) < self._topics_max:
            self.by_topic[name] = traffic if known is None else known.plus(traffic)
        else:
            self.of_other_topics = self.of_other_topics.plus(traffic)

    def total(self) -> Traffic:
        """Return the traffic of all topics that exist."""
        return Traffic(*map(sum, zip(self.of_rooms, self.of_other_topics, *self.by_topic.values(), strict=True)))

    def forget(self, name: str) -> None:
        """Remove the count of a deleted topic. Another topic can have its place."""
        self.by_topic.pop(name, None)


class TrafficRounds:
    """Adds the traffic of all open partitions in turns, so that one call takes a bounded time."""

    def __init__(self, open_partitions: Iterable[Partition], traffic: TopicTraffic) -> None:
        self._open_partitions = open_partitions
        self._traffic = traffic
        self._left: Iterator[Partition] = iter(())

    def add(self, partitions_max: int) -> None:
        """Add the traffic of the next `partitions_max` partitions; after the last one, begin again with the first."""
        some = list(islice(self._left, partitions_max))
        if len(some) < partitions_max:
            self._left = iter(list(self._open_partitions))
            some += islice(self._left, partitions_max - len(some))
        # A partition that was deleted since would add a topic that does not exist.
        self._traffic.add_from(one for one in some if not one.is_forgotten)
