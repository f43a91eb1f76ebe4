"""One partition of `__consumer_offsets` as a state machine: its groups and their offsets."""

import heapq
from collections.abc import Iterator, Sequence

from kwire.broker.internal_records import Transaction
from kwire.coordinator.decisions import Command, Moment, Result
from kwire.coordinator.group.chores import Chores
from kwire.coordinator.group.classic import ClassicGroup, Phase
from kwire.coordinator.group.commands import (
    UNKNOWN_MEMBER,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsAnswer,
    DescribeAnswer,
    DescribeGroup,
    DoChore,
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
    PassTime,
    ShardCommand,
    SyncGroup,
)
from kwire.coordinator.group.consumer.commands import CheckIn, CheckOut, ConsumerHeartbeat, DescribeConsumerGroup
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
from kwire.coordinator.group.consumer.routing import ConsumerGroups, ConsumerRouting, commit
from kwire.coordinator.group.defined import AskFacts, DefineGroup, FactsAnswer, GroupFacts
from kwire.coordinator.group.joining import join
from kwire.coordinator.group.kinds import CLASSIC, EMPTY_STATE
from kwire.coordinator.group.offsets import CommittedOffsets, offset_tombstone
from kwire.coordinator.group.pending import Place
from kwire.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord, decode_record
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.succession import AnyGroup, Succession
from kwire.coordinator.group.topics_view import TopicsView
from kwire.errors import ErrorCode

# Groups with members, or on their way to have some, in one shard; nobody can fill the memory by inventing names.
GROUPS_MAX = 100_000
# Groups whose deadlines are looked at in one turn of the loop: after a restart those of all may pass at once.
DUE_GROUPS_MAX = 20
# Notes of deadlines beyond two for each group, before those that are out of date are thrown away.
SPARE_WAKES_MAX = 1_000


