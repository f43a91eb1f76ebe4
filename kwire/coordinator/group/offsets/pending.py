"""Offsets that were committed in transactions which have not ended yet.

They lie in the log like any other, and count from where they lie: when their transaction is committed, one that a later
commit to the same partition has overtaken is dropped, as if it had counted from the beginning. So it makes no
difference which of two transactions ends first, and a compacted log, which keeps the later one, tells the same.
"""

from collections.abc import Iterator, KeysView
from typing import NamedTuple

from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.topic_use import TopicUse


class Place(NamedTuple):
    group_id: str
    topic: str
    partition: int


class PendingOffset:
    __slots__ = ("committed", "is_overtaken")

    def __init__(self, committed: CommittedOffset) -> None:
        self.committed = committed
        # A commit that lies behind it in the log counts already.
        self.is_overtaken = False


# Of one place, by producer, in the order of the log.
ByProducer = dict[int, PendingOffset]


class PendingOffsets:
    """All of one shard. Changes only when a record is applied."""

    __slots__ = ("_by_group", "_places", "_use")

    def __init__(self, use: TopicUse) -> None:
        self._by_group: dict[str, dict[str, dict[int, ByProducer]]] = {}
        # Where each producer has any, in the order in which it came there.
        self._places: dict[int, dict[Place, None]] = {}
        self._use = use

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        return bool(self._by_group) and bool(self._at(group_id, topic, partition))

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def group_ids(self) -> KeysView[str]:
        return self._by_group.keys()

    def topics_of(self, group_id: str) -> KeysView[str]:
        return self._by_group.get(group_id, {}).keys()

    def of_topic(self, group_id: str, topic: str) -> Iterator[tuple[int, list[CommittedOffset]]]:
        """Each partition, and what is pending for it, the latest last."""
        for partition, by_producer in self._by_group.get(group_id, {}).get(topic, {}).items():
            yield partition, [one.committed for one in by_producer.values()]

    def of_producer(self, producer_id: int) -> list[Place]:
        return list(self._places.get(producer_id, ()))

    def producer_ids(self) -> list[int]:
        return list(self._places)

    def put(self, producer_id: int, place: Place, committed: CommittedOffset) -> None:
        self._take(producer_id, place)
        topics = self._by_group.setdefault(place.group_id, {})
        by_producer = topics.setdefault(place.topic, {}).setdefault(place.partition, {})
        by_producer[producer_id] = PendingOffset(committed)
        self._places.setdefault(producer_id, {})[place] = None
        self._use.add(place.topic, place.group_id, committed.topic_id)

    def overtake(self, group_id: str, topic: str, partition: int) -> None:
        """Something was committed behind all that is pending here. It stays pending, but will not count."""
        for one in self._at(group_id, topic, partition).values():
            one.is_overtaken = True

    def drop(self, group_id: str, topic: str, partition: int) -> None:
        """What was committed here has been deleted, and so is what would have been."""
        place = Place(group_id, topic, partition)
        for producer_id in list(self._at(*place)):
            self._take(producer_id, place)

    def end(self, producer_id: int, is_commit: bool) -> list[tuple[Place, CommittedOffset]]:
        """The transaction is over: what counts of it, if it was committed."""
        counting = []
        for place in self.of_producer(producer_id):
            if is_commit:
                by_producer = self._at(*place)
                ended = by_producer[producer_id]
                if not ended.is_overtaken:
                    counting.append((place, ended.committed))
                    for other_id, other in by_producer.items():
                        if other_id == producer_id:
                            break
                        other.is_overtaken = True
            self._take(producer_id, place)
        return counting

    def _at(self, group_id: str, topic: str, partition: int) -> ByProducer:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition, {})

    def _take(self, producer_id: int, place: Place) -> None:
        """Forget what the producer has pending here, if anything, and all that is empty without it."""
        group_id, topic, partition = place
        by_producer = self._at(*place)
        taken = by_producer.pop(producer_id, None)
        if taken is None:
            return
        self._use.remove(topic, group_id, taken.committed.topic_id)
        places = self._places[producer_id]
        del places[place]
        if not places:
            del self._places[producer_id]
        if not by_producer:
            topics = self._by_group[group_id]
            del topics[topic][partition]
            if not topics[topic]:
                del topics[topic]
                if not topics:
                    del self._by_group[group_id]
