"""Online migration of groups between the classic protocol and the consumer protocol.

It allows an administrator to change the protocol by restarting the consumers one by one. When the first member joins
with the consumer protocol, a classic group of consumers is upgraded to a consumer group. The other members become
classic members of the consumer group (`consumer/classic_members.py`) and keep their partitions. When the last member of
the consumer protocol leaves and classic members remain, the group is downgraded.

The tombstones of the old group and the records of the new group are appended as one batch. So after a restart exactly
one of the two groups exists.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.classic.embedded_protocol import CONSUMERS, read_assignment, read_subscription
from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.members import Member, selected_protocol
from kwire.coordinator.group.classic.phase import Phase
from kwire.coordinator.group.commands import JoinAnswer, JoinGroup
from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.classic_members import CheckedJoin, encoded_assignment
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.members import (
    NO_TARGET,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Partitions,
    Subscription,
    Target,
)
from kwire.coordinator.group.consumer.target import NO_TOPICS_HASH, metadata_hash
from kwire.coordinator.group.records import decode_record, encode_group_metadata
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.errors import WireError
from kwire.wire.records.consumer_group import ClassicMemberMetadata, ClassicProtocol

# The assignors of standard clients. Their assignments contain only partitions, so user data can be ignored. The only
# exception is librdkafka's cooperative-sticky, which copies the member's own user data into the assignment. Kafka
# treats it as a custom assignor and does not upgrade the group. kwire upgrades the group.
KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
# The maximum size of the records of a migration, because they must fit into one batch. It is a little less than the
# default `message.max.bytes`.
CONVERSION_BYTES_MAX = 1_000_000
# The maximum size of a record without its key and value: lengths, offset and timestamp.
RECORD_OVERHEAD_BYTES = 40

# From classic to consumer


def upgrade(classic: ClassicGroup, group: ConsumerGroup, moment: Moment) -> list[KeyValue]:
    """Copy the members of a classic group into a new consumer group. Returns the records of the upgrade.

    Does not change the classic group and does not answer its waiting requests. Raises KafkaError if the group cannot be
    upgraded.
    """
    _check_upgrade(classic, group)
    written = list(_upgrade_records(classic, group, moment))
    if not fits_in_one_batch(written):
        raise _upgrade_error(classic, "its records do not fit into one batch")
    for key, value in written:
        record = decode_record(key, value)
        assert isinstance(record, records.ConsumerGroupRecord)
        group.apply(record)
    for member in group.members.values():
        subscription = member.subscription
        assert subscription.classic is not None
        group.renew_session(member.member_id, moment, subscription.classic.session_timeout_ms)
    return [*classic.tombstones(), *written]


def refuse_waiting_members(classic: ClassicGroup, result: Result) -> None:
    """Answer the waiting requests of an upgraded group with REBALANCE_IN_PROGRESS, so that the members rejoin."""
    for member in classic.members.values():
        classic.refuse_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, result)


def _check_upgrade(classic: ClassicGroup, group: ConsumerGroup) -> None:
    reason = None
    if not group.settings.migration_policy.has_upgrades:
        reason = "online upgrade is disabled"
    elif classic.protocol_type != CONSUMERS:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > group.settings.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _upgrade_error(classic, reason)


def _upgrade_error(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _upgrade_records(classic: ClassicGroup, group: ConsumerGroup, moment: Moment) -> Iterable[KeyValue]:
    """Yield the records of the new consumer group, in Kafka's order.

    A member's last assignment becomes its current assignment and its target assignment. The generation becomes the
    epoch of the group and of its members.
    """
    group_id, epoch = classic.group_id, classic.generation_id
    subscriptions: dict[str, Subscription] = {}
    assigned: dict[str, Target] = {}
    taken: set[tuple[bytes, int]] = set()
    try:
        for member in classic.members.values():
            if _has_no_issued_id(member):
                continue
            subscriptions[member.member_id] = _subscription(member, classic.protocol_name, group.prefix)
            assigned[member.member_id] = _assigned(classic, member, group, taken)
    except WireError as error:
        raise _upgrade_error(classic, "the embedded consumer protocol is malformed") from error
    names = frozenset[str]().union(*(subscription.topic_names for subscription in subscriptions.values()))
    for member_id, subscription in subscriptions.items():
        yield records.subscription_record(group_id, member_id, subscription)
    yield records.group_epoch_record(group_id, epoch, _known_hash(names, group, taken))
    for member_id, target in assigned.items():
        yield records.target_record(group_id, member_id, target)
    yield records.target_epoch_record(group_id, epoch, moment.wall_ms)
    for member_id, target in assigned.items():
        current = CurrentAssignment(
            member_epoch=epoch,
            previous_member_epoch=epoch,
            assigned={topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in target.items()},
        )
        yield records.assignment_record(group_id, member_id, current)


def _known_hash(names: frozenset[str], group: ConsumerGroup, taken: set[tuple[bytes, int]]) -> int:
    """Return the hash of the subscribed topics if all their partitions are assigned, else NO_TOPICS_HASH.

    Partitions that are not assigned may have been added after the last rebalance. Because of NO_TOPICS_HASH, the new
    group computes a new assignment.
    """
    shapes = filter(None, map(group.topics.find, names))
    is_all = all((shape.topic_id, index) in taken for shape in shapes for index in range(shape.partition_count))
    return metadata_hash(names, group.topics) if is_all else NO_TOPICS_HASH


def _has_no_issued_id(member: Member) -> bool:
    """Return whether the member's first JoinGroup still waits, so that the client has not received its member id.

    Such a member is not upgraded, because its client will join again and get another id.
    """
    return member.is_new and member.waiting_join is not None and member.waiting_join.member_id != member.member_id


def _subscription(member: Member, protocol: str | None, prefix: str) -> Subscription:
    """Return the member's subscription, from its metadata for the group's protocol or else for its first protocol.

    The topics are the same in the metadata of all protocols.
    """
    subscription = read_subscription(member.metadata_for(protocol) or member.protocols[0][1], prefix)
    return Subscription(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.protocols],
        ),
    )


def _assigned(
    classic: ClassicGroup, member: Member, group: ConsumerGroup, taken: set[tuple[bytes, int]]
) -> dict[bytes, frozenset[int]]:
    """Return the assignment that the leader gave the member, without partitions that are already in `taken`.

    Adds the returned partitions to `taken`. So a partition that was assigned twice stays with the first member.
    """
    data = member.assignment or _stored_assignment(classic, member.member_id)
    if not data:
        return {}
    given = read_assignment(data, group.prefix)
    if given.user_data and classic.protocol_name not in KNOWN_ASSIGNORS:
        # An upgrade would lose the user data of a custom assignor.
        raise _upgrade_error(classic, "an unsupported custom assignor is in use")
    assigned = {}
    for one in given.assigned_partitions:
        shape = group.topics.find(one.topic)
        if shape is not None:
            free = frozenset(index for index in one.partitions if (shape.topic_id, index) not in taken)
            taken.update((shape.topic_id, index) for index in free)
            if free:
                assigned[shape.topic_id] = free
    return assigned


def _stored_assignment(classic: ClassicGroup, member_id: str) -> bytes:
    """Return the member's assignment in the group's record.

    It is used when a rebalance has cleared `Member.assignment`, because the client may still own the partitions.
    """
    stored = classic.stored.members if classic.stored is not None else ()
    return next((one.assignment for one in stored if one.member_id == member_id), b"")


# From consumer to classic


def may_downgrade(group: ConsumerGroup, settings: GroupSettings, gone_ids: Collection[str]) -> bool:
    """Return whether the group is to be downgraded when these members leave, because only classic members remain."""
    left_count = len(group.members) - len(gone_ids)
    return (
        group.settings.migration_policy.has_downgrades
        and 0 < left_count <= settings.max_size
        and all(one.is_classic for one in group.members.values() if one.member_id not in gone_ids)
    )


class Downgrade(NamedTuple):
    """The new classic group and the records of the downgrade."""

    group: ClassicGroup
    records: list[KeyValue]


def downgrade(group: ConsumerGroup, settings: GroupSettings, gone_ids: Collection[str], moment: Moment) -> Downgrade:
    """Downgrade the group. The members in `gone_ids` leave, and the others form a classic group.

    The classic group has no leader, so a rebalance starts immediately.
    """
    left = [one for one in group.members.values() if one.member_id not in gone_ids]
    members = [_as_classic(one, group) for one in left]
    return _downgrade_of(group, _classic_group(group, settings, members, moment), moment)


def downgrade_for(
    group: ConsumerGroup, settings: GroupSettings, joining: CheckedJoin, replaced: ConsumerMember, moment: Moment
) -> Downgrade:
    """Downgrade the group because its last consumer-protocol member rejoins with the classic protocol.

    `replaced` is that member, a static member. The rejoining member keeps its partitions. If all members have their
    target assignment, the rejoining member becomes the leader and no rebalance is needed.
    """
    others = [one for one in group.members.values() if one is not replaced]
    member = Member.joining(joining.member_id, joining.command)
    member.assignment = _encoded_current_assignment(replaced, joining.command.protocols[0][1], group)
    classic = _classic_group(group, settings, [*(_as_classic(one, group) for one in others), member], moment)
    needs_no_rebalance = (
        group.group_epoch == group.target_epoch
        and joining.subscription.topic_names == replaced.subscription.topic_names
        and not replaced.subscription.topic_regex
        and all(one.current.is_reconciled_to(group.target_epoch) for one in others)
        # The rejoining member has all partitions of its target assignment, and no others.
        and replaced.current.state is MemberState.STABLE
        and _indexes(replaced.current.assigned) == group.targets.get(replaced.member_id, NO_TARGET)
    )
    if needs_no_rebalance:
        classic.leader_id = joining.member_id
    return _downgrade_of(group, classic, moment)


def _indexes(partitions: Partitions) -> dict[bytes, frozenset[int]]:
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items() if indexes}


def rejoin_answer(classic: ClassicGroup, command: JoinGroup, member_id: str) -> JoinAnswer:
    """Return the JoinGroup answer of the member for which the group was downgraded (`downgrade_for`).

    If a rebalance is needed, the member's SyncGroup will be answered with REBALANCE_IN_PROGRESS.
    """
    answer = classic.joined_answer(member_id)
    if classic.leader_id is None or command.can_skip_assignment:
        return replace(answer, skip_assignment=classic.leader_id is not None)
    # An old client does not support `skip_assignment`: if the answer named it as the leader, it would compute an
    # assignment. So the answer names no leader.
    return replace(answer, leader="", members=())


def _as_classic(member: ConsumerMember, group: ConsumerGroup) -> Member:
    subscription = member.subscription
    assert subscription.classic is not None
    protocols = tuple((one.name, bytes(one.metadata)) for one in subscription.classic.supported_protocols)
    classic = Member(
        member.member_id,
        subscription.instance_id,
        subscription.client_id,
        subscription.client_host,
        subscription.rebalance_timeout_ms,
        subscription.classic.session_timeout_ms,
        protocols,
    )
    classic.assignment = _encoded_current_assignment(member, protocols[0][1] if protocols else b"", group)
    return classic


def _encoded_current_assignment(member: ConsumerMember, metadata: bytes, group: ConsumerGroup) -> bytes:
    """Return a member's current partitions, encoded for the classic protocol.

    Partitions that the member has to revoke are included, because the member may still own them.
    """
    held = {topic_id: set(indexes) for topic_id, indexes in member.current.assigned.items()}
    for topic_id, indexes in member.current.revoking.items():
        held.setdefault(topic_id, set()).update(indexes)
    return encoded_assignment(group, held, metadata)


def _classic_group(
    group: ConsumerGroup, settings: GroupSettings, members: Iterable[Member], moment: Moment
) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, settings)
    classic.phase = Phase.STABLE
    classic.generation_id = group.group_epoch
    classic.protocol_type = CONSUMERS
    for member in members:
        classic.members[member.member_id] = member
        if member.group_instance_id is not None:
            classic.static_members[member.group_instance_id] = member.member_id
        classic.renew_session(member, moment)
    classic.protocol_name = selected_protocol(classic.members.values())
    return classic


def _downgrade_of(group: ConsumerGroup, classic: ClassicGroup, moment: Moment) -> Downgrade:
    if classic.is_leaderless:
        classic.wake_by(moment.steady_ms)
    assignments = {one.member_id: one.assignment for one in classic.members.values()}
    record = encode_group_metadata(classic.group_id, classic.to_record(moment, assignments))
    return Downgrade(classic, [*group.tombstones(), record])


# Both


def fits_in_one_batch(written: Iterable[KeyValue]) -> bool:
    """Return whether the records of a migration fit into one batch."""
    size_bytes = sum(RECORD_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in written)
    return size_bytes <= CONVERSION_BYTES_MAX
