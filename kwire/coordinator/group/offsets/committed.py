"""The committed offsets of a shard. `kwire/coordinator/group/cleanup.py` removes expired ones."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.commands import (
    NO_LEADER_EPOCH,
    CommitOffsets,
    CommittedOffset,
    FetchedTopic,
    OffsetToCommit,
    TopicToFetch,
)
from kwire.coordinator.group.offsets.pending import PendingOffsets, PlainOffsetKey
from kwire.coordinator.group.offsets.topic_index import TopicIndex
from kwire.coordinator.group.records import (
    OffsetCommitKey,
    OffsetCommitRecord,
    OffsetCommitValue,
    encode_committed_offset,
    encode_offset_commit,
)
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode
from kwire.wire.types import ZERO_UUID

# The maximum retention time of an offset. A client may request any time, and a longer time is reduced to this, so that
# the expiry time fits into 64 bits.
RETENTION_MS_MAX = 1 << 62


class CommittedOffsets:
    """All offsets of one shard, by group, topic and partition. They change only when a record is applied."""

    __slots__ = ("_by_group", "_settings", "_topic_index", "pending")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._topic_index = TopicIndex()
        # The offsets of open transactions. A group exists even if it has only pending offsets.
        self.pending = PendingOffsets(self._topic_index)

    @property
    def is_empty(self) -> bool:
        return not self._by_group and not self.pending

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group or self.pending.has_group(group_id)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether the partition has a committed or pending offset."""
        is_committed = partition in self._by_group.get(group_id, {}).get(topic, {})
        return is_committed or self.pending.has(group_id, topic, partition)

    def count(self, group_id: str) -> int:
        """Return the number of committed offsets of a group."""
        return sum(map(len, self._by_group.get(group_id, {}).values()))

    def group_ids(self) -> AbstractSet[str]:
        return self._by_group.keys() | self.pending.group_ids() if self.pending else self._by_group.keys()

    def has_topic(self, topic: str) -> bool:
        return topic in self._topic_index

    def topics(self) -> list[str]:
        return self._topic_index.topics()

    def topic_ids(self, topic: str) -> frozenset[bytes]:
        """Return the topic ids of all committed and pending offsets of this topic name."""
        return self._topic_index.topic_ids(topic)

    def groups_of(self, topic: str) -> list[str]:
        return self._topic_index.groups_of(topic)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yield (topic, partition, committed offset) for each committed offset of a group."""
        for topic, by_partition in self._by_group.get(group_id, {}).items():
            for partition, committed in by_partition.items():
                yield topic, partition, committed

    def topics_of(self, group_id: str) -> list[str]:
        return list(self._by_group.get(group_id, ()))

    def topic_count(self, group_id: str, topic: str) -> int:
        return len(self._by_group.get(group_id, {}).get(topic, {}))

    def of_topic(self, group_id: str, topic: str) -> Iterator[tuple[int, CommittedOffset]]:
        yield from self._by_group.get(group_id, {}).get(topic, {}).items()

    # Committed and pending offsets together: a deletion removes both

    def keys(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Yield (topic, partition) for each partition that has a committed or pending offset, without duplicates."""
        topics = self._by_group.get(group_id, {})
        for topic in (*topics, *(one for one in self.pending.topics_of(group_id) if one not in topics)):
            for partition, _ in self.ids_by_partition(group_id, topic):
                yield topic, partition

    def key_count(self, group_id: str) -> int:
        if not self.pending.has_group(group_id):
            return self.count(group_id)
        return sum(1 for _ in self.keys(group_id))

    def topic_key_count(self, group_id: str, topic: str) -> int:
        by_partition = self._by_group.get(group_id, {}).get(topic, {})
        only_pending = (one for one, _ in self.pending.of_topic(group_id, topic) if one not in by_partition)
        return len(by_partition) + sum(1 for _ in only_pending)

    def ids_by_partition(self, group_id: str, topic: str) -> Iterator[tuple[int, AbstractSet[bytes]]]:
        """Yield each partition with the topic ids of its committed and pending offsets."""
        by_partition = self._by_group.get(group_id, {}).get(topic, {})
        pending = {
            partition: {one.topic_id for one in found} for partition, found in self.pending.of_topic(group_id, topic)
        }
        for partition, committed in by_partition.items():
            yield partition, {committed.topic_id, *pending.get(partition, ())}
        for partition, topic_ids in pending.items():
            if partition not in by_partition:
                yield partition, topic_ids

    # Commands

    def commit(self, command: CommitOffsets, moment: Moment, result: Result) -> None:
        """Write records for the offsets whose metadata is not too large.

        The caller has checked that the client may commit.
        """
        errors = []
        metadata_max = self._settings.offset_metadata_max_bytes
        for asked in command.offsets:
            if len(asked.metadata) > metadata_max:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                _put_record(command, asked, moment, result)
        result.transaction = command.transaction
        result.reply(command, errors)

    def fetch(
        self, group_id: str, topics: Iterable[TopicToFetch] | None, require_stable: bool = False
    ) -> list[FetchedTopic]:
        committed = self._by_group.get(group_id, {})
        fetched = []
        if topics is None:
            for topic, by_partition in committed.items():
                fetched.append(FetchedTopic(topic, sorted(by_partition.items())))
        else:
            for asked in topics:
                by_partition = committed.get(asked.topic, {})
                offsets = [(partition, by_partition.get(partition)) for partition in asked.partitions]
                fetched.append(FetchedTopic(asked.topic, offsets))
        if require_stable and self.pending.has_group(group_id):
            return [self._without_unstable(group_id, one) for one in fetched]
        return fetched

    def _without_unstable(self, group_id: str, fetched: FetchedTopic) -> FetchedTopic:
        """Replace offsets by None if their partition has pending offsets: an open transaction may change them."""
        unstable = frozenset(
            partition for partition, _ in fetched.offsets if self.pending.has(group_id, fetched.topic, partition)
        )
        stable = [(partition, None if partition in unstable else found) for partition, found in fetched.offsets]
        return FetchedTopic(fetched.topic, stable, unstable)

    # Records

    def apply(self, record: OffsetCommitRecord) -> None:
        key, value = record.key, record.value
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            if self.pending:
                self.pending.drop(key.group, key.topic, key.partition)
            return
        self.apply_committed([((key.group, key.topic, key.partition), _committed(value))])

    def apply_committed(self, commits: Iterable[tuple[PlainOffsetKey, CommittedOffset]]) -> None:
        """Apply committed offsets as `apply` does. The offsets are already decoded."""
        for (group_id, topic, partition), committed in commits:
            self._put(group_id, topic, partition, committed)
            if self.pending.by_group:
                self.pending.supersede(group_id, topic, partition)

    def apply_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        self.pending.put(producer_id, (key.group, key.topic, key.partition), _committed(value))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for key, committed in self.pending.end(producer_id, is_commit):
            self._put(*key, committed)

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topics = self._by_group.setdefault(group_id, {})
        by_partition = topics.get(topic)
        if by_partition is None:
            by_partition = topics[topic] = {}
        before = by_partition.get(partition)
        by_partition[partition] = committed
        if before is None or before.topic_id != committed.topic_id:
            self._topic_index.add(topic, group_id, committed.topic_id)
            if before is not None:
                self._topic_index.remove(topic, group_id, before.topic_id)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        by_partition = topics.get(topic, {})
        removed = by_partition.pop(partition, None)
        if removed is None:
            return
        self._topic_index.remove(topic, group_id, removed.topic_id)
        if not by_partition:
            del topics[topic]
            if not topics:
                del self._by_group[group_id]


