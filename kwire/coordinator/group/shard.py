"""The state machine of one partition of `__consumer_offsets`: its groups and their offsets."""

import heapq
from collections.abc import Iterator, Sequence

from kwire.access.scope import plain_part
from kwire.coordinator.decisions import Command, Moment, Result
from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.join_group import join
from kwire.coordinator.group.classic.phase import Phase
from kwire.coordinator.group.cleanup import ShardCleanup
from kwire.coordinator.group.commands import (
    UNKNOWN_MEMBER,
    CheckDeadlines,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsAnswer,
    DescribeAnswer,
    DescribeGroup,
    FetchAnswer,
    FetchOffsets,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    ListAnswer,
    ListedGroup,
    ListGroups,
    RunCleanup,
    ShardCommand,
    SyncGroup,
)
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, DescribeConsumerGroup, WebHeartbeat, WebLeave
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
from kwire.coordinator.group.consumer.routing import ConsumerGroups, ConsumerRouting, commit
from kwire.coordinator.group.group_interface import CLASSIC, EMPTY_STATE
from kwire.coordinator.group.offsets.committed import CommittedOffsets, offset_tombstone
from kwire.coordinator.group.offsets.pending import PlainOffsetKey
from kwire.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord, decode_record
from kwire.coordinator.group.replacement import AnyGroup, GroupReplacement
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.topics_view import TopicsView
from kwire.coordinator.group.web_group_commands import DefineGroup, GroupSummary, GroupSummaryAnswer, SummarizeGroup
from kwire.coordinator.log_records import ProducerIdAndEpoch
from kwire.errors import ErrorCode, shortened

# The maximum number of groups in one shard that have members, records or issued member ids. It limits the memory that
# clients can use by sending new group ids.
GROUPS_MAX = 100_000
# The maximum number of groups whose deadlines are handled in one iteration of the event loop. After a restart, the
# deadlines of all groups may pass at the same time.
DUE_GROUPS_MAX = 20
# Outdated entries are removed from the heap of wake-ups when it has more than two entries per group plus this number.
SPARE_WAKES_MAX = 1_000


