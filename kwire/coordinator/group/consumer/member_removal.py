"""Removal of members that leave, whose session expires, or that miss another deadline (to revoke, rejoin or sync)."""

from collections.abc import Callable, Collection

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import continue_topic_search, raise_epoch
from kwire.coordinator.group.consumer.members import (
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    CurrentAssignment,
)
from kwire.coordinator.group.consumer.target import metadata_hash, subscribed_by_any
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode

# Removes members from a group. The group may then be downgraded to a classic group.
RemoveMembers = Callable[[ConsumerGroup, Collection[ConsumerMember], Moment, Result], None]


def leave(
    group: ConsumerGroup, command: ConsumerHeartbeat, moment: Moment, result: Result, remove_members: RemoveMembers
) -> None:
    """Handle a heartbeat with a leaving epoch. If this raises KafkaError, `result` is unchanged."""
    if command.instance_id is None:
        member = group.member(command.member_id)
    else:
        member = group.static_member(command.instance_id, command.member_id)
    if command.member_epoch == LEAVING_STATIC_EPOCH:
        # The member leaves temporarily. It keeps its partitions and its session.
        current = CurrentAssignment(
            member_epoch=LEAVING_STATIC_EPOCH,
            previous_member_epoch=member.current.previous_member_epoch,
            state=member.current.state,
            assigned=member.current.assigned,
            revoking=NO_PARTITIONS,
        )
        result.records.append(records.assignment_record(group.group_id, member.member_id, current))
        group.rebalance_deadlines_ms.pop(member.member_id, None)
    else:
        remove_members(group, [member], moment, result)
    answer = ConsumerHeartbeatAnswer(
        error=ErrorCode.NONE, member_id=member.member_id, member_epoch=command.member_epoch
    )
    result.reply(command, answer)


def remove(group: ConsumerGroup, gone: Collection[ConsumerMember], into: list[KeyValue]) -> None:
    """Write the records that remove the members, which frees their partitions, and increase the group epoch once."""
    gone_ids = {member.member_id for member in gone}
    left = [one.subscription for one in group.members.values() if one.member_id not in gone_ids]
    for member in gone:
        into += records.member_tombstones(group.group_id, member.member_id)
    resolved = dict(group.resolved)
    for regex in group.resolved.keys() - {subscription.topic_regex for subscription in left}:
        into.append(records.regex_tombstone(group.group_id, regex))
        del resolved[regex]
    raise_epoch(group, metadata_hash(subscribed_by_any(left, resolved), group.topics), into)


def check_deadlines(group: ConsumerGroup, moment: Moment, result: Result, remove_members: RemoveMembers) -> None:
    """Remove the members whose deadline has passed, and continue the group's topic search."""
    late = group.expired_members(moment)
    if late:
        remove_members(group, late, moment, result)
    group.plan_next_wake()
    if group.resolution is not None and late:
        # Continue the topic search in a later decision, when the members have been removed.
        group.wake_by(moment.steady_ms)
    else:
        continue_topic_search(group, moment, result)
