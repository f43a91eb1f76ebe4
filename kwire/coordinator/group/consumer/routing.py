"""The consumer groups of one shard: which group a command is for, and whether it may come to be or to change its kind.

A shard keeps groups of both kinds in one table, because a group id stands for one group. A group without members is
nobody's: whoever comes first makes it a group of its own protocol, and the records of the other kind are taken back.
One with members may change its kind while it works; `migration.py` says how, and here it is decided when.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group import migration
from kwire.coordinator.group.classic import ClassicGroup, Phase
from kwire.coordinator.group.commands import (
    CommitOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    SyncGroup,
)
from kwire.coordinator.group.consumer import classic_members, leaving, web_members
from kwire.coordinator.group.consumer.commands import (
    CheckIn,
    CheckInAnswer,
    CheckOut,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DescribeConsumerAnswer,
    DescribeConsumerGroup,
)
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import check_heartbeat, heartbeat, raise_epoch
from kwire.coordinator.group.consumer.members import JOINING_EPOCH, ConsumerMember
from kwire.coordinator.group.consumer.records import GROUP_EPOCH, MEMBER_ASSIGNMENT, TARGET_EPOCH, ConsumerGroupRecord
from kwire.coordinator.group.consumer.regexes import RegexResolver
from kwire.coordinator.group.consumer.target import NO_TOPICS_HASH
from kwire.coordinator.group.defined import DefineAnswer, DefineGroup
from kwire.coordinator.group.joining import join, new_member_id
from kwire.coordinator.group.offsets import CommittedOffsets
from kwire.coordinator.group.settings import DEFAULT_CONSUMER_SETTINGS, ConsumerSettings, GroupSettings
from kwire.coordinator.group.succession import AnyGroup, Succession
from kwire.coordinator.group.topics_view import NoTopics, TopicsView
from kwire.errors import ErrorCode, KafkaError

SettingsOf = Callable[[str], ConsumerSettings]
# Records after which a member may have partitions to take or to give up.
_MOVES = frozenset({GROUP_EPOCH, TARGET_EPOCH, MEMBER_ASSIGNMENT})


class ConsumerGroups:
    """What all consumer groups of a coordinator share: topics, the search for them, settings."""

    def __init__(self, topics: TopicsView | None = None, settings_of: SettingsOf | None = None) -> None:
        self._topics = topics or NoTopics()
        self._resolver = RegexResolver(self._topics)
        self.settings_of = settings_of or (lambda group_id: DEFAULT_CONSUMER_SETTINGS)
        # Who reads on behalf of members, by group; bounded by the connections there may be.
        self._watchers: dict[str, set[Callable[[], None]]] = {}

    def new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._topics, self._resolver, self.settings_of)

    def watch(self, group_id: str, watcher: Callable[[], None]) -> None:
        """Call whenever partitions of the group may move. That is amid a decision: be quick, and ask nothing."""
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
    """The part of a shard that knows the consumer protocol. `groups` is the shard's own table."""

    def __init__(
        self,
        groups: dict[str, AnyGroup],
        succession: Succession,
        shared: ConsumerGroups,
        settings: GroupSettings,
        group_count_max: int,
    ) -> None:
        self._groups = groups
        self._succession = succession
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
            group.take_settings()
            if command.member_epoch < JOINING_EPOCH:
                leaving.leave(group, command, moment, result, self._put_out)
            else:
                heartbeat(group, command, moment, result)
        except KafkaError as error:
            result.reply(command, ConsumerHeartbeatAnswer(error=error.code, message=error.message))

    def _first_heartbeat(
        self, before: ClassicGroup | None, command: ConsumerHeartbeat, moment: Moment, result: Result
    ) -> None:
        """A member makes a group, or makes a classic one a consumer group. Raises KafkaError."""
        group_id = command.group_id
        is_joining = command.member_epoch == JOINING_EPOCH
        if before is None and not is_joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not is_joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if before is None and len(self._groups) >= self._group_count_max:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This coordinator has all the groups it can have.")
        group = self._shared.new(group_id)
        conversion: list[KeyValue] = []
        if before is not None:
            conversion = (
                before.tombstones() if before.phase is Phase.EMPTY else migration.upgrade(before, group, moment)
            )
        heartbeat(group, command, moment, result)
        result.records[:0] = conversion
        if before is not None:
            migration.send_off(before, result)
        self._succession.announce(group)

    # Members that speak HTTP, and groups that are defined for them

    def check_in(self, command: CheckIn, moment: Moment, result: Result) -> None:
        try:
            group = self._known(command.group_id)
            group.take_settings()
            web_members.check_in(group, command, moment, result)
        except KafkaError as error:
            result.reply(command, CheckInAnswer(error=error.code, message=error.message))

    def check_out(self, command: CheckOut, moment: Moment, result: Result) -> None:
        try:
            group = self._known(command.group_id)
            member = web_members.web_member(group, command.member_id)
            group.take_settings()
            self._put_out(group, [member], moment, result)
            result.reply(command, CheckInAnswer(error=ErrorCode.NONE))
        except KafkaError as error:
            result.reply(command, CheckInAnswer(error=error.code, message=error.message))

    def define(self, command: DefineGroup, moment: Moment, result: Result) -> None:
        """A group without members becomes a consumer group, if it is none; one with members is somebody's already."""
        group_id = command.group_id
        before = self._groups.get(group_id)
        if before is not None and not before.is_empty:
            reason = f"Group {group_id} has members already; it is a {before.kind} group."
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
            self._succession.announce(group)
        result.reply(command, DefineAnswer(ErrorCode.NONE))

    def _known(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            reason = "not found" if group is None else "not a consumer group"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} is {reason}, so it has no such member.")
        return group

    # Going

    def _put_out(self, group: ConsumerGroup, gone: Collection[ConsumerMember], moment: Moment, result: Result) -> None:
        gone_ids = {one.member_id for one in gone}
        if migration.may_downgrade(group, self._settings, gone_ids):
            downgrade = migration.downgrade(group, self._settings, gone_ids, moment)
            if migration.fits(downgrade.records):
                self._take_over(downgrade, result)
                return
        leaving.remove(group, gone, result.records)

    def _take_over(self, downgrade: migration.Downgrade, result: Result) -> None:
        result.records += downgrade.records
        self._succession.announce(downgrade.group)

    def pass_time(self, group: ConsumerGroup, moment: Moment, result: Result) -> None:
        leaving.pass_time(group, moment, result, self._put_out)

    # Members of the classic protocol

    def join(self, command: JoinGroup, moment: Moment, result: Result) -> bool:
        """Whether it is a consumer group that the member joins, or is refused by, or that gives way to it."""
        group = self._groups.get(command.group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        if group.is_empty:
            self._give_way(group, command, moment, result)
            return True
        group.take_settings()
        try:
            joining = classic_members.check_join(group, command, new_member_id(command))
        except KafkaError as error:
            result.reply(command, JoinAnswer(error=error.code, member_id=command.member_id))
            return True
        replaced = joining.who.replaces
        if replaced is not None and self._is_last_consumer(group, replaced):
            downgrade = migration.downgrade_for(group, self._settings, joining, replaced, moment)
            if migration.fits(downgrade.records):
                self._take_over(downgrade, result)
                result.reply(command, migration.returned_answer(downgrade.group, command, joining.member_id))
                return True
        classic_members.join(group, joining, moment, result)
        return True

    def _give_way(self, group: ConsumerGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
        """A group without members becomes a classic one, unless nothing comes of the join."""
        classic = ClassicGroup(group.group_id, self._settings)
        join(classic, command, moment, result)
        if not classic.is_forgettable:
            result.records[:0] = group.tombstones()
            self._succession.announce(classic)

    def _is_last_consumer(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Whether the group becomes classic when a static member comes back as a classic one."""
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
        group.take_settings()
        gone, errors = classic_members.leaving(group, command)
        if gone:
            self._put_out(group, gone.values(), moment, result)
        result.reply(command, LeaveAnswer(ErrorCode.NONE, errors))

    # All of them

    def describe(self, command: DescribeConsumerGroup, result: Result) -> None:
        group_id = command.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            result.reply(command, group.described())
            return
        reason = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        result.reply(command, DescribeConsumerAnswer(error=ErrorCode.GROUP_ID_NOT_FOUND, message=reason))

    def apply(self, record: ConsumerGroupRecord) -> None:
        group = self._groups.get(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                # Of a group that is gone already, or has become a classic one.
                return
            group = self._succession.install(record.group_id, ConsumerGroup, lambda: self._shared.new(record.group_id))
        group.apply(record)
        if record.kind in _MOVES:
            self._shared.notify(record.group_id)
        if record.kind == GROUP_EPOCH and record.value is None:
            del self._groups[record.group_id]
            self._succession.follow(record.group_id)


def commit(
    group: ConsumerGroup, offsets: CommittedOffsets, command: CommitOffsets, moment: Moment, result: Result
) -> None:
    """Store what this member may commit; each offset is judged on its own."""
    errors = group.check_commit(command)
    if command.transaction is not None and not command.knows_group_id_not_found:
        # To a producer that old, members have generations.
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
