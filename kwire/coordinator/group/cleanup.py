"""Cleanup of a shard: removes expired offsets, offsets of deleted topics, and deleted groups.

A shard can have 100,000 groups, and a group can have 100,000 offsets. So a cleanup task runs in chunks. Each chunk runs
like a command of the state machine: its records are appended, then applied. Between two chunks, clients are served.
Each chunk uses the state at its start, so commits and joins between two chunks need no rollback. If the append of a
chunk's tombstones fails, the number of offsets stays the same. The next chunk detects this and does not retry. A
periodic task (expired offsets, deleted topics) skips these offsets, and its next run removes them. A group deletion
answers DeleteGroups with an error.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.commands import CommittedOffset, DeleteGroup
from kwire.coordinator.group.group_interface import Group
from kwire.coordinator.group.offsets.committed import CommittedOffsets, offset_tombstone
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.topics_view import TopicsView
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode
from kwire.wire.types import ZERO_UUID

# The time between two searches for offsets of deleted topics. Until these offsets are removed, they only use memory:
# OffsetFetch does not return an offset that was committed for an earlier topic of the same name.
TOPICS_CHECK_MS = 5_000
# The limits of one chunk. A chunk takes about five milliseconds (chunks of `concurrency/chunking.py` take about half a
# millisecond). The records of a chunk fit into one batch, even with the longest names.
CHUNK_GROUPS_MAX = 500
CHUNK_TOPICS_MAX = 500
CHUNK_OFFSETS_MAX = 5_000
CHUNK_RECORDS_MAX = 300
CHUNK_BYTES_MAX = 256 * 1024
# The pause between two chunks. It is as long as a chunk, so a long task takes at most half of the event loop's time.
PAUSE_MS = 5


class CleanupBudget:
    """The work that the current chunk may still do: groups, topics, offsets and bytes."""

    __slots__ = ("_bytes", "_groups", "_offsets", "_result", "_topics")

    def __init__(self, result: Result) -> None:
        self._result = result
        self._groups = CHUNK_GROUPS_MAX
        self._topics = CHUNK_TOPICS_MAX
        self._offsets = CHUNK_OFFSETS_MAX
        self._bytes = CHUNK_BYTES_MAX

    def has_room(self) -> bool:
        return (
            min(self._groups, self._topics, self._offsets, self._bytes) > 0
            and len(self._result.records) < CHUNK_RECORDS_MAX
        )

    def count_group(self) -> None:
        self._groups -= 1

    def count_topic(self) -> None:
        self._topics -= 1

    def count_offsets(self, count: int) -> None:
        self._offsets -= count

    def add(self, record: KeyValue) -> None:
        self._bytes -= len(record[0])
        self._result.records.append(record)


class CleanupTask(Protocol):
    """A cleanup task that runs in chunks."""

    def run(self, budget: CleanupBudget, moment: Moment, result: Result) -> bool:
        """Run one chunk, until the task is complete or the budget is used up. Return True if the task is complete."""
        ...


class ShardCleanup:
    """Runs the cleanup tasks of one shard, one after the other, and schedules the regular tasks."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        offsets: CommittedOffsets,
        settings: GroupSettings,
        topics: TopicsView | None,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._settings = settings
        self._topics = topics
        # Tasks that are not complete: at most one _ExpirationTask and one _DeletedTopicsTask, and one task for each
        # DeleteGroup command that waits for its answer.
        self._waiting: deque[CleanupTask] = deque()
        self._resume_ms = 0
        self._expiration_ms: int | None = None
        self._topics_check_ms: int | None = None
        self._checked_revision: int | None = None

    @property
    def wake_ms(self) -> int | None:
        if self._waiting:
            return self._resume_ms
        check_ms, expiration_ms = self._topics_check_ms, self._expiration_ms
        if check_ms is None or expiration_ms is None or expiration_ms <= check_ms or self._offsets.is_empty:
            return expiration_ms
        return check_ms

    def start(self, moment: Moment) -> None:
        """Schedule the first run of the regular tasks. Called when the shard has been loaded."""
        self._expiration_ms = moment.steady_ms + self._settings.offsets_retention_check_interval_ms
        if self._topics is not None:
            self._topics_check_ms = moment.steady_ms + TOPICS_CHECK_MS

    def delete_group(self, command: DeleteGroup, moment: Moment, result: Result) -> None:
        """Delete a group. Nearly always one chunk is enough; otherwise the task continues in later chunks."""
        task = _GroupDeletionTask(self._groups, self._offsets, command)
        if not task.run(CleanupBudget(result), moment, result):
            self._waiting.append(task)
            self._resume_ms = moment.steady_ms + PAUSE_MS

    def run_chunk(self, moment: Moment, result: Result) -> None:
        if not self._waiting:
            self._queue_due_tasks(moment)
        if self._waiting and self._waiting[0].run(CleanupBudget(result), moment, result):
            self._waiting.popleft()
        self._resume_ms = moment.steady_ms + PAUSE_MS

    def _queue_due_tasks(self, moment: Moment) -> None:
        """Add the regular tasks whose time has come to the waiting tasks."""
        now_ms = moment.steady_ms
        if self._expiration_ms is not None and self._expiration_ms <= now_ms:
            self._expiration_ms = now_ms + self._settings.offsets_retention_check_interval_ms
            self._waiting.append(_ExpirationTask(self._groups, self._offsets, self._settings))
        if self._topics is not None and self._topics_check_ms is not None and self._topics_check_ms <= now_ms:
            self._topics_check_ms = now_ms + TOPICS_CHECK_MS
            if self._topics.revision != self._checked_revision:
                self._checked_revision = self._topics.revision
                self._waiting.append(_DeletedTopicsTask(self._offsets, self._topics, self._recheck_later))

    def _recheck_later(self) -> None:
        """Let the next check run even if no topic changes until then, because the append of the tombstones may fail."""
        self._checked_revision = None


