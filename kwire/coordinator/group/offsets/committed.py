"""Committed offsets: how far each group has come in each partition."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.commands import (
    NO_LEADER_EPOCH,
    CommitOffsets,
    CommittedOffset,
    FetchedTopic,
    OffsetToCommit,
    TopicToFetch,
)
from kwire.coordinator.group.pending import PendingOffsets, Place
from kwire.coordinator.group.records import (
    OffsetCommitKey,
    OffsetCommitRecord,
    OffsetCommitValue,
    encode_committed_offset,
    encode_offset_commit,
)
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.topic_use import TopicUse
from kwire.errors import ErrorCode
from kwire.wire.types import ZERO_UUID

# A client may ask for any time; what is longer than this is as good as for ever, and an end can be reckoned.
RETENTION_MS_MAX = 1 << 62


class CommittedOffsets:
    """All offsets of one shard, by group, topic and partition. Changes only when a record is applied."""

    __slots__ = ("_by_group", "_settings", "_use", "pending")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._use = TopicUse()
        # Those of transactions that have not ended. A group that has nothing else is a group already.
        self.pending = PendingOffsets(self._use)

    @property
    def is_empty(self) -> bool:
        return not self._by_group and not self.pending

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group or self.pending.has_group(group_id)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset to delete, be it only a pending one."""
        is_committed = partition in self._by_group.get(group_id, {}).get(topic, {})
        return is_committed or self.pending.has(group_id, topic, partition)

    def count(self, group_id: str) -> int:
        """How many are committed."""
        return sum(map(len, self._by_group.get(group_id, {}).values()))

    def group_ids(self) -> AbstractSet[str]:
        return self._by_group.keys() | self.pending.group_ids() if self.pending else self._by_group.keys()

    def has_topic(self, topic: str) -> bool:
        return topic in self._use

    def topics(self) -> list[str]:
        return self._use.topics()

    def topic_ids(self, topic: str) -> frozenset[bytes]:
        """Under which ids offsets were committed, or are pending."""
        return self._use.topic_ids(topic)

    def groups_of(self, topic: str) -> list[str]:
        return self._use.groups_of(topic)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All that a group has committed: topic, partition, and what."""
        for topic, by_partition in self._by_group.get(group_id, {}).items():
            for partition, committed in by_partition.items():
                yield topic, partition, committed

    def topics_of(self, group_id: str) -> list[str]:
        return list(self._by_group.get(group_id, ()))

    def topic_count(self, group_id: str, topic: str) -> int:
        return len(self._by_group.get(group_id, {}).get(topic, {}))

    def of_topic(self, group_id: str, topic: str) -> Iterator[tuple[int, CommittedOffset]]:
        yield from self._by_group.get(group_id, {}).get(topic, {}).items()

    # Committed or pending: what a deletion takes out

    def places(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Every topic and partition for which something is committed or pending, once."""
        topics = self._by_group.get(group_id, {})
        for topic in (*topics, *(one for one in self.pending.topics_of(group_id) if one not in topics)):
            for partition, _ in self.ids_by_partition(group_id, topic):
                yield topic, partition

    def place_count(self, group_id: str) -> int:
        if not self.pending.has_group(group_id):
            return self.count(group_id)
        return sum(1 for _ in self.places(group_id))

    def topic_place_count(self, group_id: str, topic: str) -> int:
        by_partition = self._by_group.get(group_id, {}).get(topic, {})
        only_pending = (one for one, _ in self.pending.of_topic(group_id, topic) if one not in by_partition)
        return len(by_partition) + sum(1 for _ in only_pending)

    def ids_by_partition(self, group_id: str, topic: str) -> Iterator[tuple[int, AbstractSet[bytes]]]:
        """For each partition, the topic ids under which something is committed or pending."""
        by_partition = self._by_group.get(group_id, {}).get(topic, {})
        pending = {
            partition: {one.topic_id for one in found} for partition, found in self.pending.of_topic(group_id, topic)
        }
        for partition, committed in by_partition.items():
            yield partition, {committed.topic_id, *pending.get(partition, ())}
        for partition, topic_ids in pending.items():
            if partition not in by_partition:
                yield partition, topic_ids

    # Deciding

    def commit(self, command: CommitOffsets, moment: Moment, result: Result) -> None:
        """Store what may be stored; the caller has checked that this client may commit at all."""
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
        """Whoever asks for stable offsets is not told one that a transaction may be about to replace."""
        unstable = frozenset(
            partition for partition, _ in fetched.offsets if self.pending.has(group_id, fetched.topic, partition)
        )
        stable = [(partition, None if partition in unstable else found) for partition, found in fetched.offsets]
        return FetchedTopic(fetched.topic, stable, unstable)

    # What the log says

    def apply(self, record: OffsetCommitRecord) -> None:
        key, value = record.key, record.value
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            if self.pending:
                self.pending.drop(key.group, key.topic, key.partition)
            return
        self.apply_committed(Place(key.group, key.topic, key.partition), _committed(value))

    def apply_committed(self, place: Place, committed: CommittedOffset) -> None:
        """As `apply`, for a commit whose record need not be decoded."""
        self._put(*place, committed)
        if self.pending:
            self.pending.overtake(*place)

    def apply_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        self.pending.put(producer_id, Place(key.group, key.topic, key.partition), _committed(value))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for place, committed in self.pending.end(producer_id, is_commit):
            self._put(*place, committed)

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topics = self._by_group.setdefault(group_id, {})
        by_partition = topics.get(topic)
        if by_partition is None:
            by_partition = topics[topic] = {}
        before = by_partition.get(partition)
        by_partition[partition] = committed
        if before is None or before.topic_id != committed.topic_id:
            self._use.add(topic, group_id, committed.topic_id)
            if before is not None:
                self._use.remove(topic, group_id, before.topic_id)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        by_partition = topics.get(topic, {})
        removed = by_partition.pop(partition, None)
        if removed is None:
            return
        self._use.remove(topic, group_id, removed.topic_id)
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
    topic, partition, offset, leader_epoch, metadata, topic_id = asked
    now_ms, group_id = moment.wall_ms, command.group_id
    if command.retention_time_ms < 0:
        committed = CommittedOffset(offset, leader_epoch, metadata, now_ms, -1, topic_id)
        record = encode_committed_offset(group_id, topic, partition, offset, leader_epoch, metadata, now_ms, topic_id)
    else:
        # The version of the record that has an expiry has neither a leader epoch nor a topic id.
        expire_ms = now_ms + min(command.retention_time_ms, RETENTION_MS_MAX)
        committed = CommittedOffset(offset, NO_LEADER_EPOCH, metadata, now_ms, expire_ms, ZERO_UUID)
        record = encode_offset_commit(
            OffsetCommitKey(group=group_id, topic=topic, partition=partition),
            OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=now_ms, expire_timestamp=expire_ms),
        )
    result.put_decoded(record, (Place(group_id, topic, partition), committed))
