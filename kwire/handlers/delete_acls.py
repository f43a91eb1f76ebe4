"""DeleteAcls 1-3: remove the ACLs that match filters durably. Each filter has the list of the ACLs that it matched.

- The client needs ALTER on the cluster. Without an authorizer every result is SECURITY_DISABLED.
- Filters are those of DescribeAcls. A filter with an unknown number is INVALID_REQUEST, and the others are used. An ACL
  that several filters match is in the result of each.
- If the filters match more ACLs than one request may remove, or too many filters must be compared with all ACLs, then
  nothing is removed and every result is POLICY_VIOLATION.
- Version 2 is flexible. Version 3 adds users as a type of resource; kwire takes them in every version, as Kafka does.
"""

import asyncio
from collections.abc import Sequence

from kwire.access.acl import Acl, AclFilter, Operation
from kwire.access.acl_checks import new_filter
from kwire.broker.chunked_answers import WEIGHT_PER_CHUNK
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.handlers.shared.access_context import AccessContext
from kwire.handlers.shared.acl_requests import acls_of
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(context: AccessContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        authorizer = acls_of(context, Operation.ALTER)
        filters: list[AclFilter | KafkaError] = [_filter(one) async for one in spread(request.filters)]
        valid = [one async for one in spread(filters) if isinstance(one, AclFilter)]
        removed = iter(await authorizer.remove(valid))
    except KafkaError as error:
        return DeleteAclsResponse(filter_results=[_result(error)] * len(request.filters))
    outcomes: list[KafkaError | list[Acl]] = []
    weight = 0
    async for one in spread(filters):
        outcome = one if isinstance(one, KafkaError) else next(removed)
        outcomes.append(outcome)
        weight += 1 if isinstance(outcome, KafkaError) else 1 + len(outcome)
    if weight <= WEIGHT_PER_CHUNK:
        return DeleteAclsResponse(filter_results=[_result(one) for one in outcomes])
    # A thread encodes the results. They cannot be encoded in chunks, because the result of a filter is one element.
    encoded = await asyncio.to_thread(_encode, outcomes, context.api_version)
    response = DeleteAclsResponse(filter_results=[])
    response.filter_results = EncodedElements(len(outcomes), encoded)  # type: ignore[assignment]
    return response


def _filter(one: DeleteAclsFilter) -> AclFilter | KafkaError:
    try:
        return new_filter(
            one.resource_type_filter,
            one.resource_name_filter,
            one.pattern_type_filter,
            one.principal_filter,
            one.host_filter,
            one.operation,
            one.permission_type,
        )
    except KafkaError as error:
        return as_value(error)


def _encode(outcomes: Sequence[KafkaError | list[Acl]], version: int) -> bytes:
    return elements_encoder(DeleteAclsResponse, "filter_results", version)([_result(one) for one in outcomes])


def _result(outcome: KafkaError | list[Acl]) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message, matching_acls=[])
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=str(acl.principal),
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in outcome
        ],
    )