class GroupShard:
    """Routes each command to its group. A group exists here while it has a record, members or ids handed out."""

    def __init__(
        self, settings: GroupSettings, topics: TopicsView | None = None, consumers: ConsumerGroups | None = None
    ) -> None:
        self._settings = settings
        self.groups: dict[str, AnyGroup] = {}
        self._succession = Succession(self.groups, self._note_wake)
        self._consumers = ConsumerRouting(
            self.groups, self._succession, consumers or ConsumerGroups(topics), settings, GROUPS_MAX
        )
        self.offsets = CommittedOffsets(settings)
        self._chores = Chores(self.groups, self.offsets, settings, topics)
        # (steady_ms, group id), one live entry for each group that has a deadline; older ones are passed over, and
        # thrown away when they are more: who makes and leaves groups could fill the memory with them.
        self._wakes: list[tuple[int, str]] = []

    def step(self, command: GroupCommand | ShardCommand, moment: Moment) -> Result:
        result = Result()
        self._succession.begin()
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
        elif isinstance(command, CheckIn):
            self._consumers.check_in(command, moment, result)
        elif isinstance(command, CheckOut):
            self._consumers.check_out(command, moment, result)
        elif isinstance(command, DefineGroup):
            self._consumers.define(command, moment, result)
        elif isinstance(command, AskFacts):
            result.reply(command, self._facts(command))
        elif isinstance(command, DescribeGroup):
            result.reply(command, self._described(command.group_id))
        elif isinstance(command, DeleteGroup):
            self._chores.delete_group(command, moment, result)
        elif isinstance(command, PassTime):
            self._pass_time(command, moment, result)
        else:
            self._concern_all(command, moment, result)
            return result
        self._settle(command.group_id)
        return result

    def is_independent(self, command: GroupCommand | ShardCommand) -> bool:
        """A plain commit is judged by its group; what is committed for it makes no difference."""
        return type(command) is CommitOffsets and command.transaction is None

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
                self._applied_to(record.group_id).apply(record.value)
        elif isinstance(record, ConsumerGroupRecord):
            self._consumers.apply(record)

    def apply_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """A record of a transaction. Only offsets wait for its end, and only offsets are written in transactions."""
        record = decode_record(key, value)
        if isinstance(record, OffsetCommitRecord) and record.value is not None:
            self.offsets.apply_pending(producer_id, record.key, record.value)
        else:
            self.apply(key, value)

    def apply_decoded(self, decoded: Sequence[tuple[Place, CommittedOffset]], transaction: Transaction | None) -> None:
        for place, committed in decoded:
            if transaction is None:
                self.offsets.apply_committed(place, committed)
            else:
                self.offsets.pending.put(transaction.producer_id, place, committed)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.offsets.end_transaction(producer_id, is_commit)

    def loaded(self, moment: Moment) -> None:
        for group in self.groups.values():
            group.loaded(moment)
            self._note_wake(group)
        self._chores.start(moment)

    def wake_ms(self) -> int | None:
        chores_ms = self._chores.wake_ms
        if not self._wakes:
            return chores_ms
        groups_ms = self._wakes[0][0]
        return groups_ms if chores_ms is None or groups_ms < chores_ms else chores_ms

    def due(self, steady_ms: int) -> list[Command[object]]:
        commands: list[Command[object]] = []
        while self._wakes and self._wakes[0][0] <= steady_ms and len(commands) < DUE_GROUPS_MAX:
            noted_ms, group_id = heapq.heappop(self._wakes)
            group = self.groups.get(group_id)
            if group is not None and group.armed_ms == noted_ms:
                group.armed_ms = None
                commands.append(PassTime(group_id))
        chores_ms = self._chores.wake_ms
        if chores_ms is not None and chores_ms <= steady_ms:
            commands.append(DoChore())
        return commands

    # Each command

    def _concern_all(self, command: ShardCommand, moment: Moment, result: Result) -> None:
        if isinstance(command, ListGroups):
            result.reply(command, ListAnswer(ErrorCode.NONE, list(self._listed(command))))
        else:
            self._chores.do_portion(moment, result)

    def _join(self, command: JoinGroup, moment: Moment, result: Result) -> None:
        timeout_ms = command.session_timeout_ms
        if not command.group_id:
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
            result.refuse(command, _no_group(command.group_id))

    def _heartbeat(self, command: Heartbeat, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.classic_heartbeat(group, command, moment, result)
        elif group is not None:
            group.heartbeat(command, moment, result)
        else:
            result.refuse(command, _no_group(command.group_id))

    def _leave(self, command: LeaveGroup, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.leave(group, command, moment, result)
        elif group is not None:
            group.leave(command, moment, result)
        elif not command.group_id:
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
        else:
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(command.members)
            result.reply(command, LeaveAnswer(ErrorCode.NONE, errors))

    def _commit(self, command: CommitOffsets, moment: Moment, result: Result) -> None:
        """A group nobody joined may have offsets too: a consumer that assigns itself commits without a generation."""
        if command.transaction is not None and not command.group_id:
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
            return
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            commit(group, self.offsets, command, moment, result)
            return
        error = _without_group(command) if group is None else group.check_commit(command, moment)
        if error is ErrorCode.NONE:
            self.offsets.commit(command, moment, result)
        else:
            result.refuse(command, error)

    def _fetch(self, command: FetchOffsets, result: Result) -> None:
        group = self.groups.get(command.group_id)
        error = group.check_fetch(command) if isinstance(group, ConsumerGroup) else ErrorCode.NONE
        if error is ErrorCode.NONE:
            found = self.offsets.fetch(command.group_id, command.topics, command.require_stable)
            result.reply(command, FetchAnswer(error, found))
        else:
            result.refuse(command, error)

    def _pass_time(self, command: PassTime, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.pass_time(group, moment, result)
        elif group is not None:
            group.pass_time(moment, result)

    def _delete_offsets(self, command: DeleteOffsets, result: Result) -> None:
        """What no member reads any more may be deleted, also while others are read."""
        group = self.groups.get(command.group_id)
        if not command.group_id:
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
        return DescribeAnswer(error=ErrorCode.GROUP_ID_NOT_FOUND, message=reason, state=Phase.DEAD.value)

    def _facts(self, command: AskFacts) -> FactsAnswer:
        group = self.groups.get(command.group_id)
        committed = [(index, one.topic_id) for index, one in self.offsets.of_topic(command.group_id, command.topic)]
        facts = None
        if isinstance(group, ConsumerGroup):
            facts = GroupFacts(group.state, group.kind, len(group.members), group.group_epoch, group.target_wall_ms)
        elif group is not None:
            facts = GroupFacts(group.state, group.kind, len(group.members), group.generation_id, 0)
        elif committed:
            facts = GroupFacts(EMPTY_STATE, CLASSIC, 0, 0, 0)
        return FactsAnswer(ErrorCode.NONE, facts, committed)

    def _listed(self, command: ListGroups) -> Iterator[ListedGroup]:
        """Also groups of which there is nothing but offsets: consumers that assign themselves have such."""
        states, kinds = command.states, command.kinds
        for group in self.groups.values():
            kind, state = group.kind, group.state
            if (not states or state.lower() in states) and (not kinds or kind in kinds):
                yield ListedGroup(group.group_id, group.listed_protocol_type, state, kind)
        if (not states or EMPTY_STATE.lower() in states) and (not kinds or CLASSIC in kinds):
            for group_id in self.offsets.group_ids() - self.groups.keys():
                yield ListedGroup(group_id, "", EMPTY_STATE, CLASSIC)

    # Upkeep

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._classic(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def _applied_to(self, group_id: str) -> ClassicGroup:
        """The group that a classic record is about."""
        group = self._classic(group_id)
        if group is None:
            group = self._succession.install(group_id, ClassicGroup, lambda: ClassicGroup(group_id, self._settings))
        return group

    def _settle(self, group_id: str) -> None:
        """After a decision: note the group's next deadline, and drop it if nothing came of it."""
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.is_forgettable:
            del self.groups[group_id]
        else:
            self._note_wake(group)

    def _note_wake(self, group: AnyGroup) -> None:
        if group.wake_ms is not None and (group.armed_ms is None or group.wake_ms < group.armed_ms):
            group.armed_ms = group.wake_ms
            heapq.heappush(self._wakes, (group.wake_ms, group.group_id))
            if len(self._wakes) > 2 * len(self.groups) + SPARE_WAKES_MAX:
                self._wakes = [(one.armed_ms, one.group_id) for one in self.groups.values() if one.armed_ms is not None]
                heapq.heapify(self._wakes)


def _no_group(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def _without_group(command: CommitOffsets) -> ErrorCode:
    if command.generation_id < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if command.knows_group_id_not_found else ErrorCode.ILLEGAL_GENERATION
