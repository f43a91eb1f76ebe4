"""JoinGroup of a classic group: accepts or refuses the member, chooses its id, and starts a rebalance if needed."""

from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup
from kwire.coordinator.group.classic.members import Member, selected_protocol
from kwire.coordinator.group.classic.metadata_budget import GROUP_METADATA_BYTES_MAX, metadata_bytes
from kwire.coordinator.group.classic.phase import Phase
from kwire.coordinator.group.commands import UNKNOWN_MEMBER, JoinAnswer, JoinGroup
from kwire.coordinator.group.records import encode_group_metadata
from kwire.errors import ErrorCode

# The maximum number of member ids of one group that were issued to clients that have not joined yet.
PENDING_MEMBERS_MAX = 10_000
# A member id begins with the client id (or the instance id), of which at most this many characters are used.
STEM_LENGTH_MAX = 255


def join(group: ClassicGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
    if not _has_room(group, command.member_id):
        group.pending_members.pop(command.member_id, None)
        excess = group.members.get(command.member_id)
        if excess is not None:
            group.remove(excess, result)
            group.rebalance(moment, result)
        result.reply(command, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=UNKNOWN_MEMBER))
    elif not _has_metadata_room(group, command):
        result.reply(command, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=UNKNOWN_MEMBER))
    elif not group.supports(command.protocol_type, command.protocols):
        result.refuse(command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif command.member_id == UNKNOWN_MEMBER:
        _join_new(group, command, moment, result)
    elif command.member_id in group.pending_members and command.group_instance_id is None:
        _add(group, command.member_id, command, moment, result)
    else:
        _rejoin(group, command, moment, result)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Return whether the member may join according to group.max.size.

    While a rebalance waits for joins, only members that have rejoined are counted. So if the group is too large, the
    last members to rejoin are refused.
    """
    max_size = group.settings.max_size
    member = group.members.get(member_id)
    if group.phase is Phase.PREPARING:
        if member is not None and member.waiting_join is not None:
            return True
        return sum(m.waiting_join is not None for m in group.members.values()) < max_size
    if group.phase in (Phase.COMPLETING, Phase.STABLE):
        return member is not None or len(group.members) < max_size
    return True


def _has_metadata_room(group: ClassicGroup, command: JoinGroup) -> bool:
    others = (one.protocols for one in group.members.values() if one.member_id != command.member_id)
    return metadata_bytes(command.protocols) + sum(map(metadata_bytes, others)) <= GROUP_METADATA_BYTES_MAX


def new_member_id(command: JoinGroup) -> str:
    """Return the member id for a member that joins without one."""
    stem = command.client_id if command.group_instance_id is None else command.group_instance_id
    return f"{stem[:STEM_LENGTH_MAX]}-{command.fresh_id}"


def _join_new(group: ClassicGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
    new_id = new_member_id(command)
    if command.group_instance_id is not None:
        old_id = group.static_members.get(command.group_instance_id)
        if old_id is not None:
            _rejoin_static(group, group.members[old_id], new_id, command, moment, result)
        else:
            _add(group, new_id, command, moment, result)
    elif not command.requires_member_id:
        _add(group, new_id, command, moment, result)
    elif len(group.pending_members) >= PENDING_MEMBERS_MAX:
        result.reply(command, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=UNKNOWN_MEMBER))
    else:
        # The client becomes a member only when it joins again with this id. If the client does not, the id expires
        # (KIP-394).
        deadline_ms = moment.steady_ms + command.session_timeout_ms
        group.pending_members[new_id] = deadline_ms
        group.wake_by(deadline_ms)
        result.reply(command, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id))


def _rejoin(group: ClassicGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
    error = group.check_member(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        result.refuse(command, error)
        return
    member = group.members[command.member_id]
    is_unchanged = member.protocols == command.protocols
    if group.phase is Phase.COMPLETING and is_unchanged:
        # The client probably did not receive the first answer, so send it again.
        group.renew_session(member, moment)
        result.reply(command, group.joined_answer(member.member_id))
    elif group.needs_no_rebalance and is_unchanged and member.member_id != group.leader_id:
        # A follower without changes needs no rebalance. If the leader rejoins, a rebalance is needed, because a leader
        # rejoins when topics have changed.
        group.renew_session(member, moment)
        result.reply(command, group.joined_answer(member.member_id))
    else:
        _hold_join(member, command, result)
        group.rebalance(moment, result)


def _add(group: ClassicGroup, member_id: str, command: JoinGroup, moment: Moment, result: Result) -> None:
    member = Member.joining(member_id, command)
    member.is_new = True
    member.waiting_join = command
    member.deadline_ms = moment.steady_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    group.wake_by(member.deadline_ms)
    group.add(member)
    group.rebalance(moment, result)


def _hold_join(member: Member, command: JoinGroup, result: Result) -> None:
    """Store the member's new protocols and timeouts. Its JoinGroup waits until the next generation begins."""
    if member.waiting_join is not None:
        # The client has sent JoinGroup again on another connection, so it does not read the answer to the old request.
        result.refuse(member.waiting_join, ErrorCode.REBALANCE_IN_PROGRESS)
    member.protocols = command.protocols
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    member.waiting_join = command


def _rejoin_static(
    group: ClassicGroup, member: Member, new_id: str, command: JoinGroup, moment: Moment, result: Result
) -> None:
    """Handle the JoinGroup of a restarted static member.

    In a stable group whose protocol stays the same, the member keeps its assignment and there is no rebalance.
    """
    old_leader = group.leader_id
    group.replace_static(member, new_id, result)
    _hold_join(member, command, result)
    member.client_id, member.client_host = command.client_id, command.client_host
    group.renew_session(member, moment)
    if not group.needs_no_rebalance or selected_protocol(group.members.values()) != group.protocol_name:
        group.rebalance(moment, result)
        return
    member.waiting_join = None
    assignments = {m.member_id: m.assignment for m in group.members.values()}
    result.records.append(encode_group_metadata(group.group_id, group.to_record(moment, assignments)))
    answer = group.joined_answer(new_id)
    if command.can_skip_assignment:
        answer = replace(answer, skip_assignment=new_id == group.leader_id)
    else:
        # An old client does not support `skip_assignment`: if the answer named it as the leader, it would compute an
        # assignment. So the answer names the member that was the leader until now. If that was this member, the answer
        # has its old id.
        answer = replace(answer, leader=old_leader or UNKNOWN_MEMBER, members=())
    result.reply(command, answer)