class _DeletedTopicsTask:
    """Removes the offsets of deleted topics."""

    def __init__(self, offsets: CommittedOffsets, topics: TopicsView, recheck_later: Callable[[], None]) -> None:
        self._offsets = offsets
        self._topics = topics
        self._recheck_later = recheck_later
        self._topics_left = deque(offsets.topics())
        # The groups that have not been processed yet, for the first topic in `_topics_left`.
        self._groups_left: deque[str] | None = None
        # Set if the last chunk ended in the middle of a group: the number of offsets that the group had then. If the
        # number is the same in the next chunk, the tombstones were not appended, and the group is skipped.
        self._size: int | None = None

    def run(self, budget: CleanupBudget, moment: Moment, result: Result) -> bool:
        while self._topics_left and budget.has_room():
            topic = self._topics_left[0]
            budget.count_topic()
            stale_ids = self._stale_ids(topic)
            if stale_ids and not self._drop(topic, stale_ids, budget):
                return False
            self._topics_left.popleft()
            self._groups_left = None
        return not self._topics_left

    def _stale_ids(self, topic: str) -> frozenset[bytes]:
        """Return the ids of deleted topics of this name for which offsets are stored.

        The oldest offset records have no topic id. Their offsets are kept while a topic of this name exists.
        """
        now = self._topics.find(topic)
        kept_ids = frozenset() if now is None else frozenset((now.topic_id, ZERO_UUID))
        return self._offsets.topic_ids(topic) - kept_ids

    def _drop(self, topic: str, stale_ids: frozenset[bytes], budget: CleanupBudget) -> bool:
        if self._groups_left is None:
            self._recheck_later()
            self._groups_left = deque(self._offsets.groups_of(topic))
        while self._groups_left:
            if not budget.has_room():
                return False
            group_id = self._groups_left[0]
            for partition, topic_ids in self._offsets.ids_by_partition(group_id, topic):
                # A tombstone removes all committed and pending offsets of the partition. So if one of these offsets
                # belongs to the current topic, all of them are kept for now. When the transactions of the pending
                # offsets have ended, a later check removes the offsets of deleted topics.
                if not topic_ids <= stale_ids:
                    continue
                if not budget.has_room():
                    size = self._offsets.topic_key_count(group_id, topic)
                    if size != self._size:
                        self._size = size
                        return False
                    break
                budget.add(offset_tombstone(group_id, topic, partition))
            self._size = None
            self._groups_left.popleft()
            budget.count_group()
        return True


