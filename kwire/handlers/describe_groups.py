"""DescribeGroups 0-6: state, protocol and members of classic groups, with a result per group.

- Each group needs DESCRIBE on it. Otherwise its result is GROUP_AUTHORIZATION_FAILED.
- The metadata and assignments of members are returned only while the group is Stable.
- A group without members but with offsets is Empty. A repeated group has a result for each occurrence.
- Version 1 adds the throttle time. Version 3 adds authorized operations, on request. Version 4 adds the group instance
  id of static members.
- In version 6 a group that does not exist, or is not classic, is GROUP_ID_NOT_FOUND with a message. In earlier versions
  its state is Dead, without an error (KIP-1043).
"""

from collections.abc import Awaitable, Iterator
from functools import partial

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of, combined_answers
from kwire.coordinator.group.commands import DescribeAnswer, DescribeGroup
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_VERSION_OF_NOT_FOUND = 6


def handle(
    context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    return combined_answers(_groups(context, request), lambda groups: DescribeGroupsResponse(groups=groups))


def _groups(context: Context, request: DescribeGroupsRequest) -> Iterator[DescribedGroup | Awaitable[DescribedGroup]]:
    for group_id in request.groups:
        shape = partial(_group, context, request.include_authorized_operations, group_id)
        try:
            groups = context.groups.coordinator(Operation.DESCRIBE, group_id)
        except KafkaError as error:
            yield shape(DescribeAnswer(error=error.code))
            continue
        yield answer_of(groups, DescribeGroup(group_id=group_id), shape)


def _group(context: Context, with_operations: bool, group_id: str, answer: DescribeAnswer) -> DescribedGroup:
    error = answer.error
    if error is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < FIRST_VERSION_OF_NOT_FOUND:
        error = ErrorCode.NONE
    group = DescribedGroup(
        error_code=error,
        error_message=answer.message,
        group_id=group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in answer.members
        ],
    )
    if with_operations and error is ErrorCode.NONE:
        group.authorized_operations = context.groups.operations(group_id)
    return group
