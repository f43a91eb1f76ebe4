"""Groups move between the protocols while they work, so that consumers can be restarted one after the other.

A classic group of consumers becomes a consumer group with the first member that speaks the consumer protocol. The
others stay as they are, classic members of a consumer group (`consumer/classic_members.py`), and keep what they have.
When the last member of the consumer protocol goes and classic ones are left, the group becomes classic again.

Either way the old group is taken back and the new one written in one batch: after a restart it is one or the other.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.classic import ClassicGroup, Phase
from kwire.coordinator.group.commands import JoinAnswer, JoinGroup
from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.classic_members import Joining, encoded_assignment
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
from kwire.coordinator.group.embedded import CONSUMERS, read_assignment, read_subscription
from kwire.coordinator.group.members import Member, selected_protocol
from kwire.coordinator.group.records import decode_record, encode_group_metadata
from kwire.coordinator.group.settings import GroupSettings
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.errors import WireError
from kwire.wire.records.consumer_group import ClassicMemberMetadata, ClassicProtocol

# Assignors of stock clients. None of them tells a member anything but its partitions. librdkafka's cooperative-sticky
# sends back what the member said itself, too; Kafka takes it for more and leaves such groups classic.
KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
# What a group may take in the log to be moved. A batch may have a little more, as `message.max.bytes` is by default.
CONVERSION_BYTES_MAX = 1_000_000
# Lengths, offset and time of a record, at most.
RECORD_OVERHEAD_BYTES = 40

# From classic to consumer


def upgrade(classic: ClassicGroup, group: ConsumerGroup, moment: Moment) -> list[KeyValue]:
    """Make the new consumer group what the classic one is; the records that say so. Raises KafkaError.

    Nobody is told of it here, and the classic group stays as it is.
    """
    _check_upgrade(classic, group)
    written = list(_as_consumers(classic, group, moment))
    if not fits(written):
        raise _no_upgrade(classic, "the group is too large to be written at once")
    for key, value in written:
        record = decode_record(key, value)
        assert isinstance(record, records.ConsumerGroupRecord)
        group.apply(record)
    for member in group.members.values():
        said = member.subscription
        assert said.classic is not None
        group.renew_session(member.member_id, moment, said.classic.session_timeout_ms)
    return [*classic.tombstones(), *written]


def send_off(classic: ClassicGroup, result: Result) -> None:
    """Whoever waits for a rebalance of a group that has become a consumer group joins that instead."""
    for member in classic.members.values():
        classic.dismiss(member, ErrorCode.REBALANCE_IN_PROGRESS, result)


def _check_upgrade(classic: ClassicGroup, group: ConsumerGroup) -> None:
    reason = None
    if not group.settings.migration_policy.has_upgrades:
        reason = "online upgrade is disabled"
    elif classic.protocol_type != CONSUMERS:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > group.settings.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _no_upgrade(classic, reason)


def _no_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _as_consumers(classic: ClassicGroup, group: ConsumerGroup, moment: Moment) -> Iterable[KeyValue]:
    """In Kafka's order. What a member was last given is what it has and shall have, at the epoch of the generation."""
    group_id, epoch = classic.group_id, classic.generation_id
    subscriptions: dict[str, Subscription] = {}
    assigned: dict[str, Target] = {}
    taken: set[tuple[bytes, int]] = set()
    try:
        for member in classic.members.values():
            if _is_nameless(member):
                continue
            subscriptions[member.member_id] = _subscription(member, classic.protocol_name)
            assigned[member.member_id] = _assigned(classic, member, group, taken)
    except WireError as error:
        raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from error
    names = frozenset[str]().union(*(said.topic_names for said in subscriptions.values()))
    for member_id, said in subscriptions.items():
        yield records.subscription_record(group_id, member_id, said)
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
    """Of the topics as the leader saw them. Partitions that it gave to nobody may have come since: then it is left
    open, and the first look of the new group assigns them."""
    shapes = filter(None, map(group.topics.find, names))
    is_all = all((shape.topic_id, index) in taken for shape in shapes for index in range(shape.partition_count))
    return metadata_hash(names, group.topics) if is_all else NO_TOPICS_HASH


def _is_nameless(member: Member) -> bool:
    """It waits to be told its id for the first time. It will join anew, and nobody will ever speak for this one."""
    return member.is_new and member.waiting_join is not None and member.waiting_join.member_id != member.member_id


def _subscription(member: Member, protocol: str | None) -> Subscription:
    """A member that joined since the protocol was chosen may not know it; all that it says names the same topics."""
    said = read_subscription(member.metadata_for(protocol) or member.protocols[0][1])
    return Subscription(
        instance_id=member.group_instance_id,
        rack_id=said.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(said.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.protocols],
        ),
    )


