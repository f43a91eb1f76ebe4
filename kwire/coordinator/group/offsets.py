"""Committed offsets: how far each group has come in each partition."""

from collections.abc import Iterable, Iterator, KeysView

from kwire.coordinator.group.commands import (
    CommitOffsets,
    CommittedOffset,
    FetchedTopic,
    OffsetToCommit,
    TopicToFetch,
)
from kwire.coordinator.group.records import OffsetCommitKey, OffsetCommitRecord, OffsetCommitValue, encode_offset_commit
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.runtime import KeyValue, Moment, Result
from kwire.errors import ErrorCode

# A client may ask for any time; what is longer than this is as good as for ever, and an end can be reckoned.
RETENTION_MS_MAX = 1 << 62


class CommittedOffsets:
    """All offsets of one shard, by group, topic and partition. Changes only in `apply`."""

    __slots__ = ("_by_group", "_counts_by_topic", "_groups_by_topic", "_settings")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        # Who has offsets in a topic, so that the end of a topic is no reason to look at every group.
        self._groups_by_topic: dict[str, dict[str, None]] = {}
        # How many offsets were committed under which topic id: a name may have belonged to several topics.
        self._counts_by_topic: dict[str, dict[bytes, int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._by_group

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        return partition in self._by_group.get(group_id, {}).get(topic, {})

    def count(self, group_id: str) -> int:
        return sum(map(len, self._by_group.get(group_id, {}).values()))

    def group_ids(self) -> KeysView[str]:
        return self._by_group.keys()

    def has_topic(self, topic: str) -> bool:
        return topic in self._groups_by_topic

    def topics(self) -> list[str]:
        return list(self._groups_by_topic)

    def topic_ids(self, topic: str) -> frozenset[bytes]:
        return frozenset(self._counts_by_topic.get(topic, ()))

    def groups_of(self, topic: str) -> list[str]:
        return list(self._groups_by_topic.get(topic, ()))

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All offsets of a group: topic, partition, and what was committed."""
        for topic, by_partition in self._by_group.get(group_id, {}).items():
            for partition, committed in by_partition.items():
                yield topic, partition, committed

    def topics_of(self, group_id: str) -> list[str]:
        return list(self._by_group.get(group_id, ()))

    def topic_count(self, group_id: str, topic: str) -> int:
        return len(self._by_group.get(group_id, {}).get(topic, {}))

    def of_topic(self, group_id: str, topic: str) -> Iterator[tuple[int, CommittedOffset]]:
        yield from self._by_group.get(group_id, {}).get(topic, {}).items()

    def commit(self, command: CommitOffsets, moment: Moment, result: Result) -> None:
        """Store what may be stored; the caller has checked that this client may commit at all."""
        errors = []
        for asked in command.offsets:
            if len(asked.metadata) > self._settings.offset_metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                result.records.append(_to_record(command, asked, moment))
        result.reply(command, errors)

    def fetch(self, group_id: str, topics: Iterable[TopicToFetch] | None) -> list[FetchedTopic]:
        committed = self._by_group.get(group_id, {})
        if topics is None:
            return [FetchedTopic(topic, sorted(by_partition.items())) for topic, by_partition in committed.items()]
        fetched = []
        for asked in topics:
            by_partition = committed.get(asked.topic, {})
            offsets = [(partition, by_partition.get(partition)) for partition in asked.partitions]
            fetched.append(FetchedTopic(asked.topic, offsets))
        return fetched

    def apply(self, record: OffsetCommitRecord) -> None:
        key, value = record.key, record.value
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            return
        topics = self._by_group.setdefault(key.group, {})
        by_partition = topics.get(key.topic)
        if by_partition is None:
            by_partition = topics[key.topic] = {}
            self._groups_by_topic.setdefault(key.topic, {})[key.group] = None
        before = by_partition.get(key.partition)
        by_partition[key.partition] = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )
        if before is None or before.topic_id != value.topic_id:
            self._count(key.topic, value.topic_id, 1)
            if before is not None:
                self._count(key.topic, before.topic_id, -1)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        by_partition = topics.get(topic, {})
        removed = by_partition.pop(partition, None)
        if removed is None:
            return
        self._count(topic, removed.topic_id, -1)
        if not by_partition:
            del topics[topic]
            groups = self._groups_by_topic[topic]
            del groups[group_id]
            if not groups:
                del self._groups_by_topic[topic]
            if not topics:
                del self._by_group[group_id]

    def _count(self, topic: str, topic_id: bytes, more: int) -> None:
        counts = self._counts_by_topic.setdefault(topic, {})
        counts[topic_id] = counts.get(topic_id, 0) + more
        if not counts[topic_id]:
            del counts[topic_id]
            if not counts:
                del self._counts_by_topic[topic]


def offset_tombstone(group_id: str, topic: str, partition: int) -> KeyValue:
    return encode_offset_commit(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _to_record(command: CommitOffsets, asked: OffsetToCommit, moment: Moment) -> KeyValue:
    retention_ms = min(command.retention_time_ms, RETENTION_MS_MAX)
    return encode_offset_commit(
        OffsetCommitKey(group=command.group_id, topic=asked.topic, partition=asked.partition),
        OffsetCommitValue(
            offset=asked.offset,
            leader_epoch=asked.leader_epoch,
            metadata=asked.metadata,
            commit_timestamp=moment.wall_ms,
            expire_timestamp=-1 if retention_ms < 0 else moment.wall_ms + retention_ms,
            topic_id=asked.topic_id,
        ),
    )
