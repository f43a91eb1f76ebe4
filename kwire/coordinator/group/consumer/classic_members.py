"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup while a group changes protocols.

Such a member does not know that it is in a consumer group. Its epoch is its generation, nobody leads, and what it is
assigned comes from the group's target. It moves only by joining: whenever it has to give something up, or could have
more, its heartbeat says REBALANCE_IN_PROGRESS, and it joins again. One that gives up everything before it joins (the
eager protocols) has its new share after one round; one that keeps what it may (the cooperative protocol) says what it
owns, is told what it may keep, and joins again without the rest.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.commands import (
    UNKNOWN_MEMBER,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncAnswer,
    SyncGroup,
)
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import Plan, Who, check_room
from kwire.coordinator.group.consumer.members import (
    NEW_ASSIGNMENT,
    NEW_SUBSCRIPTION,
    NO_TARGET,
    ConsumerMember,
    MemberState,
    Subscription,
)
from kwire.coordinator.group.consumer.target import metadata_hash
from kwire.coordinator.group.embedded import CONSUMERS, read_subscription, version_of, write_assignment
from kwire.coordinator.group.topics_view import TopicsView
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from kwire.wire.errors import WireError
from kwire.wire.records.consumer_group import ClassicMemberMetadata, ClassicProtocol

# JoinGroup


class Joining(Struct, frozen=True):
    """A join that may be: who joins, and what it says of itself."""

    command: JoinGroup
    who: Who
    said: Subscription
    owned: Mapping[bytes, list[int]]

    @property
    def member_id(self) -> str:
        return self.who.member_id


def check_join(group: ConsumerGroup, command: JoinGroup, fresh_id: str) -> Joining:
    """Raises KafkaError. `fresh_id` is the id that a new member gets."""
    if group.settings.migration_policy.is_disabled:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration "
            "is disabled.",
        )
    check_room(group, command.member_id)
    if not _supports(group, command):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {command.member_id}'s protocols are not supported."
        )
    try:
        subscription = read_subscription(command.protocols[0][1])
    except WireError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The embedded consumer protocol is malformed."
        ) from error
    who = _find(group, command, fresh_id)
    return Joining(command, who, _said(who.said, command, subscription), _owned(subscription, group.topics))


def _supports(group: ConsumerGroup, command: JoinGroup) -> bool:
    """The classic members have to have a protocol in common, because they may be all that is left one day."""
    common = {name for name, _ in command.protocols}
    for member in group.members.values():
        if member.subscription.classic is not None:
            common &= {one.name for one in member.subscription.classic.supported_protocols}
    return command.protocol_type == CONSUMERS and bool(common)


def _find(group: ConsumerGroup, command: JoinGroup, fresh_id: str) -> Who:
    is_new = command.member_id == UNKNOWN_MEMBER
    member_id = fresh_id if is_new else command.member_id
    member = group.members.get(member_id)
    if command.group_instance_id is not None:
        if not is_new:
            member = group.static_member(command.group_instance_id, member_id)
        elif (old_id := group.static_members.get(command.group_instance_id)) is not None:
            old = group.members[old_id]
            current = replace(old.current, member_epoch=0, previous_member_epoch=0)
            return Who(member_id, old.subscription, current, replaces=old)
    if member is None:
        # Also with an id of its own: it may have got it just before the group became a consumer group.
        return Who(member_id, NEW_SUBSCRIPTION, NEW_ASSIGNMENT)
    return Who(member_id, member.subscription, member.current)


def _said(before: Subscription, command: JoinGroup, subscription: ConsumerProtocolSubscription) -> Subscription:
    timeout_ms = command.rebalance_timeout_ms
    return Subscription(
        instance_id=before.instance_id if command.group_instance_id is None else command.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topic_names=frozenset(subscription.topics),
        server_assignor=before.server_assignor,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=command.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in command.protocols],
        ),
    )


def _owned(subscription: ConsumerProtocolSubscription, topics: TopicsView) -> dict[bytes, list[int]]:
    """Nothing, if the member does not say: then it has given up everything before it joined."""
    owned: dict[bytes, list[int]] = {}
    for one in subscription.owned_partitions:
        shape = topics.find(one.topic)
        if shape is not None:
            owned.setdefault(shape.topic_id, []).extend(one.partitions)
    return owned


def join(group: ConsumerGroup, joining: Joining, moment: Moment, result: Result) -> None:
    """Nobody waits for others here: the member is told at once how far it has come."""
    command, who, said = joining.command, joining.who, joining.said
    if command.member_id == UNKNOWN_MEMBER and command.group_instance_id is None and command.requires_member_id:
        result.reply(command, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=who.member_id))
        return
    plan = Plan(group, who, said)
    plan.subscribe()
    plan.search_topics(moment)
    plan.assign(moment)
    current = plan.reconcile(joining.owned)
    group.rebalance_deadlines_ms.pop(who.member_id, None)
    group.renew_session(who.member_id, moment, command.session_timeout_ms)
    group.await_sync(who.member_id, said.rebalance_timeout_ms, moment)
    result.records += plan.records
    result.reply(
        command,
        JoinAnswer(
            error=ErrorCode.NONE,
            generation_id=current.member_epoch,
            protocol_type=CONSUMERS,
            protocol_name=command.protocols[0][0],
            member_id=who.member_id,
        ),
    )