class GroupShard:
    """Routes each command to its group. A group exists while it has a record, members or issued member ids."""

    def __init__(
        self, settings: GroupSettings, topics: TopicsView | None = None, consumers: ConsumerGroups | None = None
    ) -> None:
        self._settings = settings
        self.groups: dict[str, AnyGroup] = {}
        self._replacement = GroupReplacement(self.groups, self._schedule_wake)
        self._consumers = ConsumerRouting(
            self.groups, self._replacement, consumers or ConsumerGroups(topics), settings, GROUPS_MAX
        )
        self.offsets = CommittedOffsets(settings)
        self._cleanup = ShardCleanup(self.groups, self.offsets, settings, topics)
        # A heap of (steady_ms, group id) with one valid entry per group that has a deadline. Outdated entries are
        # skipped. When there are many outdated entries, they are removed. Otherwise, clients that join and leave many
        # groups could use up the memory.
        self._wakes: list[tuple[int, str]] = []

    def step(self, command: GroupCommand | ShardCommand, moment: Moment) -> Result:
        result = Result()
        self._replacement.staged = None  # the records of its decision, if any, were not appended
        if isinstance(command, Heartbeat):
            self._heartbeat(command, moment, result)
        elif isinstance(command, CommitOffsets):
            self._commit(command, moment, result)
        elif isinstance(command, ConsumerHeartbeat):
            self._consumers.heartbeat(command, moment, result)
        elif isinstance(command, FetchOffsets):
            self._fetch(command, result)
        elif isinstance(command, JoinGroup):
            self._join(command, moment, result)
        elif isinstance(command, SyncGroup):
            self._sync(command, moment, result)
        elif isinstance(command, LeaveGroup):
            self._leave(command, moment, result)
        elif isinstance(command, DeleteOffsets):
            self._delete_offsets(command, result)
        elif isinstance(command, DescribeConsumerGroup):
            self._consumers.describe(command, result)
        elif isinstance(command, WebHeartbeat):
            self._consumers.web_heartbeat(command, moment, result)
        elif isinstance(command, WebLeave):
            self._consumers.web_leave(command, moment, result)
        elif isinstance(command, DefineGroup):
            self._consumers.define(command, moment, result)
        elif isinstance(command, SummarizeGroup):
            result.reply(command, self._summary(command))
        elif isinstance(command, DescribeGroup):
            result.reply(command, self._described(command.group_id))
        elif isinstance(command, DeleteGroup):
            self._cleanup.delete_group(command, moment, result)
        elif isinstance(command, CheckDeadlines):
            self._check_deadlines(command, moment, result)
        else:
            self._shard_command(command, moment, result)
            return result
        self._schedule_or_discard(command.group_id)
        return result

    def can_share_append(self, command: GroupCommand | ShardCommand) -> bool:
        """Return True for offset commits outside transactions. Their decision does not depend on committed offsets."""
        return type(command) is CommitOffsets and command.transaction is None

    def may_commit_again(self, command: CommitOffsets, moment: Moment) -> bool:
        """Return whether `step` would store all offsets of this command, and do nothing else but renew the session.

        The command is not part of a transaction, and its metadata is not too large.
        """
        self._replacement.staged = None
        group = self.groups.get(command.group_id)
        if type(group) is ClassicGroup:
            if group.check_commit(command, moment):
                return False
            # If the session ends before the next wake-up of the group, `step` has to schedule an earlier one.
            return group.wake_ms is None or (group.armed_ms is not None and group.armed_ms <= group.wake_ms)
        if group is None:
            return not _commit_error_without_group(command)
        assert isinstance(group, ConsumerGroup)
        return not any(group.check_commit(command))

    def apply(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        if isinstance(record, OffsetCommitRecord):
            self.offsets.apply(record)
        elif isinstance(record, GroupMetadataRecord):
            if record.value is None:
                group = self._classic(record.group_id)
                if group is not None:
                    del self.groups[record.group_id]
                    group.phase = Phase.DEAD
            else:
                self._group_for_record(record.group_id).apply(record.value)
        elif isinstance(record, ConsumerGroupRecord):
            self._consumers.apply(record)

    def apply_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply a transactional record. An offset stays pending until the transaction ends.

        Records of other kinds are applied immediately. The coordinator never writes them in a transaction.
        """
        record = decode_record(key, value)
        if isinstance(record, OffsetCommitRecord) and record.value is not None:
            self.offsets.apply_pending(producer_id, record.key, record.value)
        else:
            self.apply(key, value)

    def apply_decoded(
        self, decoded: Sequence[tuple[PlainOffsetKey, CommittedOffset]], transaction: ProducerIdAndEpoch | None
    ) -> None:
        if transaction is None:
            self.offsets.apply_committed(decoded)
            return
        for key, committed in decoded:
            self.offsets.pending.put(transaction.producer_id, key, committed)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.offsets.end_transaction(producer_id, is_commit)

    def loaded(self, moment: Moment) -> None:
        for group in self.groups.values():
            group.loaded(moment)
            self._schedule_wake(group)
        self._cleanup.start(moment)

    def wake_ms(self) -> int | None:
        cleanup_ms = self._cleanup.wake_ms
        if not self._wakes:
            return cleanup_ms
        groups_ms = self._wakes[0][0]
        return groups_ms if cleanup_ms is None or groups_ms < cleanup_ms else cleanup_ms

    def due(self, steady_ms: int) -> list[Command[object]]:
        commands: list[Command[object]] = []
        while self._wakes and self._wakes[0][0] <= steady_ms and len(commands) < DUE_GROUPS_MAX:
            noted_ms, group_id = heapq.heappop(self._wakes)
            group = self.groups.get(group_id)
            if group is not None and group.armed_ms == noted_ms:
                group.armed_ms = None
                commands.append(CheckDeadlines(group_id))
        cleanup_ms = self._cleanup.wake_ms
        if cleanup_ms is not None and cleanup_ms <= steady_ms:
            commands.append(RunCleanup())
        return commands

    # Each command

    def _shard_command(self, command: ShardCommand, moment: Moment, result: Result) -> None:
        if isinstance(command, ListGroups):
            result.reply(command, ListAnswer(ErrorCode.NONE, list(self._listed(command))))
        else:
            self._cleanup.run_chunk(moment, result)

    def _join(self, command: JoinGroup, moment: Moment, result: Result) -> None:
        timeout_ms = command.session_timeout_ms
        if not plain_part(command.group_id):
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
        elif not self._settings.min_session_timeout_ms <= timeout_ms <= self._settings.max_session_timeout_ms:
            result.refuse(command, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif command.group_id in self.groups or command.member_id == UNKNOWN_MEMBER:
            if command.group_id not in self.groups and len(self.groups) >= GROUPS_MAX:
                result.refuse(command, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif not self._consumers.join(command, moment, result):
                join(self._group(command.group_id), command, moment, result)
        else:
            result.refuse(command, ErrorCode.UNKNOWN_MEMBER_ID)

    def _sync(self, command: SyncGroup, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.sync(group, command, moment, result)
        elif group is not None:
            group.sync(command, moment, result)
        else:
            result.refuse(command, _unknown_group_error(command.group_id))

    def _heartbeat(self, command: Heartbeat, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.classic_heartbeat(group, command, moment, result)
        elif group is not None:
            group.heartbeat(command, moment, result)
        else:
            result.refuse(command, _unknown_group_error(command.group_id))

    def _leave(self, command: LeaveGroup, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.leave(group, command, moment, result)
        elif group is not None:
            group.leave(command, moment, result)
        elif not plain_part(command.group_id):
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
        else:
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(command.members)
            result.reply(command, LeaveAnswer(ErrorCode.NONE, errors))

    def _commit(self, command: CommitOffsets, moment: Moment, result: Result) -> None:
        """Commit offsets. The group need not exist: consumers with manual assignment commit without a generation."""
        if command.transaction is not None and not plain_part(command.group_id):
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
            return
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            commit(group, self.offsets, command, moment, result)
            return
        error = _commit_error_without_group(command) if group is None else group.check_commit(command, moment)
        if error:
            result.refuse(command, error)
        else:
            self.offsets.commit(command, moment, result)

    def _fetch(self, command: FetchOffsets, result: Result) -> None:
        group = self.groups.get(command.group_id)
        error = group.check_fetch(command) if isinstance(group, ConsumerGroup) else ErrorCode.NONE
        if error is ErrorCode.NONE:
            found = self.offsets.fetch(command.group_id, command.topics, command.require_stable)
            result.reply(command, FetchAnswer(error, found))
        else:
            result.refuse(command, error)

    def _check_deadlines(self, command: CheckDeadlines, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.check_deadlines(group, moment, result)
        elif group is not None:
            group.check_deadlines(moment, result)

    def _delete_offsets(self, command: DeleteOffsets, result: Result) -> None:
        """Delete offsets. Offsets of topics that a member subscribes to are not deleted, because they may be in use."""
        group = self.groups.get(command.group_id)
        if not plain_part(command.group_id):
            error = ErrorCode.INVALID_GROUP_ID
        elif group is not None:
            error = group.check_offset_delete()
        else:
            error = ErrorCode.NONE if self.offsets.has_any(command.group_id) else ErrorCode.GROUP_ID_NOT_FOUND
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
            return
        errors = []
        for one in command.partitions:
            if group is not None and group.is_subscribed(one.topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if self.offsets.has(command.group_id, one.topic, one.partition):
                result.records.append(offset_tombstone(command.group_id, one.topic, one.partition))
        result.reply(command, DeleteOffsetsAnswer(ErrorCode.NONE, errors))

    def _described(self, group_id: str) -> DescribeAnswer:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.described()
        if group is None and self.offsets.has_any(group_id):
            return DescribeAnswer(error=ErrorCode.NONE, state=EMPTY_STATE)
        reason = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return DescribeAnswer(error=ErrorCode.GROUP_ID_NOT_FOUND, message=shortened(reason), state=Phase.DEAD.value)

    def _summary(self, command: SummarizeGroup) -> GroupSummaryAnswer:
        group = self.groups.get(command.group_id)
        committed = [(index, one.topic_id) for index, one in self.offsets.of_topic(command.group_id, command.topic)]
        summary = None
        if isinstance(group, ConsumerGroup):
            summary = GroupSummary(group.state, group.kind, len(group.members), group.group_epoch, group.target_wall_ms)
        elif group is not None:
            summary = GroupSummary(group.state, group.kind, len(group.members), group.generation_id, 0)
        elif committed:
            summary = GroupSummary(EMPTY_STATE, CLASSIC, 0, 0, 0)
        return GroupSummaryAnswer(ErrorCode.NONE, summary, committed)

    def _listed(self, command: ListGroups) -> Iterator[ListedGroup]:
        """Yield the groups that match. Includes groups with offsets only (of consumers with manual assignment)."""
        states, kinds = command.states, command.kinds
        for group in self.groups.values():
            kind, state = group.kind, group.state
            if (not states or state.lower() in states) and (not kinds or kind in kinds):
                yield ListedGroup(group.group_id, group.listed_protocol_type, state, kind)
        if (not states or EMPTY_STATE.lower() in states) and (not kinds or CLASSIC in kinds):
            for group_id in self.offsets.group_ids() - self.groups.keys():
                yield ListedGroup(group_id, "", EMPTY_STATE, CLASSIC)

    # Groups and their wake-ups

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._classic(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def _group_for_record(self, group_id: str) -> ClassicGroup:
        """Return the group of a classic group record. Creates the group if necessary."""
        group = self._classic(group_id)
        if group is None:
            group = self._replacement.install(group_id, ClassicGroup, lambda: ClassicGroup(group_id, self._settings))
        return group

    def _schedule_or_discard(self, group_id: str) -> None:
        """Schedule the group's next wake-up, or remove the group if it is discardable. Called after each decision."""
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.is_discardable:
            del self.groups[group_id]
        elif group.wake_ms is not None and (group.armed_ms is None or group.wake_ms < group.armed_ms):
            self._schedule_wake(group)

    def _schedule_wake(self, group: AnyGroup) -> None:
        if group.wake_ms is not None and (group.armed_ms is None or group.wake_ms < group.armed_ms):
            group.armed_ms = group.wake_ms
            heapq.heappush(self._wakes, (group.wake_ms, group.group_id))
            if len(self._wakes) > 2 * len(self.groups) + SPARE_WAKES_MAX:
                self._wakes = [(one.armed_ms, one.group_id) for one in self.groups.values() if one.armed_ms is not None]
                heapq.heapify(self._wakes)


def _unknown_group_error(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if plain_part(group_id) else ErrorCode.INVALID_GROUP_ID


def _commit_error_without_group(command: CommitOffsets) -> ErrorCode:
    if command.generation_id < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if command.knows_group_id_not_found else ErrorCode.ILLEGAL_GENERATION
