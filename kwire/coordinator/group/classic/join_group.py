"""JoinGroup of a classic group: who is let in, under which id, and whether that takes a rebalance."""

from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.classic import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup, Phase
from kwire.coordinator.group.commands import UNKNOWN_MEMBER, JoinAnswer, JoinGroup
from kwire.coordinator.group.members import Member, selected_protocol
from kwire.coordinator.group.metadata_budget import GROUP_METADATA_BYTES_MAX, metadata_bytes
from kwire.coordinator.group.records import encode_group_metadata
from kwire.errors import ErrorCode

# Member ids of one group that were handed out and not used yet.
PENDING_MEMBERS_MAX = 10_000
# What a client calls itself begins its member's id; so much of it tells members apart and keeps ids short.
STEM_LENGTH_MAX = 255


def join(group: ClassicGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
    if not _has_room(group, command.member_id):
        group.pending_members.pop(command.member_id, None)
        unlucky = group.members.get(command.member_id)
        if unlucky is not None:
            group.remove(unlucky, result)
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
    """group.max.size. During a rebalance only those count who have joined it: the last to come are the ones to go."""
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
    """What a member that comes without an id is called."""
    stem = command.client_id if command.group_instance_id is None else command.group_instance_id
    return f"{stem[:STEM_LENGTH_MAX]}-{command.fresh_id}"


def _join_new(group: ClassicGroup, command: JoinGroup, moment: Moment, result: Result) -> None:
    new_id = new_member_id(command)
    if command.group_instance_id is not None:
        old_id = group.static_members.get(command.group_instance_id)
        if old_id is not None:
            _return_static(group, group.members[old_id], new_id, command, moment, result)
        else:
            _add(group, new_id, command, moment, result)
    elif not command.requires_member_id:
        _add(group, new_id, command, moment, result)
    elif len(group.pending_members) >= PENDING_MEMBERS_MAX:
        result.reply(command, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=UNKNOWN_MEMBER))
    else:
        # A client that gives up now leaves no member behind, only an id that lapses (KIP-394).
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
        # Most likely the first answer was lost: give it again.
        group.renew_session(member, moment)
        result.reply(command, group.joined_answer(member.member_id))
    elif group.is_settled and is_unchanged and member.member_id != group.leader_id:
        # A follower with nothing new. The leader's join is always a wish to rebalance: it watches topic metadata.
        group.renew_session(member, moment)
        result.reply(command, group.joined_answer(member.member_id))
    else:
        _await_join(member, command, result)
        group.rebalance(moment, result)


def _add(group: ClassicGroup, member_id: str, command: JoinGroup, moment: Moment, result: Result) -> None:
    member = Member.joining(member_id, command)
    member.is_new = True
    member.waiting_join = command
    member.deadline_ms = moment.steady_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    group.wake_by(member.deadline_ms)
    group.add(member)
    group.rebalance(moment, result)


def _await_join(member: Member, command: JoinGroup, result: Result) -> None:
    """Take over what the member now says of itself, and hold its request until the generation begins."""
    if member.waiting_join is not None:
        # The client asked again, on another connection: the older request is only waiting for nobody.
        result.refuse(member.waiting_join, ErrorCode.REBALANCE_IN_PROGRESS)
    member.protocols = command.protocols
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    member.waiting_join = command


def _return_static(
    group: ClassicGroup, member: Member, new_id: str, command: JoinGroup, moment: Moment, result: Result
) -> None:
    """A static member restarted. If the chosen protocol stands, it gets its old assignment and nobody else notices."""
    old_leader = group.leader_id
    group.replace_static(member, new_id, result)
    _await_join(member, command, result)
    member.client_id, member.client_host = command.client_id, command.client_host
    group.renew_session(member, moment)
    if not group.is_settled or selected_protocol(group.members.values()) != group.protocol_name:
        group.rebalance(moment, result)
        return
    member.waiting_join = None
    assignments = {m.member_id: m.assignment for m in group.members.values()}
    result.records.append(encode_group_metadata(group.group_id, group.to_record(moment, assignments)))
    answer = group.joined_answer(new_id)
    if command.can_skip_assignment:
        answer = replace(answer, skip_assignment=new_id == group.leader_id)
    else:
        # An old client that hears it leads would compute an assignment: name the id that is gone as the leader.
        answer = replace(answer, leader=old_leader or UNKNOWN_MEMBER, members=())
    result.reply(command, answer)
