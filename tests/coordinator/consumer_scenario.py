"""The words of scenarios that are about consumer groups.

`beat A member=a epoch=0 topics=t,u` is a heartbeat. A join says all of itself: what is left out has its default, and
`owns=-` is null. Later heartbeats leave out what is unchanged; `owns=t:0,t:1` is what the member has, `owns=` nothing.
Partitions are shown as `t:0,1`.
"""

from collections.abc import Iterable, Mapping

from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DescribeConsumerAnswer,
)
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.members import MemberState
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
from tests.coordinator.world import MemoryTopics, World


def consumer_heartbeat(asked: dict[str, str], world: World) -> ConsumerHeartbeat:
    epoch = int(asked["epoch"])
    if epoch == 0:
        asked = {"timeout": "30000", "owns": "", **asked}
    topics, owns = asked.get("topics"), asked.get("owns")
    return ConsumerHeartbeat(
        group_id=asked.get("group", "g"),
        member_id=asked.get("member", ""),
        member_epoch=epoch,
        instance_id=asked.get("instance"),
        rack_id=asked.get("rack"),
        rebalance_timeout_ms=int(asked.get("timeout", "-1")),
        subscribed_topic_names=None if topics is None else frozenset(filter(None, topics.split(","))),
        subscribed_topic_regex=asked.get("regex"),
        server_assignor=asked.get("assignor"),
        owned=None if owns is None or owns == "-" else _owned(owns, world.topics),
        client_id=asked.get("client", "c"),
        client_host="/host",
        brings_member_id=asked.get("version", "1") != "0",
        fresh_id="" if "member" in asked else f"fresh-{world.groups.fresh_id()}",
    )


def _owned(text: str, topics: MemoryTopics) -> dict[bytes, list[int]]:
    owned: dict[bytes, list[int]] = {}
    for one in filter(None, text.split(",")):
        name, _, index = one.partition(":")
        shape = topics.find(name)
        owned.setdefault(shape.topic_id if shape else name.encode(), []).append(int(index))
    return owned


def show_partitions(partitions: Mapping[bytes, Iterable[int]], topics: MemoryTopics) -> str:
    shown = [
        f"{topics.name_of(topic_id) or topic_id.decode()}:{','.join(map(str, sorted(indexes)))}"
        for topic_id, indexes in sorted(partitions.items())
    ]
    return f"[{' '.join(shown)}]"


def show_consumer_answer(answer: object, topics: MemoryTopics) -> str | None:
    if isinstance(answer, ConsumerHeartbeatAnswer):
        if answer.member_id is None:
            return f"{answer.error.name} {answer.message or ''}".rstrip()
        told = "" if answer.assignment is None else f" assignment={show_partitions(answer.assignment, topics)}"
        return f"{answer.error.name} member={answer.member_id} epoch={answer.member_epoch}{told}"
    if isinstance(answer, DescribeConsumerAnswer):
        if answer.message is not None:
            return f"{answer.error.name} {answer.message}"
        epochs = f"epoch={answer.group_epoch} target={answer.target_epoch} assignor={answer.assignor}"
        members = [
            f"{one.member_id}@{one.member_epoch} has={show_partitions(one.assigned, topics)} "
            f"target={show_partitions(one.target, topics)}"
            for one in answer.members
        ]
        return " ".join([answer.error.name, answer.state, epochs, *members])
    return None


def show_consumer_record(record: ConsumerGroupRecord, topics: MemoryTopics) -> str:
    head = f"{record.kind_name} {record.group_id} {record.subject}".rstrip()
    value = record.value
    if value is None:
        return f"{head} tombstone"
    if record.kind == records.GROUP_EPOCH:
        return f"{head} epoch={value.epoch}"
    if record.kind == records.TARGET_EPOCH:
        return f"{head} epoch={value.assignment_epoch}"
    if record.kind == records.MEMBER_SUBSCRIPTION:
        said = records.subscription_of(value)
        instance = f" instance={said.instance_id}" if said.instance_id else ""
        regex = f" regex={said.topic_regex}" if said.topic_regex else ""
        classic = " classic" * (said.classic is not None)
        return f"{head} topics={','.join(sorted(said.topic_names))}{regex}{instance}{classic}"
    if record.kind == records.MEMBER_TARGET:
        return f"{head} {show_partitions(records.target_of(value), topics)}"
    if record.kind == records.MEMBER_ASSIGNMENT:
        current = records.current_assignment_of(value)
        return (
            f"{head} epoch={current.member_epoch} {current.state.name} has={show_partitions(current.assigned, topics)}"
            + (f" revoking={show_partitions(current.revoking, topics)}" if current.revoking else "")
        )
    return f"{head} {','.join(value.topics)}".rstrip()


def show_consumer_group(group: ConsumerGroup, topics: MemoryTopics) -> list[str]:
    lines = [f"{group.group_id} {group.state} epoch={group.group_epoch} target={group.target_epoch}"]
    for member in group.members.values():
        current = member.current
        state = "" if current.state is MemberState.STABLE else f" {current.state.name}"
        revoking = f" revoking={show_partitions(current.revoking, topics)}" if current.revoking else ""
        has = show_partitions(current.assigned, topics)
        classic = " classic" * member.is_classic
        lines.append(f"  {member.member_id} epoch={current.member_epoch}{state} has={has}{revoking}{classic}")
    return lines
