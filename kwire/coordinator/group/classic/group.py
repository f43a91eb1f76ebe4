"""A classic group: the rebalance protocol in which one member, the leader, computes the assignment.

    Empty -- join --> PreparingRebalance -- all joined, or timeout --> CompletingRebalance
    CompletingRebalance -- the leader's sync is stored --> Stable -- join, leave, expiry --> PreparingRebalance
    PreparingRebalance -- no members left --> Empty -- deleted, or no offsets left at cleanup --> Dead

Only `stored`, the last group record in the log, survives a restart. `stored` changes only in `apply`. After a restart,
the group is in its last Stable or Empty state. Members of an interrupted rebalance have another generation, so they get
an error and rejoin. A failed append needs no rollback: waiting members get an error and retry.

The shard calls `check_deadlines` at `wake_ms`, which is at or before the group's earliest deadline. A heartbeat only
moves a deadline to a later time, so it does not change `wake_ms`.
"""

from collections.abc import Iterator

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.classic.embedded_protocol import CONSUMERS
from kwire.coordinator.group.classic.members import Member, common_protocols, selected_protocol
from kwire.coordinator.group.classic.phase import Phase
from kwire.coordinator.group.classic.subscriptions import subscribed_topics
from kwire.coordinator.group.commands import (
    UNKNOWN_MEMBER,
    CommitOffsets,
    CommittedOffset,
    DescribeAnswer,
    Heartbeat,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    LeaveGroup,
    LeavingMember,
    SyncAnswer,
    SyncGroup,
)
from kwire.coordinator.group.group_interface import CLASSIC
from kwire.coordinator.group.records import GroupMetadataValue, encode_group_metadata
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode

# A new member cannot send heartbeats while its JoinGroup waits. If it waits longer than this, the member is removed.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
# The minimum time until a rebalance that could not complete is retried: no member could lead it, or an append failed.
RETRY_MS = 1_000