class _GroupDeletionTask:
    """Deletes a group.

    The tombstones of the offsets are written before the tombstones of the group, so a partly deleted group still
    exists. Pending offsets are deleted too, so the group is not created again when their transaction is committed.
    """

    def __init__(self, groups: Mapping[str, Group], offsets: CommittedOffsets, command: DeleteGroup) -> None:
        self._groups = groups
        self._offsets = offsets
        self._command = command
        self._size: int | None = None

    def run(self, budget: CleanupBudget, moment: Moment, result: Result) -> bool:
        group_id = self._command.group_id
        group, size = self._groups.get(group_id), self._offsets.key_count(group_id)
        if group is None and not size:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif size == self._size:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            error = ErrorCode.NONE if group is None else group.check_delete()
        if error is not ErrorCode.NONE:
            result.refuse(self._command, error)
            return True
        self._size = size
        for topic, partition in self._offsets.keys(group_id):
            if not budget.has_room():
                return False
            budget.add(offset_tombstone(group_id, topic, partition))
        if group is not None:
            result.records.extend(group.tombstones())
        result.reply(self._command, ErrorCode.NONE)
        return True


class _ExpirationTask:
    """Checks every group once and removes offsets that were unused for the retention time.

    If the group has members, an offset is in use if a member subscribes to the topic, or if the subscriptions are not
    known. An offset is also in use while a transaction has a pending offset for the partition. When the last offset of
    a group is removed, the group is removed too, unless it has members or pending offsets or was created over HTTP.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        offsets: CommittedOffsets,
        settings: GroupSettings,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._retention_ms = settings.offsets_retention_ms
        self._groups_left = deque({**dict.fromkeys(groups), **dict.fromkeys(offsets.group_ids())})
        # The topics that have not been processed yet, for the first group in `_groups_left`.
        self._topics_left: deque[str] | None = None
        # Set if the last chunk ended in the middle of a topic: the number of offsets that the topic had then. If the
        # number is the same in the next chunk, the tombstones were not appended, and the topic is skipped.
        self._size: int | None = None

    def run(self, budget: CleanupBudget, moment: Moment, result: Result) -> bool:
        while self._groups_left and budget.has_room():
            self._expire_group(self._groups_left[0], budget, moment, result)
        return not self._groups_left

    def _expire_group(self, group_id: str, budget: CleanupBudget, moment: Moment, result: Result) -> None:
        group = self._groups.get(group_id)
        if self._topics_left is None:
            budget.count_group()
            self._topics_left = deque(self._offsets.topics_of(group_id))
        removed_count = 0
        while self._topics_left:
            if not budget.has_room():
                return
            count, is_done = self._expire_topic(group_id, group, self._topics_left[0], budget, moment)
            removed_count += count
            if not is_done:
                return
            self._topics_left.popleft()
        # A client may have committed offsets since the first topic was checked, so compare with the current count.
        has_none_left = removed_count == self._offsets.count(group_id) and not self._offsets.pending.has_group(group_id)
        if group is not None and group.is_empty and not group.is_retained_when_empty and has_none_left:
            result.records.extend(group.tombstones())
        self._groups_left.popleft()
        self._topics_left = None

    def _expire_topic(
        self, group_id: str, group: Group | None, topic: str, budget: CleanupBudget, moment: Moment
    ) -> tuple[int, bool]:
        """Write tombstones for the expired offsets of one topic.

        Returns the number of tombstones, and whether to continue with the next topic.
        """
        is_subscribed = group is not None and group.is_subscribed(topic)
        size = count = 0
        for partition, committed in self._offsets.of_topic(group_id, topic):
            size += 1
            if (
                not is_subscribed
                and self._is_expired(group, committed, moment)
                and not self._offsets.pending.has(group_id, topic, partition)
            ):
                if not budget.has_room():
                    return self._pause_or_give_up(group_id, topic, count)
                budget.add(offset_tombstone(group_id, topic, partition))
                count += 1
        budget.count_offsets(size)
        self._size = None
        return count, True

    def _pause_or_give_up(self, group_id: str, topic: str, count: int) -> tuple[int, bool]:
        size = self._offsets.topic_count(group_id, topic)
        is_stuck = size == self._size
        self._size = None if is_stuck else size
        return count, is_stuck

    def _is_expired(self, group: Group | None, committed: CommittedOffset, moment: Moment) -> bool:
        since_ms = committed.commit_timestamp_ms if group is None else group.unused_since_ms(committed)
        if since_ms is None:
            return False
        if committed.expire_timestamp_ms >= 0:
            return moment.wall_ms >= committed.expire_timestamp_ms
        return moment.wall_ms - since_ms >= self._retention_ms
