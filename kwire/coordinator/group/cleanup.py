"""The background work of a shard: offsets whose time is over, offsets of topics that are gone, groups to be deleted.

A shard can hold a hundred thousand groups and a group a hundred thousand offsets, so a chore is done in portions: each
is one decision, appended and applied like any other, and clients are served between two of them. A portion looks at the
state as it is then, so nothing has to be undone if somebody commits or joins meanwhile. What an append that failed left
undone is not tried for ever: a chore that gets no further is given up, and the next round finds what is left.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.commands import CommittedOffset, DeleteGroup
from kwire.coordinator.group.kinds import Group
from kwire.coordinator.group.offsets import CommittedOffsets, offset_tombstone
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.topics_view import TopicsView
from kwire.errors import ErrorCode
from kwire.wire.types import ZERO_UUID

# How soon it is noticed that topics have gone. Until then their offsets are only of no use: who fetches an offset gets
# none that was committed for another topic of the same name.
TOPICS_CHECK_MS = 5_000
# A portion takes some five milliseconds, and its records fit into one batch, however long names are.
PORTION_GROUPS_MAX = 500
PORTION_TOPICS_MAX = 500
PORTION_OFFSETS_MAX = 5_000
PORTION_RECORDS_MAX = 300
PORTION_BYTES_MAX = 256 * 1024
# Between two portions, so that a long chore takes no more than half of the loop.
PAUSE_MS = 5


class Portion:
    """What is left of the bounds of one portion."""

    __slots__ = ("_bytes", "_groups", "_offsets", "_result", "_topics")

    def __init__(self, result: Result) -> None:
        self._result = result
        self._groups = PORTION_GROUPS_MAX
        self._topics = PORTION_TOPICS_MAX
        self._offsets = PORTION_OFFSETS_MAX
        self._bytes = PORTION_BYTES_MAX

    def has_room(self) -> bool:
        return (
            min(self._groups, self._topics, self._offsets, self._bytes) > 0
            and len(self._result.records) < PORTION_RECORDS_MAX
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


class Chore(Protocol):
    def do(self, portion: Portion, moment: Moment, result: Result) -> bool:
        """Do as much as there is room for; whether that was all."""
        ...


class Chores:
    """The chores of one shard, one after the other, and the clocks of what is looked at regularly."""

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
        # Bounded by what can be under way: a round, a check, and deletions of groups that wait for their answer.
        self._waiting: deque[Chore] = deque()
        self._resume_ms = 0
        self._round_ms: int | None = None
        self._check_ms: int | None = None
        self._checked_revision: int | None = None

    @property
    def wake_ms(self) -> int | None:
        if self._waiting:
            return self._resume_ms
        if self._check_ms is None or self._round_ms is None or self._offsets.is_empty:
            return self._round_ms
        return min(self._check_ms, self._round_ms)

    def start(self, moment: Moment) -> None:
        """The shard has been loaded."""
        self._round_ms = moment.steady_ms + self._settings.offsets_retention_check_interval_ms
        if self._topics is not None:
            self._check_ms = moment.steady_ms + TOPICS_CHECK_MS

    def delete_group(self, command: DeleteGroup, moment: Moment, result: Result) -> None:
        """At once if one portion is enough, as it nearly always is."""
        chore = _GroupEnd(self._groups, self._offsets, command)
        if not chore.do(Portion(result), moment, result):
            self._waiting.append(chore)
            self._resume_ms = moment.steady_ms + PAUSE_MS

    def do_portion(self, moment: Moment, result: Result) -> None:
        if not self._waiting:
            self._take_up(moment)
        if self._waiting and self._waiting[0].do(Portion(result), moment, result):
            self._waiting.popleft()
        self._resume_ms = moment.steady_ms + PAUSE_MS

    def _take_up(self, moment: Moment) -> None:
        """What is to be looked at regularly, and now."""
        now_ms = moment.steady_ms
        if self._round_ms is not None and self._round_ms <= now_ms:
            self._round_ms = now_ms + self._settings.offsets_retention_check_interval_ms
            self._waiting.append(_Round(self._groups, self._offsets, self._settings))
        if self._topics is not None and self._check_ms is not None and self._check_ms <= now_ms:
            self._check_ms = now_ms + TOPICS_CHECK_MS
            if self._topics.revision != self._checked_revision:
                self._checked_revision = self._topics.revision
                self._waiting.append(_TopicsCheck(self._offsets, self._topics, self._check_again))

    def _check_again(self) -> None:
        """Something was to be dropped. It is only when the append did not fail: the next check will see."""
        self._checked_revision = None


class _TopicsCheck:
    """Topics have changed: nobody will ever go on from what was committed for those that are gone."""

    def __init__(self, offsets: CommittedOffsets, topics: TopicsView, check_again: Callable[[], None]) -> None:
        self._offsets = offsets
        self._topics = topics
        self._check_again = check_again
        self._topics_left = deque(offsets.topics())
        # Of the topic that comes first: the groups that have not been looked at, and how large the first one was when
        # there was no room for all of it.
        self._groups_left: deque[str] | None = None
        self._size: int | None = None

    def do(self, portion: Portion, moment: Moment, result: Result) -> bool:
        while self._topics_left and portion.has_room():
            topic = self._topics_left[0]
            portion.count_topic()
            stale_ids = self._stale_ids(topic)
            if stale_ids and not self._drop(topic, stale_ids, portion):
                return False
            self._topics_left.popleft()
            self._groups_left = None
        return not self._topics_left

    def _stale_ids(self, topic: str) -> frozenset[bytes]:
        """Under which ids offsets were committed that this name has no more; the oldest records do not say any."""
        now = self._topics.find(topic)
        kept_ids = frozenset() if now is None else frozenset((now.topic_id, ZERO_UUID))
        return self._offsets.topic_ids(topic) - kept_ids

    def _drop(self, topic: str, stale_ids: frozenset[bytes], portion: Portion) -> bool:
        if self._groups_left is None:
            self._check_again()
            self._groups_left = deque(self._offsets.groups_of(topic))
        while self._groups_left:
            if not portion.has_room():
                return False
            group_id = self._groups_left[0]
            for partition, topic_ids in self._offsets.ids_by_partition(group_id, topic):
                # A tombstone takes out all that is committed or pending here. While some of it is for the topic of
                # today it stays: when the transaction has ended, a later check finds what is left.
                if not topic_ids <= stale_ids:
                    continue
                if not portion.has_room():
                    size = self._offsets.topic_place_count(group_id, topic)
                    if size != self._size:
                        self._size = size
                        return False
                    break
                portion.add(offset_tombstone(group_id, topic, partition))
            self._size = None
            self._groups_left.popleft()
            portion.count_group()
        return True


class _GroupEnd:
    """Somebody deletes a group. It goes last, behind its offsets, so a group half deleted is still a group.

    Pending offsets go as well: a transaction that is committed afterwards does not bring the group back.
    """

    def __init__(self, groups: Mapping[str, Group], offsets: CommittedOffsets, command: DeleteGroup) -> None:
        self._groups = groups
        self._offsets = offsets
        self._command = command
        self._size: int | None = None

    def do(self, portion: Portion, moment: Moment, result: Result) -> bool:
        group_id = self._command.group_id
        group, size = self._groups.get(group_id), self._offsets.place_count(group_id)
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
        for topic, partition in self._offsets.places(group_id):
            if not portion.has_room():
                return False
            portion.add(offset_tombstone(group_id, topic, partition))
        if group is not None:
            result.records.extend(group.tombstones())
        result.reply(self._command, ErrorCode.NONE)
        return True


class _Round:
    """Look at every group once: offsets that nobody uses are kept for the retention time, then taken out of the log.

    A group without members goes with its last offset. An offset is in use while a member may come back to it: while the
    group has members, unless it is known that none of them is subscribed to the topic; and while a transaction may be
    about to replace it. A group in which a transaction has offsets stays.
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
        # Of the group that comes first: the topics that have not been looked at.
        self._topics_left: deque[str] | None = None
        # Of the topic that comes first: how many offsets it had when there was no room for all that are over.
        self._size: int | None = None

    def do(self, portion: Portion, moment: Moment, result: Result) -> bool:
        while self._groups_left and portion.has_room():
            self._look_at(self._groups_left[0], portion, moment, result)
        return not self._groups_left

    def _look_at(self, group_id: str, portion: Portion, moment: Moment, result: Result) -> None:
        group = self._groups.get(group_id)
        if self._topics_left is None:
            portion.count_group()
            self._topics_left = deque(self._offsets.topics_of(group_id))
        removed_count = 0
        while self._topics_left:
            if not portion.has_room():
                return
            count, is_done = self._expire(group_id, group, self._topics_left[0], portion, moment)
            removed_count += count
            if not is_done:
                return
            self._topics_left.popleft()
        # Somebody may have committed since the first topic was looked at: what counts is what there is now.
        has_none_left = removed_count == self._offsets.count(group_id) and not self._offsets.pending.has_group(group_id)
        if group is not None and group.is_empty and not group.is_kept and has_none_left:
            result.records.extend(group.tombstones())
        self._groups_left.popleft()
        self._topics_left = None

    def _expire(
        self, group_id: str, group: Group | None, topic: str, portion: Portion, moment: Moment
    ) -> tuple[int, bool]:
        """Take out what is over of one topic; how many offsets that are, and whether these were all."""
        is_subscribed = group is not None and group.is_subscribed(topic)
        size = count = 0
        for partition, committed in self._offsets.of_topic(group_id, topic):
            size += 1
            if (
                not is_subscribed
                and self._is_expired(group, committed, moment)
                and not self._offsets.pending.has(group_id, topic, partition)
            ):
                if not portion.has_room():
                    return self._come_back(group_id, topic, count)
                portion.add(offset_tombstone(group_id, topic, partition))
                count += 1
        portion.count_offsets(size)
        self._size = None
        return count, True

    def _come_back(self, group_id: str, topic: str, count: int) -> tuple[int, bool]:
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