def offset_tombstone(group_id: str, topic: str, partition: int) -> KeyValue:
    return encode_offset_commit(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _committed(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _put_record(command: CommitOffsets, asked: OffsetToCommit, moment: Moment, result: Result) -> None:
    topic, partition, offset, metadata = asked.topic, asked.partition, asked.offset, asked.metadata
    now_ms, group_id = moment.wall_ms, command.group_id
    if command.retention_time_ms < 0:
        leader_epoch, topic_id = asked.leader_epoch, asked.topic_id
        committed = CommittedOffset(offset, leader_epoch, metadata, now_ms, -1, topic_id)
        record = encode_committed_offset(group_id, topic, partition, offset, leader_epoch, metadata, now_ms, topic_id)
    else:
        # The record version with an expiry time has neither a leader epoch nor a topic id.
        expire_ms = now_ms + min(command.retention_time_ms, RETENTION_MS_MAX)
        committed = CommittedOffset(offset, NO_LEADER_EPOCH, metadata, now_ms, expire_ms, ZERO_UUID)
        record = encode_offset_commit(
            OffsetCommitKey(group=group_id, topic=topic, partition=partition),
            OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=now_ms, expire_timestamp=expire_ms),
        )
    result.records.append(record)
    result.decoded.append(((group_id, topic, partition), committed))
