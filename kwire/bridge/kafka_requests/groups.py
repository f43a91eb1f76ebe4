"""Groups on a bridge: ListGroups, DescribeGroups, ConsumerGroupDescribe, LeaveGroup and DeleteGroups.

The coordinators of the groups answer. A group without the right is GROUP_AUTHORIZATION_FAILED, whether it exists or
not, and lists leave it out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from kwire.access.acl import Operation
from kwire.access.audit.entries import GROUP as GROUP_RESOURCE
from kwire.bridge.kafka_requests.context import RequestContext
from kwire.bridge.kafka_requests.topics import NO_OPERATIONS
from kwire.bridge.kafka_requests.upstream import GROUP, code_of, with_fields
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.consumer_group_describe import HIDDEN_TOPICS
from kwire.wire.messages import consumer_group_describe as consumer
from kwire.wire.messages.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kwire.wire.messages.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kwire.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse
from kwire.wire.messages.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest, ListGroupsResponse
from kwire.wire.schema import Api


async def list_groups(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    responses = await context.upstream.ask_all(LIST_GROUPS, context.api_version, request)
    sees_all = context.cluster.allows(Operation.DESCRIBE)
    # While a coordinator moves, two brokers may list the group.
    groups: dict[str, ListedGroup] = {}
    for response in responses:
        if response.error_code:
            return ListGroupsResponse(error_code=response.error_code, groups=[])
        async for one in spread(response.groups):
            if sees_all or context.groups.allows(Operation.DESCRIBE, one.group_id):
                groups[one.group_id] = one
    return ListGroupsResponse(error_code=0, groups=list(groups.values()))


async def _by_right(
    context: RequestContext, operation: Operation, group_ids: Iterable[str]
) -> tuple[list[str], dict[str, KafkaError]]:
    """Return the groups on which the client may do an operation, and the errors of the others."""
    allowed: dict[str, None] = {}
    errors: dict[str, KafkaError] = {}
    async for group_id in spread(group_ids):
        try:
            context.groups.authorize(operation, group_id)
            allowed[group_id] = None
        except KafkaError as error:
            errors[group_id] = error
    return list(allowed), errors


async def _ask(
    context: RequestContext, api: Api, request: Any, field: str, group_ids: Iterable[str]
) -> tuple[list[Any], dict[str, KafkaError]]:
    """Send a request that names groups in `field` to their coordinators. Return responses, and errors by group."""

    async def ask(node: int, part: list[str]) -> Any:
        return await context.upstream.ask_broker(node, api, context.api_version, with_fields(request, **{field: part}))

    return await context.upstream.ask_coordinators(GROUP, group_ids, ask)


async def describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    with_operations, request.include_authorized_operations = request.include_authorized_operations, False
    allowed, errors = await _by_right(context, Operation.DESCRIBE, request.groups)
    responses, failures = await _ask(context, DESCRIBE_GROUPS, request, "groups", allowed)
    groups: list[DescribedGroup] = []
    for response in responses:
        for one in response.groups:
            is_shown = with_operations and one.error_code == ErrorCode.NONE
            one.authorized_operations = context.groups.operations(one.group_id) if is_shown else NO_OPERATIONS
            groups.append(one)
    for group_id, error in {**errors, **failures}.items():
        groups.append(
            DescribedGroup(
                error_code=code_of(error),
                error_message=error.message,
                group_id=group_id,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
        )
    return DescribeGroupsResponse(groups=groups)


async def consumer_group_describe(
    context: RequestContext, request: consumer.ConsumerGroupDescribeRequest
) -> consumer.ConsumerGroupDescribeResponse:
    with_operations, request.include_authorized_operations = request.include_authorized_operations, False
    allowed, errors = await _by_right(context, Operation.DESCRIBE, request.group_ids)
    responses, failures = await _ask(context, consumer.CONSUMER_GROUP_DESCRIBE, request, "group_ids", allowed)
    groups: list[consumer.DescribedGroup] = []
    for response in responses:
        for one in response.groups:
            if not _may_describe_topics(context, one):
                error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
                groups.append(_consumer_failure(one.group_id, error))
                continue
            is_shown = with_operations and one.error_code == ErrorCode.NONE
            one.authorized_operations = context.groups.operations(one.group_id) if is_shown else NO_OPERATIONS
            groups.append(one)
    groups += [_consumer_failure(group_id, error) for group_id, error in {**errors, **failures}.items()]
    return consumer.ConsumerGroupDescribeResponse(groups=groups)


def _may_describe_topics(context: RequestContext, group: consumer.DescribedGroup) -> bool:
    if context.access.is_unrestricted:
        return True
    return all(context.topics.permits(Operation.DESCRIBE, name) for name in set(_topics_of(group)))


def _topics_of(group: consumer.DescribedGroup) -> Iterator[str]:
    for member in group.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            yield from (one.topic_name for one in assignment.topic_partitions)


def _consumer_failure(group_id: str, error: KafkaError) -> consumer.DescribedGroup:
    return consumer.DescribedGroup(
        error_code=code_of(error),
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


async def leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not context.groups.permits(Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, members=[])
    outcome = await context.upstream.ask_coordinator(GROUP, request.group_id, LEAVE_GROUP, context.api_version, request)
    if isinstance(outcome, KafkaError):
        return LeaveGroupResponse(error_code=code_of(outcome), members=[])
    left: LeaveGroupResponse = outcome
    return left


async def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    allowed, errors = await _by_right(context, Operation.DELETE, request.groups_names)
    responses, failures = await _ask(context, DELETE_GROUPS, request, "groups_names", allowed)
    results: list[DeletableGroupResult] = []
    for response in responses:
        for one in response.results:
            if one.error_code == ErrorCode.NONE:
                context.audit.changed("group.deleted", GROUP_RESOURCE, one.group_id)
            results.append(one)
    for group_id, error in {**errors, **failures}.items():
        results.append(DeletableGroupResult(group_id=group_id, error_code=code_of(error), error_message=error.message))
    return DeleteGroupsResponse(results=results)
