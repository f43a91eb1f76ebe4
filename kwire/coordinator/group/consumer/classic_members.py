"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup during a protocol migration.

Such a member uses the classic protocol unchanged. The coordinator sends the member epoch as the generation. There is no
leader: the coordinator takes the member's assignment from the group's target assignment. A member's assignment changes
only when the member joins. If the member has to revoke partitions or can get more, the coordinator answers a heartbeat
with REBALANCE_IN_PROGRESS, and the member rejoins. With an eager protocol, the member revokes all partitions before it
joins, so one join is enough to get the new assignment. With the cooperative protocol, the member reports its partitions
when it joins. SyncGroup returns the partitions that the member may keep. The member revokes the others and joins again.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.classic.embedded_protocol import CONSUMERS, read_subscription, version_of, write_assignment
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
from kwire.coordinator.group.consumer.heartbeat import Plan, Sender, check_room
from kwire.coordinator.group.consumer.members import (
    NEW_ASSIGNMENT,
    NEW_SUBSCRIPTION,
    NO_TARGET,
    ConsumerMember,
    MemberState,
    Subscription,
)
from kwire.coordinator.group.consumer.target import metadata_hash
from kwire.coordinator.group.topics_view import TopicsView
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from kwire.wire.errors import WireError
from kwire.wire.records.consumer_group import ClassicMemberMetadata, ClassicProtocol

# JoinGroup


class CheckedJoin(Struct, frozen=True):
    """A JoinGroup that passed the checks: the member, its new subscription and the partitions that it owns."""

    command: JoinGroup
    sender: Sender
    subscription: Subscription
    owned: Mapping[bytes, list[int]]

    @property
    def member_id(self) -> str:
        return self.sender.member_id


def check_join(group: ConsumerGroup, command: JoinGroup, fresh_id: str) -> CheckedJoin:
    """Check a JoinGroup. `fresh_id` is used as member id if the member is new. Raises KafkaError."""
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
        consumer_subscription = read_subscription(command.protocols[0][1], group.prefix)
    except WireError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The embedded consumer protocol is malformed."
        ) from error
    sender = _find_sender(group, command, fresh_id)
    return CheckedJoin(
        command,
        sender,
        _new_subscription(sender.subscription, command, consumer_subscription),
        _owned(consumer_subscription, group.topics),
    )


def _supports(group: ConsumerGroup, command: JoinGroup) -> bool:
    """Return whether the new member and all classic members have a protocol in common.

    They must have one, because these members form the classic group if the group is downgraded.
    """
    common = {name for name, _ in command.protocols}
    for member in group.members.values():
        if member.subscription.classic is not None:
            common &= {one.name for one in member.subscription.classic.supported_protocols}
    return command.protocol_type == CONSUMERS and bool(common)


def _find_sender(group: ConsumerGroup, command: JoinGroup, fresh_id: str) -> Sender:
    is_new = command.member_id == UNKNOWN_MEMBER
    member_id = fresh_id if is_new else command.member_id
    member = group.members.get(member_id)
    if command.group_instance_id is not None:
        if not is_new:
            member = group.static_member(command.group_instance_id, member_id)
        elif (old_id := group.static_members.get(command.group_instance_id)) is not None:
            old = group.members[old_id]
            current = replace(old.current, member_epoch=0, previous_member_epoch=0)
            return Sender(member_id, old.subscription, current, replaces=old)
    if member is None:
        # The member id is not necessarily new: it may have been issued just before the group was upgraded.
        return Sender(member_id, NEW_SUBSCRIPTION, NEW_ASSIGNMENT)
    return Sender(member_id, member.subscription, member.current)


def _new_subscription(
    before: Subscription, command: JoinGroup, consumer_subscription: ConsumerProtocolSubscription
) -> Subscription:
    timeout_ms = command.rebalance_timeout_ms
    return Subscription(
        instance_id=before.instance_id if command.group_instance_id is None else command.group_instance_id,
        rack_id=consumer_subscription.rack_id or before.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topic_names=frozenset(consumer_subscription.topics),
        server_assignor=before.server_assignor,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=command.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in command.protocols],
        ),
    )


def _owned(consumer_subscription: ConsumerProtocolSubscription, topics: TopicsView) -> dict[bytes, list[int]]:
    """Return the partitions that the member owns. A member that reports none has revoked all before it joined."""
    owned: dict[bytes, list[int]] = {}
    for one in consumer_subscription.owned_partitions:
        shape = topics.find(one.topic)
        if shape is not None:
            owned.setdefault(shape.topic_id, []).extend(one.partitions)
    return owned


