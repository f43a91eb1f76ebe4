"""DescribeAcls 1-3: the ACLs that match a filter, grouped by the pattern of their resources.

- The client needs DESCRIBE on the cluster. Without an authorizer the error is SECURITY_DISABLED.
- Null texts and the number of ANY match everything. An unknown number is INVALID_REQUEST.
- The pattern type MATCH selects all ACLs that cover the name: literal ones, those of `*`, and prefixed ones. With ANY,
  or with one of the two types, the name is compared.
- A pattern with many ACLs has several entries in the response.
- Version 2 is flexible. Version 3 adds users as a type of resource; kwire and Kafka return their ACLs in every version.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from kwire.access.acl import Acl, Operation, PatternType, ResourceType
from kwire.access.acl_checks import new_filter
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.access_context import AccessContext
from kwire.handlers.shared.acl_requests import acls_of
from kwire.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

# The encoding of one element of the response cannot be interrupted.
ACLS_PER_ELEMENT = 200

Pattern = tuple[ResourceType, str, PatternType]


async def handle(context: AccessContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    try:
        authorizer = acls_of(context, Operation.DESCRIBE)
        wanted = new_filter(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message, resources=[])
    by_pattern: dict[Pattern, list[Acl]] = {}
    async for acl in spread(await authorizer.find(wanted)):
        by_pattern.setdefault(acl[:3], []).append(acl)
    response = answer_in_chunks(
        _resources(by_pattern),
        lambda resource: 1 + len(resource.acls),
        _response,
        context.elements_encoder(DescribeAclsResponse, "resources"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )
    return await response if inspect.isawaitable(response) else response


def _resources(by_pattern: dict[Pattern, list[Acl]]) -> Iterator[DescribeAclsResource]:
    for (resource_type, name, pattern_type), acls in by_pattern.items():
        for at in range(0, len(acls), ACLS_PER_ELEMENT):
            yield DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=str(acl.principal),
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls[at : at + ACLS_PER_ELEMENT]
                ],
            )


def _response(resources: Any) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=resources)
