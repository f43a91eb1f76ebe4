"""Which topics the offsets of a shard are of, so that the end of a topic is no reason to look at every group."""

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class TopicUse:
    """Counts offsets, committed or pending, by topic: those of each group, and those of each topic id.

    A name may have belonged to several topics, and offsets committed for each of them may be there at once.
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
        _take_one(self._groups, topic, group_id)
        _take_one(self._ids, topic, topic_id)


def _take_one(counts_by_topic: dict[str, dict[K, int]], topic: str, key: K) -> None:
    counts = counts_by_topic[topic]
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
        if not counts:
            del counts_by_topic[topic]
