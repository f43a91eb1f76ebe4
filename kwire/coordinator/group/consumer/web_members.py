"""HTTP members of consumer groups. They join like other members, and then send simplified heartbeats.

An HTTP member handles neither epochs nor revocations. The answer to a heartbeat lists the member's partitions, and the
coordinator considers all other partitions as released. If a stream reads for the member, each heartbeat names the
partitions that the stream still reads. So a partition is released only after the stream has stopped reading it.

Kafka's records have no fields for a member's own session timeout and for the use of HTTP. So both are stored in the
client id and the client host, which Kafka's tools show and which survive a restart.
"""

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.consumer.commands import WebHeartbeat, WebHeartbeatAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import Plan, Sender, is_up_to_date, set_access
from kwire.coordinator.group.consumer.members import ConsumerMember
from kwire.coordinator.group.consumer.web_sessions import web_session_ms
from kwire.errors import ErrorCode, KafkaError


def web_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Return the HTTP member with this id. Raises KafkaError if there is no such member or it does not use HTTP."""
    member = group.member(member_id)
    if web_session_ms(member.subscription) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} of group {group.group_id} did not join by HTTP."
        )
    return member


def web_heartbeat(group: ConsumerGroup, command: WebHeartbeat, moment: Moment, result: Result) -> None:
    """Handle a heartbeat of an HTTP member. If this raises KafkaError, `result` is unchanged."""
    member = web_member(group, command.member_id)
    subscription, current = member.subscription, member.current
    sender = Sender(member.member_id, subscription, current)
    is_rebalancing = False
    if subscription.topic_regex:
        set_access(group, sender, subscription, None)
    if not is_up_to_date(group, sender):
        plan = Plan(group, sender, subscription)
        plan.search_topics(moment)
        plan.assign(moment)
        current = plan.reconcile(command.owned)
        if current is not sender.current:
            group.watch_revocation(sender.member_id, subscription, current, moment)
        result.records += plan.records
        is_rebalancing = not (plan.is_target_current and current.is_reconciled_to(plan.target_epoch))
    session_ms = web_session_ms(subscription)
    group.renew_session(sender.member_id, moment, session_ms)
    answer = WebHeartbeatAnswer(
        error=ErrorCode.NONE,
        member_epoch=current.member_epoch,
        assigned={topic_id: sorted(indexes) for topic_id, indexes in current.assigned.items()},
        is_rebalancing=is_rebalancing,
        session_timeout_ms=session_ms or 0,
    )
    result.reply(command, answer)