def _assigned(
    classic: ClassicGroup, member: Member, group: ConsumerGroup, taken: set[tuple[bytes, int]]
) -> dict[bytes, frozenset[int]]:
    """What the leader gave the member. What it gave to two of them stays with the first."""
    data = member.assignment or _stored_assignment(classic, member.member_id)
    if not data:
        return {}
    given = read_assignment(data)
    if given.user_data and classic.protocol_name not in KNOWN_ASSIGNORS:
        # What an assignor of the clients' own tells them would be lost.
        raise _no_upgrade(classic, "an unsupported custom assignor is in use")
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
    """A rebalance that began during another has forgotten assignments that members may still hold on to."""
    stored = classic.stored.members if classic.stored is not None else ()
    return next((one.assignment for one in stored if one.member_id == member_id), b"")


# From consumer to classic


def may_downgrade(group: ConsumerGroup, settings: GroupSettings, gone_ids: Collection[str]) -> bool:
    """Whether the group becomes a classic one without these members: only classic ones are left then."""
    left_count = len(group.members) - len(gone_ids)
    return (
        group.settings.migration_policy.has_downgrades
        and 0 < left_count <= settings.max_size
        and all(one.is_classic for one in group.members.values() if one.member_id not in gone_ids)
    )


class Downgrade(NamedTuple):
    """The classic group, and the records that make it one."""

    group: ClassicGroup
    records: list[KeyValue]


def downgrade(group: ConsumerGroup, settings: GroupSettings, gone_ids: Collection[str], moment: Moment) -> Downgrade:
    """The classic group of those who are left. It has nobody to lead it, and that is why it rebalances at once."""
    left = [one for one in group.members.values() if one.member_id not in gone_ids]
    members = [_as_classic(one, group) for one in left]
    return _written(group, _classic_group(group, settings, members, moment), moment)


def downgrade_for(
    group: ConsumerGroup, settings: GroupSettings, joining: Joining, replaced: ConsumerMember, moment: Moment
) -> Downgrade:
    """The last member of the consumer protocol has come back as a classic one, and has what it had.

    Where everybody has what they shall have, nobody else notices; it leads from now on.
    """
    others = [one for one in group.members.values() if one is not replaced]
    member = Member.joining(joining.member_id, joining.command)
    member.assignment = _held(replaced, joining.command.protocols[0][1], group)
    classic = _classic_group(group, settings, [*(_as_classic(one, group) for one in others), member], moment)
    is_settled = (
        group.group_epoch == group.target_epoch
        and joining.said.topic_names == replaced.subscription.topic_names
        and not replaced.subscription.topic_regex
        and all(one.current.is_reconciled_to(group.target_epoch) for one in others)
        # Not so if it was still to get something, or to give something up.
        and replaced.current.state is MemberState.STABLE
        and _indexes(replaced.current.assigned) == group.targets.get(replaced.member_id, NO_TARGET)
    )
    if is_settled:
        classic.leader_id = joining.member_id
    return _written(group, classic, moment)


def _indexes(partitions: Partitions) -> dict[bytes, frozenset[int]]:
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items() if indexes}


def returned_answer(classic: ClassicGroup, command: JoinGroup, member_id: str) -> JoinAnswer:
    """If there is to be a rebalance, the member is told so when it comes for its assignment."""
    answer = classic.joined_answer(member_id)
    if classic.leader_id is None or command.can_skip_assignment:
        return replace(answer, skip_assignment=classic.leader_id is not None)
    # An old client that hears it leads would compute an assignment.
    return replace(answer, leader="", members=())


def _as_classic(member: ConsumerMember, group: ConsumerGroup) -> Member:
    said = member.subscription
    assert said.classic is not None
    protocols = tuple((one.name, bytes(one.metadata)) for one in said.classic.supported_protocols)
    classic = Member(
        member.member_id,
        said.instance_id,
        said.client_id,
        said.client_host,
        said.rebalance_timeout_ms,
        said.classic.session_timeout_ms,
        protocols,
    )
    classic.assignment = _held(member, protocols[0][1] if protocols else b"", group)
    return classic


def _held(member: ConsumerMember, metadata: bytes, group: ConsumerGroup) -> bytes:
    """What a member has, also what it is to give up: it may be asked by a consumer group again before it has."""
    held = {topic_id: set(indexes) for topic_id, indexes in member.current.assigned.items()}
    for topic_id, indexes in member.current.revoking.items():
        held.setdefault(topic_id, set()).update(indexes)
    return encoded_assignment(held, metadata, group.topics)


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


def _written(group: ConsumerGroup, classic: ClassicGroup, moment: Moment) -> Downgrade:
    if classic.is_leaderless:
        classic.wake_by(moment.steady_ms)
    assignments = {one.member_id: one.assignment for one in classic.members.values()}
    record = encode_group_metadata(classic.group_id, classic.to_record(moment, assignments))
    return Downgrade(classic, [*group.tombstones(), record])


# Both


def fits(written: Iterable[KeyValue]) -> bool:
    """Whether a group can be moved: that takes one batch."""
    size_bytes = sum(RECORD_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in written)
    return size_bytes <= CONVERSION_BYTES_MAX