class ClassicGroup:
    """One classic group. Its shard makes one decision at a time, and applies the records before the next decision."""

    __slots__ = (
        "armed_ms",
        "generation_id",
        "group_id",
        "has_new_member",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_initial_rebalance",
        "join_deadline_ms",
        "leader_id",
        "members",
        "pending_members",
        "pending_sync",
        "phase",
        "protocol_name",
        "protocol_type",
        "settings",
        "static_members",
        "stored",
        "subscribed",
        "subscribed_generation_id",
        "sync_deadline_ms",
        "wake_ms",
    )

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.stored: GroupMetadataValue | None = None

        self.phase = Phase.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}

        # Member ids that were issued to clients that have not joined yet, with the time at which the ids expire.
        self.pending_members: dict[str, int] = {}
        # Ids of members that joined this generation and have not sent SyncGroup. They are removed at the sync deadline.
        self.pending_sync: set[str] = set()
        self.sync_deadline_ms: int | None = None
        self.join_deadline_ms: int | None = None
        # The first rebalance of an empty group waits for more members. The wait is extended while new members join.
        self.is_initial_rebalance = False
        self.has_new_member = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        # The subscribed topics of a generation, computed on first use.
        self.subscribed: frozenset[str] | None = None
        self.subscribed_generation_id: int | None = None

        self.wake_ms: int | None = None
        # The time at which the shard will wake this group. Only the shard uses it.
        self.armed_ms: int | None = None

    # State queries

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_members and all(m.waiting_join is not None for m in self.members.values())

    @property
    def is_leaderless(self) -> bool:
        """Whether the group has members but no leader, after a downgrade. The members must rejoin to elect a leader."""
        return self.leader_id is None and bool(self.members)

    @property
    def needs_no_rebalance(self) -> bool:
        """Whether all members have their assignment and no member has to rejoin."""
        return self.phase is Phase.STABLE and not self.is_leaderless

    @property
    def is_retained_when_empty(self) -> bool:
        return False

    @property
    def is_discardable(self) -> bool:
        """Whether the group can be removed from memory: it has no record, no members and no pending member ids."""
        return self.phase is Phase.EMPTY and self.stored is None and not self.pending_members

    @property
    def kind(self) -> str:
        return CLASSIC

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.phase is Phase.EMPTY and not self.pending_members

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        if not self.members:
            return bool(protocol_type and protocols)
        common = common_protocols(self.members.values())
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE if the member id is valid. For a static member, it must be the newest id of the instance id."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joined_members(self) -> list[JoinedMember]:
        """Return the members with their metadata. The leader computes the assignment from these."""
        name = self.protocol_name
        return [JoinedMember(m.member_id, m.group_instance_id, m.metadata_for(name)) for m in self.members.values()]

    def joined_answer(self, member_id: str) -> JoinAnswer:
        """Return the JoinGroup answer for this member in the current generation."""
        is_leader = member_id == self.leader_id
        return JoinAnswer(
            error=ErrorCode.NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or UNKNOWN_MEMBER,
            member_id=member_id,
            members=self.joined_members() if is_leader else (),
        )

    def described(self) -> DescribeAnswer:
        """Return the DescribeGroups answer. Protocol, subscriptions and assignments are empty unless Stable."""
        is_stable = self.phase is Phase.STABLE
        return DescribeAnswer(
            error=ErrorCode.NONE,
            state=self.state,
            protocol_type=self.listed_protocol_type,
            protocol_name=self.protocol_name or "" if is_stable else "",
            members=[member.described(self.protocol_name, is_stable) for member in self.members.values()],
        )

    def to_record(self, moment: Moment, assignments: dict[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=moment.wall_ms,
            members=[
                member.to_record(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ],
        )

    # Deletion, and expiration of offsets

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.phase is Phase.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self) -> ErrorCode:
        """Return NONE if the group is empty or its protocol type is `consumer`. Only then subscriptions are known."""
        if self.phase is Phase.EMPTY or self.protocol_type == CONSUMERS:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def tombstones(self) -> list[KeyValue]:
        return [encode_group_metadata(self.group_id, None)]

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to this topic. True if a consumer's subscription cannot be decoded."""
        topics = self._subscribed_topics()
        return self.protocol_type == CONSUMERS if topics is None else topic in topics

    def unused_since_ms(self, committed: CommittedOffset) -> int | None:
        """Return the time at which the group became empty, else the commit time; None if the offset may be in use."""
        if self.protocol_type is None:
            return committed.commit_timestamp_ms
        if self.phase is Phase.EMPTY:
            since_ms = self.stored.current_state_timestamp if self.stored is not None else -1
            return since_ms if since_ms >= 0 else committed.commit_timestamp_ms
        is_known = self.phase is Phase.STABLE and self._subscribed_topics() is not None
        return committed.commit_timestamp_ms if is_known else None

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMERS:
            return None
        if not self.members:
            return frozenset()
        if self.subscribed_generation_id != self.generation_id:
            metadata = [member.metadata_for(self.protocol_name) for member in self.members.values()]
            self.subscribed = subscribed_topics(self.group_id, metadata)
            self.subscribed_generation_id = self.generation_id
        return self.subscribed

    # Replay

    def apply(self, value: GroupMetadataValue) -> None:
        """Apply a group record. The group becomes Stable if the record has members, else Empty."""
        self.stored = value
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        known = self.members
        self.members = {}
        self.static_members = {}
        for stored in value.members:
            member = known.get(stored.member_id)
            if member is None:
                member = Member.stored(stored, value.protocol)
            else:
                member.apply_record(stored, value.protocol)
            self.members[member.member_id] = member
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
        self.phase = Phase.STABLE if self.members else Phase.EMPTY
        self.join_deadline_ms = None
        self.is_initial_rebalance = False

    def loaded(self, moment: Moment) -> None:
        """Start a new session for every member. Called when the replay has finished."""
        for member in self.members.values():
            self.renew_session(member, moment)
        self._plan_next_wake()
        if self.is_leaderless:
            self.wake_by(moment.steady_ms)

    # SyncGroup, Heartbeat, LeaveGroup, OffsetCommit; JoinGroup is in join_group.py

    def sync(self, command: SyncGroup, moment: Moment, result: Result) -> None:
        error = self._check_sync(command)
        if error is not ErrorCode.NONE:
            result.refuse(command, error)
            return
        member = self.members[command.member_id]
        self.pending_sync.discard(member.member_id)
        if self.phase is Phase.STABLE:
            self.renew_session(member, moment)
            result.reply(command, self._synced_answer(member.assignment))
            return
        if member.waiting_sync is not None:
            result.refuse(member.waiting_sync, ErrorCode.REBALANCE_IN_PROGRESS)
        member.waiting_sync = command
        if member.member_id == self.leader_id:
            self._store_assignments(command.assignments, moment, result)
        else:
            command.assignments.clear()  # frees memory while the member waits: only the leader's assignments are used

    def _check_sync(self, command: SyncGroup) -> ErrorCode:
        error = self.check_member(command.member_id, command.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if command.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if command.protocol_type is not None and command.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if command.protocol_name is not None and command.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_rebalancing = self.phase is Phase.PREPARING or self.is_leaderless
        return ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE

    def _synced_answer(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=assignment,
        )

    def _store_assignments(self, assignments: dict[str, bytes], moment: Moment, result: Result) -> None:
        """Write a record with the leader's assignments. When the record is applied, the group becomes Stable."""
        result.records.append(encode_group_metadata(self.group_id, self.to_record(moment, assignments)))
        for member in self.members.values():
            if member.waiting_sync is not None:
                waiting, member.waiting_sync = member.waiting_sync, None
                result.reply(waiting, self._synced_answer(assignments.get(member.member_id, b"")))
                self.renew_session(member, moment)

    def heartbeat(self, command: Heartbeat, moment: Moment, result: Result) -> None:
        error = self.check_member(command.member_id, command.group_instance_id)
        if error is ErrorCode.NONE and command.generation_id != self.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE:
            self.renew_session(self.members[command.member_id], moment)
            if self.phase is Phase.PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        result.reply(command, error)

    def leave(self, command: LeaveGroup, moment: Moment, result: Result) -> None:
        """Remove all members that the request names. This causes at most one rebalance."""
        member_count = len(self.members)
        errors = [self._leave_one(leaving, result) for leaving in command.members]
        result.reply(command, LeaveAnswer(ErrorCode.NONE, errors))
        if len(self.members) != member_count:
            self.rebalance(moment, result)
        else:
            self.complete_if_all_joined(moment, result)

    def _leave_one(self, leaving: LeavingMember, result: Result) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id alone (KIP-345).
            member_id = self.static_members.get(leaving.group_instance_id or "", UNKNOWN_MEMBER)
            if member_id == UNKNOWN_MEMBER:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif self.pending_members.pop(member_id, None) is not None:
            return ErrorCode.NONE
        error = self.check_member(member_id, leaving.group_instance_id)
        if error is ErrorCode.NONE:
            self.remove(self.members[member_id], result)
        return error

    def check_commit(self, command: CommitOffsets, moment: Moment) -> ErrorCode:
        """Return NONE if the client may commit: a member of this generation, or any client while the group is empty.

        In a transaction, a client may also commit without a member id: TxnOffsetCommit before version 3 has none.
        """
        if command.generation_id < 0 and self.phase is Phase.EMPTY:
            return ErrorCode.NONE
        is_anonymous = command.member_id == UNKNOWN_MEMBER and command.group_instance_id is None
        if command.generation_id < 0 and is_anonymous:
            return ErrorCode.UNKNOWN_MEMBER_ID if command.transaction is None else ErrorCode.NONE
        error = self.check_member(command.member_id, command.group_instance_id)
        if error:
            return error
        if command.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if command.transaction is not None:
            return error
        if self.phase is Phase.COMPLETING:
            # The member has the new generation but not its new assignment. It may no longer own the partitions.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.renew_session(self.members[command.member_id], moment)
        return error

    # Rebalancing

    def rebalance(self, moment: Moment, result: Result) -> None:
        """Start a rebalance, because members or metadata have changed. Complete it if all members have joined."""
        if self.phase is Phase.PREPARING:
            self.complete_if_all_joined(moment, result)
            return
        if self.phase is Phase.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.waiting_sync is not None:
                    waiting, member.waiting_sync = member.waiting_sync, None
                    result.refuse(waiting, ErrorCode.REBALANCE_IN_PROGRESS)
                    self.renew_session(member, moment)
        self.pending_sync.clear()
        self.sync_deadline_ms = None
        self.is_initial_rebalance = self.phase is Phase.EMPTY
        self.phase = Phase.PREPARING
        if self.is_initial_rebalance:
            self.has_new_member = False
            self.initial_delay_ms = self.settings.initial_rebalance_delay_ms
            self.initial_remaining_ms = max(self.rebalance_timeout_ms - self.initial_delay_ms, 0)
            self._set_join_deadline(moment.steady_ms + self.initial_delay_ms)
            if self.initial_delay_ms == 0:
                self._complete_join(moment, result)
        else:
            self._set_join_deadline(moment.steady_ms + self.rebalance_timeout_ms)
            self.complete_if_all_joined(moment, result)

    def complete_if_all_joined(self, moment: Moment, result: Result) -> None:
        if self.phase is Phase.PREPARING and not self.is_initial_rebalance and self.has_all_joined:
            self._complete_join(moment, result)

    def _join_deadline_passed(self, moment: Moment, result: Result) -> None:
        if self.is_initial_rebalance and self.has_new_member and self.initial_remaining_ms > 0:
            # A new member has joined during the delay: wait again, but in total no longer than the rebalance timeout.
            self.has_new_member = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self.initial_remaining_ms)
            self.initial_remaining_ms = max(self.initial_remaining_ms - self.initial_delay_ms, 0)
            self.initial_delay_ms = delay_ms
            self._set_join_deadline(moment.steady_ms + delay_ms)
        else:
            self._complete_join(moment, result)

    def _complete_join(self, moment: Moment, result: Result) -> None:
        """Begin the next generation with the members that joined, and static members whose session has not expired."""
        for member in list(self.members.values()):
            if member.waiting_join is None and not member.is_static:
                self.remove(member, result)
        if not self.members:
            self._become_empty(moment, result)
            return
        if not self._elect_joined_leader():
            # Only static members that have not rejoined are left: wait until one rejoins or their sessions expire.
            self._set_join_deadline(moment.steady_ms + max(self.rebalance_timeout_ms, RETRY_MS))
            return
        self.generation_id += 1
        self.protocol_name = selected_protocol(self.members.values())
        self.phase = Phase.COMPLETING
        self.join_deadline_ms = None
        self.is_initial_rebalance = False
        for member in self.members.values():
            if member.waiting_join is not None:
                waiting, member.waiting_join = member.waiting_join, None
                result.reply(waiting, self.joined_answer(member.member_id))
            member.is_new = False
            self.renew_session(member, moment)
        self.pending_sync = set(self.members)
        self.sync_deadline_ms = moment.steady_ms + self.rebalance_timeout_ms
        self.wake_by(self.sync_deadline_ms)

    def _become_empty(self, moment: Moment, result: Result) -> None:
        """Write the record that makes the group Empty. The record has the next generation, which fences old members."""
        self._set_join_deadline(moment.steady_ms + RETRY_MS)
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=moment.wall_ms,
            members=[],
        )
        result.records.append(encode_group_metadata(self.group_id, value))

    def _elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect the first member that has joined. Return False if none has."""
        leader = self.members.get(self.leader_id or UNKNOWN_MEMBER)
        if leader is not None and leader.waiting_join is not None:
            return True
        for member in self.members.values():
            if member.waiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # Members

    def add(self, member: Member) -> None:
        if not self.members:
            assert member.waiting_join is not None
            self.protocol_type = member.waiting_join.protocol_type
            self.leader_id = member.member_id
        if self.phase is Phase.PREPARING and self.is_initial_rebalance:
            self.has_new_member = True
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id

    def remove(self, member: Member, result: Result) -> None:
        """Remove a member. Answer its waiting requests with UNKNOWN_MEMBER_ID, so that the client joins again."""
        del self.members[member.member_id]
        self.pending_sync.discard(member.member_id)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        self.refuse_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, result)

    def refuse_waiting(self, member: Member, error: ErrorCode, result: Result) -> None:
        """Answer the waiting requests of a member with an error."""
        for waiting in (member.waiting_join, member.waiting_sync):
            if waiting is not None:
                result.refuse(waiting, error)
        member.waiting_join = member.waiting_sync = None

    def replace_static(self, old: Member, new_id: str, result: Result) -> None:
        """Give a static member the member id of its new process. The old process is fenced."""
        self.refuse_waiting(old, ErrorCode.FENCED_INSTANCE_ID, result)
        old_id, old.member_id = old.member_id, new_id
        self.members = {member.member_id: member for member in self.members.values()}
        assert old.group_instance_id is not None
        self.static_members[old.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)

    # Time

    def renew_session(self, member: Member, moment: Moment) -> None:
        member.deadline_ms = moment.steady_ms + member.session_timeout_ms
        self.wake_by(member.deadline_ms)

    def wake_by(self, steady_ms: int) -> None:
        if self.wake_ms is None or steady_ms < self.wake_ms:
            self.wake_ms = steady_ms

    def _set_join_deadline(self, steady_ms: int) -> None:
        self.join_deadline_ms = steady_ms
        self.wake_by(steady_ms)

    def check_deadlines(self, moment: Moment, result: Result) -> None:
        """Handle all deadlines of the group that have passed."""
        now_ms = moment.steady_ms
        self._expire_members(moment, result)
        if self.phase is Phase.STABLE and self.is_leaderless:
            self.rebalance(moment, result)
        if self.phase is Phase.PREPARING and self.join_deadline_ms is not None and self.join_deadline_ms <= now_ms:
            self._join_deadline_passed(moment, result)
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= now_ms:
            self._sync_deadline_passed(moment, result)
        self._plan_next_wake()

    def _expire_members(self, moment: Moment, result: Result) -> None:
        now_ms = moment.steady_ms
        late_pending = [member_id for member_id, deadline_ms in self.pending_members.items() if deadline_ms <= now_ms]
        for member_id in late_pending:
            del self.pending_members[member_id]
        late = [m for m in self.members.values() if m.deadline_ms <= now_ms and not m.is_exempt_from_expiry]
        for member in late:
            self.remove(member, result)
        if late:
            self.rebalance(moment, result)
        elif late_pending:
            self.complete_if_all_joined(moment, result)

    def _sync_deadline_passed(self, moment: Moment, result: Result) -> None:
        """Remove the members that joined but did not send SyncGroup. Start a rebalance of the other members."""
        self.sync_deadline_ms = None
        silent = [self.members[member_id] for member_id in sorted(self.pending_sync)]
        for member in silent:
            self.remove(member, result)
        if silent:
            self.rebalance(moment, result)

    def _plan_next_wake(self) -> None:
        self.wake_ms = min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[int]:
        yield from self.pending_members.values()
        for member in self.members.values():
            if not member.is_exempt_from_expiry:
                yield member.deadline_ms
        if self.phase is Phase.PREPARING and self.join_deadline_ms is not None:
            yield self.join_deadline_ms
        if self.pending_sync and self.sync_deadline_ms is not None:
            yield self.sync_deadline_ms
