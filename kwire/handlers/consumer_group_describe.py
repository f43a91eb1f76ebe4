"""ConsumerGroupDescribe 0-1: state, epochs, members and assignments of consumer groups, with a result per group.

- Each group needs DESCRIBE on it, and on the topics of its assignments. Otherwise its result is
  GROUP_AUTHORIZATION_FAILED or TOPIC_AUTHORIZATION_FAILED.
- A group that does not exist, or does not use the consumer protocol, is GROUP_ID_NOT_FOUND with a message.
  DescribeGroups describes classic groups. Deleted topics are left out of assignments.
- While the feature group.version is at level 0, every group is UNSUPPORTED_VERSION.
- Version 1 adds whether a member uses the classic protocol (KIP-1099).
"""

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of, combined_answers
from kwire.coordinator.group.consumer.commands import DescribeConsumerAnswer, DescribeConsumerGroup, DescribedConsumer
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.consumer_group_heartbeat import FEATURE
from kwire.handlers.shared.context import Context
from kwire.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    return combined_answers(_groups(context, request), lambda groups: ConsumerGroupDescribeResponse(groups=groups))


def _groups(
    context: Context, request: ConsumerGroupDescribeRequest
) -> Iterator[DescribedGroup | Awaitable[DescribedGroup]]:
    is_on = context.services.features.level(FEATURE)
    for group_id in request.group_ids:
        if not is_on:
            yield _group(context, False, group_id, DescribeConsumerAnswer(error=ErrorCode.UNSUPPORTED_VERSION))
            continue
        shape = partial(_group, context, request.include_authorized_operations, group_id)
        try:
            groups = context.groups.coordinator(Operation.DESCRIBE, group_id)
        except KafkaError as error:
            yield shape(DescribeConsumerAnswer(error=error.code))
            continue
        yield answer_of(groups, DescribeConsumerGroup(group_id=group_id), shape)


def _group(context: Context, with_operations: bool, group_id: str, answer: DescribeConsumerAnswer) -> DescribedGroup:
    if not _may_describe_topics(context, answer):
        answer = DescribeConsumerAnswer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=HIDDEN_TOPICS)
    group = DescribedGroup(
        error_code=answer.error,
        error_message=answer.message,
        group_id=group_id,
        group_state=answer.state,
        group_epoch=answer.group_epoch,
        assignment_epoch=answer.target_epoch,
        assignor_name=answer.assignor,
        members=[_member(context, member) for member in answer.members],
    )
    if with_operations and answer.error is ErrorCode.NONE:
        group.authorized_operations = context.groups.operations(group_id)
    return group


def _may_describe_topics(context: Context, answer: DescribeConsumerAnswer) -> bool:
    if context.access.is_unrestricted:
        return True
    ids = {topic_id for one in answer.members for topic_id in (*one.assigned, *one.target)}
    names = (context.topics.name_of(topic_id) for topic_id in ids)
    return all(name is None or context.topics.permits(Operation.DESCRIBE, name) for name in names)


def _member(context: Context, member: DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(context, member.assigned),
        target_assignment=_assignment(context, member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(context: Context, partitions: Mapping[bytes, Sequence[int]]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(indexes))
            for topic_id, indexes in partitions.items()
            if (name := context.topics.name_of(topic_id)) is not None
        ]
    )
