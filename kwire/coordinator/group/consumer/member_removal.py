"""How members go: by saying so, by falling silent, or by not giving up partitions in time."""

from collections.abc import Callable, Collection

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import go_on_searching, raise_epoch
from kwire.coordinator.group.consumer.members import LEAVING_STATIC_EPOCH, NOTHING, ConsumerMember, CurrentAssignment
from kwire.coordinator.group.consumer.target import metadata_hash, subscribed_by_any
from kwire.errors import ErrorCode

# Takes members out of a group, one way or the other: without them it may be no consumer group any more.
PutOut = Callable[[ConsumerGroup, Collection[ConsumerMember], Moment, Result], None]


def leave(group: ConsumerGroup, command: ConsumerHeartbeat, moment: Moment, result: Result, put_out: PutOut) -> None:
    """A member says farewell. Raises KafkaError before anything is decided."""
    if command.instance_id is None:
        member = group.member(command.member_id)
    else:
        member = group.static_member(command.instance_id, command.member_id)
    if command.member_epoch == LEAVING_STATIC_EPOCH:
        # It means to be back: its partitions stay with it, and its session goes on.
        current = CurrentAssignment(
            member_epoch=LEAVING_STATIC_EPOCH,
            previous_member_epoch=member.current.previous_member_epoch,
            state=member.current.state,
            assigned=member.current.assigned,
            revoking=NOTHING,
        )
        result.records.append(records.assignment_record(group.group_id, member.member_id, current))
        group.rebalance_deadlines_ms.pop(member.member_id, None)
    else:
        put_out(group, [member], moment, result)
    answer = ConsumerHeartbeatAnswer(
        error=ErrorCode.NONE, member_id=member.member_id, member_epoch=command.member_epoch
    )
    result.reply(command, answer)


def remove(group: ConsumerGroup, gone: Collection[ConsumerMember], into: list[KeyValue]) -> None:
    """Take members out of the group, all with one new epoch. Their partitions are free from then on."""
    gone_ids = {member.member_id for member in gone}
    left = [one.subscription for one in group.members.values() if one.member_id not in gone_ids]
    for member in gone:
        into += records.member_tombstones(group.group_id, member.member_id)
    resolved = dict(group.resolved)
    for regex in group.resolved.keys() - {said.topic_regex for said in left}:
        into.append(records.regex_tombstone(group.group_id, regex))
        del resolved[regex]
    raise_epoch(group, metadata_hash(subscribed_by_any(left, resolved), group.topics), into)


def pass_time(group: ConsumerGroup, moment: Moment, result: Result, put_out: PutOut) -> None:
    """Act on every deadline that has passed."""
    late = group.late_members(moment)
    if late:
        put_out(group, late, moment, result)
    group.plan_next_wake()
    if group.resolution is not None and late:
        # It goes on with the members that are left, once these are.
        group.wake_by(moment.steady_ms)
    else:
        go_on_searching(group, moment, result)
