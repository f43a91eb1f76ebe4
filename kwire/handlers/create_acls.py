"""CreateAcls 1-3: add ACLs durably. Each ACL has its own result, in the order of the request.

- The client needs ALTER on the cluster. Without an authorizer every result is SECURITY_DISABLED.
- An ACL with an unknown number, ANY, the pattern type MATCH, a wrong name or a wrong principal is INVALID_REQUEST. The
  others are added.
- An ACL that exists already is not an error. An ACL above the maximum number of ACLs is POLICY_VIOLATION.
- Version 2 is flexible. Version 3 adds users as a type of resource; kwire takes them in every version, as Kafka does.
"""

from kwire.access.acl import Operation
from kwire.access.acl_checks import new_acl
from kwire.access.authorizer import CHANGES_PER_COMMIT, AclAuthorizer
from kwire.concurrency.chunking import yield_to_loop
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.access_context import AccessContext
from kwire.handlers.shared.acl_requests import acls_of
from kwire.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(context: AccessContext, request: CreateAclsRequest) -> CreateAclsResponse:
    creations = request.creations
    try:
        authorizer = acls_of(context, Operation.ALTER)
    except KafkaError as error:
        return CreateAclsResponse(results=[_failed(error)] * len(creations))
    results: list[AclCreationResult] = []
    for at in range(0, len(creations), CHANGES_PER_COMMIT):
        if at:
            await yield_to_loop()
        results += await _create(authorizer, creations[at : at + CHANGES_PER_COMMIT])
    return CreateAclsResponse(results=results)


async def _create(authorizer: AclAuthorizer, creations: list[AclCreation]) -> list[AclCreationResult]:
    """Add some ACLs with one commit. Either all valid ones are added or none."""
    results, acls = [], []
    done = AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    for one in creations:
        try:
            acls.append(
                new_acl(
                    one.resource_type,
                    one.resource_name,
                    one.resource_pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
            )
            results.append(done)
        except KafkaError as error:
            results.append(_failed(error))
    try:
        if acls:
            await authorizer.add(acls)
    except KafkaError as error:
        failed = _failed(error)
        return [failed if result is done else result for result in results]
    return results


def _failed(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message)
