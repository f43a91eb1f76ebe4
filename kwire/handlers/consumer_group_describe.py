"""ConsumerGroupDescribe 0-1: state, epochs, members and assignments of consumer groups, with a result per group.

- A group that does not exist, or does not use the consumer protocol, is GROUP_ID_NOT_FOUND with a message.
  DescribeGroups describes classic groups. Deleted topics are left out of assignments.
- While the feature group.version is at level 0, every group is UNSUPPORTED_VERSION.
- Version 1 adds whether a member uses the classic protocol (KIP-1099).
"""

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial

from kwire.coordinator.client_requests import answer_of, combined_answers
from kwire.coordinator.group.consumer.commands import DescribeConsumerAnswer, DescribeConsumerGroup, DescribedConsumer
from kwire.errors import ErrorCode
from kwire.handlers.consumer_group_heartbeat import FEATURE
from kwire.handlers.describe_groups import GROUP_OPERATIONS
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
        yield answer_of(context.services.groups, DescribeConsumerGroup(group_id=group_id), shape)


def _group(context: Context, with_operations: bool, group_id: str, answer: DescribeConsumerAnswer) -> DescribedGroup:
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
        group.authorized_operations = GROUP_OPERATIONS
    return group


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
    names = context.services.topics.catalogue
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(indexes))
            for topic_id, indexes in partitions.items()
            if (name := names.name_of(topic_id)) is not None
        ]
    )
