"""Members that speak HTTP: they join by the consumer protocol like all others, and then only check in.

Such a member knows neither epochs nor what it has to give up. It says that it is there, and is told its partitions;
that is its word that it has let go of everything else. Who reads on its behalf (a group's stream) says what it still
reads instead, and so lets go of a partition only when it has stopped reading it.

The length of a member's session has no place in Kafka's records, and neither has the door it came by. They are in its
client id and host, where Kafka's tools show them and a restart finds them.
"""

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.consumer.commands import CheckIn, CheckInAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.heartbeat import Plan, Who, is_settled
from kwire.coordinator.group.consumer.members import ConsumerMember
from kwire.coordinator.group.consumer.web_sessions import web_session_ms
from kwire.errors import ErrorCode, KafkaError


def web_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Raises KafkaError, also for members of other protocols: they speak for themselves."""
    member = group.member(member_id)
    if web_session_ms(member.subscription) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} of group {group.group_id} did not join by HTTP."
        )
    return member


def check_in(group: ConsumerGroup, command: CheckIn, moment: Moment, result: Result) -> None:
    """Raises KafkaError before anything is decided."""
    member = web_member(group, command.member_id)
    said, current = member.subscription, member.current
    who = Who(member.member_id, said, current)
    is_rebalancing = False
    if not is_settled(group, who):
        plan = Plan(group, who, said)
        plan.search_topics(moment)
        plan.assign(moment)
        current = plan.reconcile(command.owned)
        if current is not who.current:
            group.watch_revocation(who.member_id, said, current, moment)
        result.records += plan.records
        is_rebalancing = not (plan.is_target_current and current.is_reconciled_to(plan.target_epoch))
    session_ms = web_session_ms(said)
    group.renew_session(who.member_id, moment, session_ms)
    answer = CheckInAnswer(
        error=ErrorCode.NONE,
        member_epoch=current.member_epoch,
        assigned={topic_id: sorted(indexes) for topic_id, indexes in current.assigned.items()},
        is_rebalancing=is_rebalancing,
        session_timeout_ms=session_ms or 0,
    )
    result.reply(command, answer)
