"""Pending offsets: offsets that were committed in transactions that have not ended yet.

The committed offset of a partition comes from its last effective commit record in the log, even if the transaction of
an earlier record ends later. So when a transaction is committed, its offset is dropped if a later record for the same
partition has already taken effect. A compacted log, which contains only the later record, gives the same result.
"""

from collections.abc import Iterator, KeysView
from typing import NamedTuple

from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.group.offsets.topic_index import TopicIndex

# Group id, topic and partition, as in OffsetKey. A plain tuple, because commits outside transactions are frequent and a
# named tuple takes several times as long to create.
PlainOffsetKey = tuple[str, str, int]


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class PendingOffset:
    __slots__ = ("committed", "is_superseded")

    def __init__(self, committed: CommittedOffset) -> None:
        self.committed = committed
        # Whether a later record for the same partition has taken effect.
        self.is_superseded = False


# The pending offsets of one partition, by producer id, in log order.
ByProducer = dict[int, PendingOffset]


class PendingOffsets:
    """The pending offsets of one shard. They change only when a record is applied."""

    __slots__ = ("_keys", "_topic_index", "by_group")

    def __init__(self, topic_index: TopicIndex) -> None:
        # By group, topic and partition. Other modules only read it.
        self.by_group: dict[str, dict[str, dict[int, ByProducer]]] = {}
        # The keys of each producer's pending offsets, in log order.
        self._keys: dict[int, dict[OffsetKey, None]] = {}
        self._topic_index = topic_index

    def __bool__(self) -> bool:
        return bool(self.by_group)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        return bool(self.by_group) and bool(self._at(group_id, topic, partition))

    def has_group(self, group_id: str) -> bool:
        return group_id in self.by_group

    def group_ids(self) -> KeysView[str]:
        return self.by_group.keys()

    def topics_of(self, group_id: str) -> KeysView[str]:
        return self.by_group.get(group_id, {}).keys()

    def of_topic(self, group_id: str, topic: str) -> Iterator[tuple[int, list[CommittedOffset]]]:
        """Yield each partition with its pending offsets, in log order."""
        for partition, by_producer in self.by_group.get(group_id, {}).get(topic, {}).items():
            yield partition, [one.committed for one in by_producer.values()]

    def of_producer(self, producer_id: int) -> list[OffsetKey]:
        return list(self._keys.get(producer_id, ()))

    def producer_ids(self) -> list[int]:
        return list(self._keys)

    def put(self, producer_id: int, plain_key: PlainOffsetKey, committed: CommittedOffset) -> None:
        key = OffsetKey(*plain_key)
        self._remove(producer_id, key)
        group_id, topic, partition = key
        topics = self.by_group.setdefault(group_id, {})
        by_producer = topics.setdefault(topic, {}).setdefault(partition, {})
        by_producer[producer_id] = PendingOffset(committed)
        self._keys.setdefault(producer_id, {})[key] = None
        self._topic_index.add(topic, group_id, committed.topic_id)

    def supersede(self, group_id: str, topic: str, partition: int) -> None:
        """Mark the pending offsets of a partition as superseded, because a later record has taken effect.

        They will be dropped when their transactions end.
        """
        for one in self._at(group_id, topic, partition).values():
            one.is_superseded = True

    def drop(self, group_id: str, topic: str, partition: int) -> None:
        """Remove the pending offsets of a partition, because its committed offset was deleted."""
        key = OffsetKey(group_id, topic, partition)
        for producer_id in list(self._at(*key)):
            self._remove(producer_id, key)

    def end(self, producer_id: int, is_commit: bool) -> list[tuple[OffsetKey, CommittedOffset]]:
        """Remove a producer's pending offsets, because its transaction has ended. Returns those that take effect.

        After an abort, no offset takes effect.
        """
        effective = []
        for key in self.of_producer(producer_id):
            if is_commit:
                by_producer = self._at(*key)
                ended = by_producer[producer_id]
                if not ended.is_superseded:
                    effective.append((key, ended.committed))
                    for other_id, other in by_producer.items():
                        if other_id == producer_id:
                            break
                        other.is_superseded = True
            self._remove(producer_id, key)
        return effective

    def _at(self, group_id: str, topic: str, partition: int) -> ByProducer:
        return self.by_group.get(group_id, {}).get(topic, {}).get(partition, {})

    def _remove(self, producer_id: int, key: OffsetKey) -> None:
        """Remove the producer's pending offset, if there is one, and the containers that become empty."""
        group_id, topic, partition = key
        by_producer = self._at(*key)
        taken = by_producer.pop(producer_id, None)
        if taken is None:
            return
        self._topic_index.remove(topic, group_id, taken.committed.topic_id)
        keys = self._keys[producer_id]
        del keys[key]
        if not keys:
            del self._keys[producer_id]
        if not by_producer:
            topics = self.by_group[group_id]
            del topics[topic][partition]
            if not topics[topic]:
                del topics[topic]
                if not topics:
                    del self.by_group[group_id]