def join(group: ConsumerGroup, joining: CheckedJoin, moment: Moment, result: Result) -> None:
    """Answer a JoinGroup with the member's new epoch. The answer does not wait for other members."""
    command, sender, subscription = joining.command, joining.sender, joining.subscription
    if command.member_id == UNKNOWN_MEMBER and command.group_instance_id is None and command.requires_member_id:
        result.reply(command, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=sender.member_id))
        return
    plan = Plan(group, sender, subscription)
    plan.subscribe()
    plan.search_topics(moment)
    plan.assign(moment)
    current = plan.reconcile(joining.owned)
    group.rebalance_deadlines_ms.pop(sender.member_id, None)
    group.renew_session(sender.member_id, moment, command.session_timeout_ms)
    group.await_sync(sender.member_id, subscription.rebalance_timeout_ms, moment)
    result.records += plan.records
    result.reply(
        command,
        JoinAnswer(
            error=ErrorCode.NONE,
            generation_id=current.member_epoch,
            protocol_type=CONSUMERS,
            protocol_name=command.protocols[0][0],
            member_id=sender.member_id,
        ),
    )


# SyncGroup, Heartbeat


def sync(group: ConsumerGroup, command: SyncGroup, moment: Moment, result: Result) -> None:
    """Answer a SyncGroup with the member's current assignment. Raises KafkaError."""
    member, classic = _classic_member(group, command)
    name = classic.supported_protocols[0].name if classic.supported_protocols else None
    if command.protocol_type not in (None, CONSUMERS) or command.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol differs from the JoinGroup answer.")
    current = member.current
    # A member with unrevoked partitions has already joined for the new target assignment, although its epoch is old.
    # It gets the partitions that it may keep.
    if group.target_epoch > current.member_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        group.await_join(member.member_id, member.subscription.rebalance_timeout_ms, moment)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The member must rejoin to get its new assignment.")
    group.sync_deadlines_ms.pop(member.member_id, None)
    group.renew_session(member.member_id, moment, classic.session_timeout_ms)
    metadata = classic.supported_protocols[0].metadata if classic.supported_protocols else b""
    answer = SyncAnswer(
        error=ErrorCode.NONE,
        protocol_type=command.protocol_type,
        protocol_name=command.protocol_name,
        assignment=encoded_assignment(group, current.assigned, bytes(metadata)),
    )
    result.reply(command, answer)


def heartbeat(group: ConsumerGroup, command: Heartbeat, moment: Moment, result: Result) -> None:
    """Answer a Heartbeat of a classic member. Raises KafkaError."""
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
            f"Generation {command.generation_id} does not match the member epoch {member.current.member_epoch}.",
        )
    return member, classic


def _has_to_join(group: ConsumerGroup, member: ConsumerMember, moment: Moment) -> bool:
    current = member.current
    if current.member_epoch < group.target_epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member):
        return True
    # In a group with only classic members, one of them must rejoin so that a new target assignment is computed.
    return (group.group_epoch > group.target_epoch and group.may_assign(moment)) or _have_topics_changed(group)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether another member still owns a partition of this member's target assignment."""
    own_ids = (member.member_id,)
    return any(
        not group.is_free(topic_id, index, own_ids)
        for topic_id, indexes in group.targets.get(member.member_id, NO_TARGET).items()
        for index in indexes
    )


def _have_topics_changed(group: ConsumerGroup) -> bool:
    """Return whether subscribed topics have changed. Returns False if the group has consumer-protocol members.

    Heartbeats of consumer-protocol members detect such changes themselves. In a classic group the leader would do this,
    but classic members of a consumer group have no leader.
    """
    revision = group.topics.revision
    if group.seen_revision == revision or any(not one.is_classic for one in group.members.values()):
        return False
    if metadata_hash(group.subscribed, group.topics) != group.metadata_hash:
        return True
    group.seen_revision = revision
    return False


def encoded_assignment(group: ConsumerGroup, partitions: Mapping[bytes, Iterable[int]], metadata: bytes) -> bytes:
    """Encode an assignment for a classic member, in the version of the member's own metadata."""
    by_name = {
        name: indexes
        for topic_id, indexes in partitions.items()
        if (name := group.topics.name_of(topic_id)) is not None
    }
    try:
        version = version_of(metadata)
    except WireError:
        version = 0
    return write_assignment(by_name, version, group.prefix)


# LeaveGroup


def members_to_remove(group: ConsumerGroup, command: LeaveGroup) -> tuple[dict[str, ConsumerMember], list[ErrorCode]]:
    """Return the members to remove, and one error per member of the request.

    The members may also be consumer-protocol members.
    """
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