# SyncGroup, Heartbeat


def sync(group: ConsumerGroup, command: SyncGroup, moment: Moment, result: Result) -> None:
    """Raises KafkaError."""
    member, classic = _classic_member(group, command)
    name = classic.supported_protocols[0].name if classic.supported_protocols else None
    if command.protocol_type not in (None, CONSUMERS) or command.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol is not the one of the JoinGroup answer.")
    current = member.current
    # One that is to give up partitions has joined for the new target already, and is told what it may keep.
    if group.target_epoch > current.member_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        group.await_join(member.member_id, member.subscription.rebalance_timeout_ms, moment)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The member has to join again to catch up.")
    group.sync_deadlines_ms.pop(member.member_id, None)
    group.renew_session(member.member_id, moment, classic.session_timeout_ms)
    metadata = classic.supported_protocols[0].metadata if classic.supported_protocols else b""
    answer = SyncAnswer(
        error=ErrorCode.NONE,
        protocol_type=command.protocol_type,
        protocol_name=command.protocol_name,
        assignment=encoded_assignment(current.assigned, bytes(metadata), group.topics),
    )
    result.reply(command, answer)


def heartbeat(group: ConsumerGroup, command: Heartbeat, moment: Moment, result: Result) -> None:
    """Raises KafkaError."""
    member, classic = _classic_member(group, command)
    group.renew_session(member.member_id, moment, classic.session_timeout_ms)
    error = ErrorCode.NONE
    if _has_to_join(group, member, moment):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        group.await_join(member.member_id, member.subscription.rebalance_timeout_ms, moment)
    result.reply(command, error)


def _classic_member(
    group: ConsumerGroup, command: SyncGroup | Heartbeat
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    if command.group_instance_id is None:
        member = group.member(command.member_id)
    else:
        member = group.static_member(command.group_instance_id, command.member_id)
    classic = member.subscription.classic
    if classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    if command.generation_id != member.current.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The generation {command.generation_id} is not the epoch {member.current.member_epoch} of the member.",
        )
    return member, classic


def _has_to_join(group: ConsumerGroup, member: ConsumerMember, moment: Moment) -> bool:
    current = member.current
    if current.member_epoch < group.target_epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member):
        return True
    # In a group of classic members only, it takes one of them to have a new target computed.
    return (group.group_epoch > group.target_epoch and group.may_assign(moment)) or _have_topics_changed(group)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether somebody still has a partition that this one shall have."""
    own_ids = (member.member_id,)
    return any(
        not group.is_free(topic_id, index, own_ids)
        for topic_id, indexes in group.targets.get(member.member_id, NO_TARGET).items()
        for index in indexes
    )


def _have_topics_changed(group: ConsumerGroup) -> bool:
    """If a member speaks the consumer protocol, its heartbeat notices; classic ones rely on a leader, and have none."""
    revision = group.topics.revision
    if group.seen_revision == revision or any(not one.is_classic for one in group.members.values()):
        return False
    if metadata_hash(group.subscribed, group.topics) != group.metadata_hash:
        return True
    group.seen_revision = revision
    return False


def encoded_assignment(partitions: Mapping[bytes, Iterable[int]], metadata: bytes, topics: TopicsView) -> bytes:
    """Partitions as a classic member reads them, in the version of what it says itself."""
    by_name = {
        name: indexes for topic_id, indexes in partitions.items() if (name := topics.name_of(topic_id)) is not None
    }
    try:
        version = version_of(metadata)
    except WireError:
        version = 0
    return write_assignment(by_name, version)


# LeaveGroup


def leaving(group: ConsumerGroup, command: LeaveGroup) -> tuple[dict[str, ConsumerMember], list[ErrorCode]]:
    """Those who go, and one error for each that was named. Members of the consumer protocol can be sent away too."""
    gone: dict[str, ConsumerMember] = {}
    errors = []
    for one in command.members:
        try:
            member = _leaving_member(group, one)
        except KafkaError as error:
            errors.append(error.code)
        else:
            gone[member.member_id] = member
            errors.append(ErrorCode.NONE)
    return gone, errors


def _leaving_member(group: ConsumerGroup, one: LeavingMember) -> ConsumerMember:
    if one.group_instance_id is None:
        return group.member(one.member_id)
    member_id = one.member_id
    if member_id == UNKNOWN_MEMBER:
        # An administrator removes a static member by its instance id alone (KIP-345).
        member_id = group.static_members.get(one.group_instance_id, UNKNOWN_MEMBER)
    return group.static_member(one.group_instance_id, member_id)
