"""Committed offsets: how far each group has come in each partition."""

from collections.abc import Iterable

from kwire.coordinator.group.commands import (
    CommitOffsets,
    CommittedOffset,
    FetchedTopic,
    OffsetToCommit,
    TopicToFetch,
)
from kwire.coordinator.group.records import OffsetCommitKey, OffsetCommitRecord, OffsetCommitValue, encode_offset_commit
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.runtime import Moment, Result
from kwire.errors import ErrorCode


class CommittedOffsets:
    """All offsets of one shard, by group, topic and partition. Changes only in `apply`."""

    __slots__ = ("_by_group", "_settings")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

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
        if value is not None:
            topics = self._by_group.setdefault(key.group, {})
            topics.setdefault(key.topic, {})[key.partition] = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
            return
        by_partition = self._by_group.get(key.group, {}).get(key.topic, {})
        by_partition.pop(key.partition, None)
        if not by_partition and key.group in self._by_group:
            self._by_group[key.group].pop(key.topic, None)
            if not self._by_group[key.group]:
                del self._by_group[key.group]


def _to_record(command: CommitOffsets, asked: OffsetToCommit, moment: Moment) -> tuple[bytes, bytes | None]:
    retention_ms = command.retention_time_ms
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
