"""One partition of `__consumer_offsets` as a state machine: its groups and their offsets."""

import heapq

from kwire.coordinator.group.classic import ClassicGroup, Phase
from kwire.coordinator.group.commands import (
    UNKNOWN_MEMBER,
    CommitOffsets,
    FetchAnswer,
    FetchOffsets,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    PassTime,
    SyncGroup,
)
from kwire.coordinator.group.joining import join
from kwire.coordinator.group.offsets import CommittedOffsets
from kwire.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord, decode_record
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.runtime import Command, Moment, Result
from kwire.errors import ErrorCode

# Groups with members, or on their way to have some, in one shard; nobody can fill the memory by inventing names.
GROUPS_MAX = 100_000


class GroupShard:
    """Routes each command to its group. A group exists here while it has a record, members or ids handed out."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = CommittedOffsets(settings)
        # (steady_ms, group id), one live entry for each group that has a deadline; older ones are passed over.
        self._wakes: list[tuple[int, str]] = []

    def step(self, command: GroupCommand, moment: Moment) -> Result:
        result = Result()
        if isinstance(command, Heartbeat):
            self._heartbeat(command, moment, result)
        elif isinstance(command, CommitOffsets):
            self._commit(command, moment, result)
        elif isinstance(command, FetchOffsets):
            result.reply(command, FetchAnswer(ErrorCode.NONE, self.offsets.fetch(command.group_id, command.topics)))
        elif isinstance(command, JoinGroup):
            self._join(command, moment, result)
        elif isinstance(command, SyncGroup):
            self._sync(command, moment, result)
        elif isinstance(command, LeaveGroup):
            self._leave(command, moment, result)
        else:
            self._pass_time(command, moment, result)
        self._settle(command.group_id)
        return result

    def apply(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        if isinstance(record, OffsetCommitRecord):
            self.offsets.apply(record)
        elif isinstance(record, GroupMetadataRecord):
            if record.value is None:
                group = self.groups.pop(record.group_id, None)
                if group is not None:
                    group.phase = Phase.DEAD
            else:
                self._group(record.group_id).apply(record.value)

    def loaded(self, moment: Moment) -> None:
        for group in self.groups.values():
            group.loaded(moment)
            self._note_wake(group)

    def wake_ms(self) -> int | None:
        return self._wakes[0][0] if self._wakes else None

    def due(self, steady_ms: int) -> list[Command[object]]:
        commands: list[Command[object]] = []
        while self._wakes and self._wakes[0][0] <= steady_ms:
            noted_ms, group_id = heapq.heappop(self._wakes)
            group = self.groups.get(group_id)
            if group is not None and group.armed_ms == noted_ms:
                group.armed_ms = None
                commands.append(PassTime(group_id))
        return commands

    # Each command

    def _join(self, command: JoinGroup, moment: Moment, result: Result) -> None:
        timeout_ms = command.session_timeout_ms
        if not command.group_id:
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
        elif not self._settings.min_session_timeout_ms <= timeout_ms <= self._settings.max_session_timeout_ms:
            result.refuse(command, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif command.group_id in self.groups or command.member_id == UNKNOWN_MEMBER:
            if command.group_id not in self.groups and len(self.groups) >= GROUPS_MAX:
                result.refuse(command, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                join(self._group(command.group_id), command, moment, result)
        else:
            result.refuse(command, ErrorCode.UNKNOWN_MEMBER_ID)

    def _sync(self, command: SyncGroup, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            group.sync(command, moment, result)
        else:
            result.refuse(command, _no_group(command.group_id))

    def _heartbeat(self, command: Heartbeat, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            group.heartbeat(command, moment, result)
        else:
            result.refuse(command, _no_group(command.group_id))

    def _leave(self, command: LeaveGroup, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            group.leave(command, moment, result)
        elif not command.group_id:
            result.refuse(command, ErrorCode.INVALID_GROUP_ID)
        else:
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(command.members)
            result.reply(command, LeaveAnswer(ErrorCode.NONE, errors))

    def _commit(self, command: CommitOffsets, moment: Moment, result: Result) -> None:
        """A group nobody joined may have offsets too: a consumer that assigns itself commits without a generation."""
        group = self.groups.get(command.group_id)
        if group is not None:
            error = group.check_commit(command, moment)
        else:
            error = ErrorCode.ILLEGAL_GENERATION if command.generation_id >= 0 else ErrorCode.NONE
        if error is ErrorCode.NONE:
            self.offsets.commit(command, moment, result)
        else:
            result.refuse(command, error)

    def _pass_time(self, command: PassTime, moment: Moment, result: Result) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            group.pass_time(moment, result, has_offsets=self.offsets.has_any(command.group_id))

    # Upkeep

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
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

    def _note_wake(self, group: ClassicGroup) -> None:
        if group.wake_ms is not None and (group.armed_ms is None or group.wake_ms < group.armed_ms):
            group.armed_ms = group.wake_ms
            heapq.heappush(self._wakes, (group.wake_ms, group.group_id))


def _no_group(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
