"""Routes commands to the consumer groups of a shard, and decides when groups are created or change their protocol.

A shard has the groups of both protocols in one table, because a group id belongs to only one group. The first member
that joins an empty group determines the group's protocol. If the group has records of the other protocol, they are
deleted. A group with members may be migrated online. This module decides when, and `migration.py` does the migration.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group import migration
from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.join_group import join, new_member_id
from kwire.coordinator.group.classic.phase import Phase
from kwire.coordinator.group.commands import (
    CommitOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    SyncGroup,
)
from kwire.coordinator.group.consumer import classic_members, member_removal, web_members
from kwire.coordinator.group.consumer.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DescribeConsumerAnswer,
    DescribeConsumerGroup,
    WebHeartbeat,
    WebHeartbeatAnswer,
    WebLeave,
)
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import check_heartbeat, heartbeat, raise_epoch
from kwire.coordinator.group.consumer.members import JOINING_EPOCH, ConsumerMember
from kwire.coordinator.group.consumer.records import GROUP_EPOCH, MEMBER_ASSIGNMENT, TARGET_EPOCH, ConsumerGroupRecord
from kwire.coordinator.group.consumer.regexes import RegexResolver
from kwire.coordinator.group.consumer.target import NO_TOPICS_HASH
from kwire.coordinator.group.offsets.committed import CommittedOffsets
from kwire.coordinator.group.replacement import AnyGroup, GroupReplacement
from kwire.coordinator.group.settings import DEFAULT_CONSUMER_SETTINGS, ConsumerSettings, GroupSettings
from kwire.coordinator.group.topics_view import NoTopics, TopicsView
from kwire.coordinator.group.web_group_commands import DefineAnswer, DefineGroup
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode, KafkaError, shortened

SettingsOf = Callable[[str], ConsumerSettings]
# The kinds of records that may change the assignment of a member.
_ASSIGNMENT_RECORDS = frozenset({GROUP_EPOCH, TARGET_EPOCH, MEMBER_ASSIGNMENT})


class ConsumerGroups:
    """State shared by all consumer groups of a coordinator: topics, topic search, settings and watchers."""

    def __init__(self, topics: TopicsView | None = None, settings_of: SettingsOf | None = None) -> None:
        self._topics = topics or NoTopics()
        self._resolver = RegexResolver(self._topics)
        self.settings_of = settings_of or (lambda group_id: DEFAULT_CONSUMER_SETTINGS)
        # Callbacks of the streams that read for HTTP members, by group id. Bounded by the number of connections.
        self._watchers: dict[str, set[Callable[[], None]]] = {}

    def new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._topics, self._resolver, self.settings_of)

    def watch(self, group_id: str, watcher: Callable[[], None]) -> None:
        """Call `watcher` when assignments of the group may have changed.

        `watcher` is called while records are applied, so it must return quickly and must not submit commands.
        """
        self._watchers.setdefault(group_id, set()).add(watcher)

    def unwatch(self, group_id: str, watcher: Callable[[], None]) -> None:
        watchers = self._watchers.get(group_id)
        if watchers is not None:
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[group_id]

    def notify(self, group_id: str) -> None:
        if self._watchers:
            for watcher in tuple(self._watchers.get(group_id, ())):
                watcher()


class ConsumerRouting:
    """The part of a shard that handles consumer groups. `groups` is the shard's table of groups."""

    def __init__(
        self,
        groups: dict[str, AnyGroup],
        replacement: GroupReplacement,
        shared: ConsumerGroups,
        settings: GroupSettings,
        group_count_max: int,
    ) -> None:
        self._groups = groups
        self._replacement = replacement
        self._shared = shared
        self._settings = settings
        self._group_count_max = group_count_max

    # Members of the consumer protocol

    def heartbeat(self, command: ConsumerHeartbeat, moment: Moment, result: Result) -> None:
        try:
            check_heartbeat(command, self._shared.settings_of(command.group_id))
            group = self._groups.get(command.group_id)
            if not isinstance(group, ConsumerGroup):
                self._first_heartbeat(group, command, moment, result)
                return
            group.refresh_settings()
            if command.member_epoch < JOINING_EPOCH:
                member_removal.leave(group, command, moment, result, self._remove_members)
            else:
                heartbeat(group, command, moment, result)
        except KafkaError as error:
            result.reply(command, ConsumerHeartbeatAnswer(error=error.code, message=error.message))

    def _first_heartbeat(
        self, before: ClassicGroup | None, command: ConsumerHeartbeat, moment: Moment, result: Result
    ) -> None:
        """Create a group for its first member, or upgrade a classic group. Raises KafkaError."""
        group_id = command.group_id
        is_joining = command.member_epoch == JOINING_EPOCH
        if before is None and not is_joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not is_joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if before is None and len(self._groups) >= self._group_count_max:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator has the maximum number of groups.")
        group = self._shared.new(group_id)
        conversion: list[KeyValue] = []
        if before is not None:
            conversion = (
                before.tombstones() if before.phase is Phase.EMPTY else migration.upgrade(before, group, moment)
            )
        heartbeat(group, command, moment, result)
        result.records[:0] = conversion
        if before is not None:
            migration.refuse_waiting_members(before, result)
        self._replacement.stage(group)

    # HTTP members and their groups

    def web_heartbeat(self, command: WebHeartbeat, moment: Moment, result: Result) -> None:
        try:
            group = self._consumer_group(command.group_id)
            group.refresh_settings()
            web_members.web_heartbeat(group, command, moment, result)
        except KafkaError as error:
            result.reply(command, WebHeartbeatAnswer(error=error.code, message=error.message))

    def web_leave(self, command: WebLeave, moment: Moment, result: Result) -> None:
        try:
            group = self._consumer_group(command.group_id)
            member = web_members.web_member(group, command.member_id)
            group.refresh_settings()
            self._remove_members(group, [member], moment, result)
            result.reply(command, WebHeartbeatAnswer(error=ErrorCode.NONE))
        except KafkaError as error:
            result.reply(command, WebHeartbeatAnswer(error=error.code, message=error.message))

    def define(self, command: DefineGroup, moment: Moment, result: Result) -> None:
        """Create an empty consumer group. An empty classic group is replaced. A group with members is an error."""
        group_id = command.group_id
        before = self._groups.get(group_id)
        if before is not None and not before.is_empty:
            reason = f"Group {group_id} exists as a {before.kind} group with members."
            result.reply(command, DefineAnswer(ErrorCode.NON_EMPTY_GROUP, reason))
            return
        if not isinstance(before, ConsumerGroup):
            if before is None and len(self._groups) >= self._group_count_max:
                result.refuse(command, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            group = self._shared.new(group_id)
            if before is not None:
                result.records += before.tombstones()
            raise_epoch(group, NO_TOPICS_HASH, result.records)
            self._replacement.stage(group)
        result.reply(command, DefineAnswer(ErrorCode.NONE))

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            reason = "not found" if group is None else "not a consumer group"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} is {reason}, so it has no such member.")
        return group

    # Removal of members

    def _remove_members(
        self, group: ConsumerGroup, gone: Collection[ConsumerMember], moment: Moment, result: Result
    ) -> None:
        gone_ids = {one.member_id for one in gone}
        if migration.may_downgrade(group, self._settings, gone_ids):
            downgrade = migration.downgrade(group, self._settings, gone_ids, moment)
            if migration.fits_in_one_batch(downgrade.records):
                self._stage_downgrade(downgrade, result)
                return
        member_removal.remove(group, gone, result.records)

    def _stage_downgrade(self, downgrade: migration.Downgrade, result: Result) -> None:
        result.records += downgrade.records
        self._replacement.stage(downgrade.group)

    def check_deadlines(self, group: ConsumerGroup, moment: Moment, result: Result) -> None:
        member_removal.check_deadlines(group, moment, result, self._remove_members)

    # Members of the classic protocol

    def join(self, command: JoinGroup, moment: Moment, result: Result) -> bool:
        """Handle a JoinGroup if the group is a consumer group. Otherwise return False."""
        group = self._groups.get(command.group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        if group.is_empty:
            self._replace_with_classic(group, command, moment, result)
            return True
        group.refresh_settings()
        try:
            joining = classic_members.check_join(group, command, new_member_id(command))
        except KafkaError as error:
            result.reply(command, JoinAnswer(error=error.code, member_id=command.member_id))
            return True
        replaced = joining.sender.replaces
        if replaced is not None and self._is_last_consumer(group, replaced):
            downgrade = migration.downgrade_for(group, self._settings, joining, replaced, moment)
            if migration.fits_in_one_batch(downgrade.records):
                self._stage_downgrade(downgrade, result)
                result.reply(command, migration.rejoin_answer(downgrade.group, command, joining.member_id))
                return True
        classic_members.join(group, joining, moment, result)
        return True

    def _replace_with_classic(self, group: ConsumerGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
        """Replace an empty consumer group by a classic group, unless the join is refused."""
        classic = ClassicGroup(group.group_id, self._settings)
        join(classic, command, moment, result)
        if not classic.is_discardable:
            result.records[:0] = group.tombstones()
            self._replacement.stage(classic)

    def _is_last_consumer(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Return whether the group is to be downgraded if this static member rejoins with the classic protocol."""
        return (
            not replaced.is_classic
            and group.settings.migration_policy.has_downgrades
            and len(group.members) <= self._settings.max_size
            and all(one.is_classic for one in group.members.values() if one is not replaced)
        )

    def sync(self, group: ConsumerGroup, command: SyncGroup, moment: Moment, result: Result) -> None:
        try:
            classic_members.sync(group, command, moment, result)
        except KafkaError as error:
            result.refuse(command, error.code)

    def classic_heartbeat(self, group: ConsumerGroup, command: Heartbeat, moment: Moment, result: Result) -> None:
        try:
            classic_members.heartbeat(group, command, moment, result)
        except KafkaError as error:
            result.refuse(command, error.code)

    def leave(self, group: ConsumerGroup, command: LeaveGroup, moment: Moment, result: Result) -> None:
        group.refresh_settings()
        gone, errors = classic_members.members_to_remove(group, command)
        if gone:
            self._remove_members(group, gone.values(), moment, result)
        result.reply(command, LeaveAnswer(ErrorCode.NONE, errors))

    # All members

    def describe(self, command: DescribeConsumerGroup, result: Result) -> None:
        group_id = command.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            result.reply(command, group.described())
            return
        reason = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        result.reply(command, DescribeConsumerAnswer(error=ErrorCode.GROUP_ID_NOT_FOUND, message=shortened(reason)))

    def apply(self, record: ConsumerGroupRecord) -> None:
        group = self._groups.get(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                # This is a tombstone of a group that was already deleted or downgraded.
                return
            group = self._replacement.install(record.group_id, ConsumerGroup, lambda: self._shared.new(record.group_id))
        group.apply(record)
        if record.kind in _ASSIGNMENT_RECORDS:
            self._shared.notify(record.group_id)
        if record.kind == GROUP_EPOCH and record.value is None:
            del self._groups[record.group_id]
            self._replacement.install_successor(record.group_id)


def commit(
    group: ConsumerGroup, offsets: CommittedOffsets, command: CommitOffsets, moment: Moment, result: Result
) -> None:
    """Check each offset separately, and commit those that this member may commit."""
    errors = group.check_commit(command)
    if command.transaction is not None and not command.knows_group_id_not_found:
        # The producer uses a version of TxnOffsetCommit that does not have the error STALE_MEMBER_EPOCH.
        errors = [ErrorCode.ILLEGAL_GENERATION if one is ErrorCode.STALE_MEMBER_EPOCH else one for one in errors]
    allowed = [one for one, error in zip(command.offsets, errors, strict=True) if error is ErrorCode.NONE]
    if len(allowed) == len(errors):
        offsets.commit(command, moment, result)
        return
    stored = Result()
    offsets.commit(replace(command, offsets=allowed), moment, stored)
    result.records += stored.records
    result.decoded += stored.decoded
    result.transaction = stored.transaction
    (reply,) = stored.replies
    of_allowed = iter(reply.answer)
    result.reply(command, [next(of_allowed) if error is ErrorCode.NONE else error for error in errors])
