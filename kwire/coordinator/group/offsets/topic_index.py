"""Index of the topics that have offsets in a shard. It finds the groups of a topic without a scan of all groups."""

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class TopicIndex:
    """Counts the committed and pending offsets of each topic name, by group and by topic id.

    When a topic is deleted and created again, offsets with the old topic id and with the new one may exist at the same
    time.
    """

    __slots__ = ("_groups", "_ids")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, int]] = {}
        self._ids: dict[str, dict[bytes, int]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._groups

    def topics(self) -> list[str]:
        return list(self._groups)

    def topic_ids(self, topic: str) -> frozenset[bytes]:
        return frozenset(self._ids.get(topic, ()))

    def groups_of(self, topic: str) -> list[str]:
        return list(self._groups.get(topic, ()))

    def add(self, topic: str, group_id: str, topic_id: bytes) -> None:
        groups = self._groups.setdefault(topic, {})
        groups[group_id] = groups.get(group_id, 0) + 1
        ids = self._ids.setdefault(topic, {})
        ids[topic_id] = ids.get(topic_id, 0) + 1

    def remove(self, topic: str, group_id: str, topic_id: bytes) -> None:
        _decrement(self._groups, topic, group_id)
        _decrement(self._ids, topic, topic_id)


def _decrement(counts_by_topic: dict[str, dict[K, int]], topic: str, key: K) -> None:
    counts = counts_by_topic[topic]
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
        if not counts:
            del counts_by_topic[topic]
