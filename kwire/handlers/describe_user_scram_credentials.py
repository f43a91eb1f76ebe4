"""DescribeUserScramCredentials 0: the mechanisms and iteration counts of users' SCRAM credentials.

Null or no names request all users. A user that does not exist is RESOURCE_NOT_FOUND, a name that is sent twice is
DUPLICATE_RESOURCE. At most NAMES_MAX users can be named. The client needs DESCRIBE on the cluster.
"""

from collections import Counter
from collections.abc import Awaitable
from functools import partial
from typing import Any

from kwire.access.acl import Operation
from kwire.access.users.users import Users
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.errors import ErrorCode, shortened
from kwire.handlers.shared.access_context import AccessContext
from kwire.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

NAMES_MAX = 1_000


def handle(
    context: AccessContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse | Awaitable[DescribeUserScramCredentialsResponse]:
    if not context.cluster.permits(Operation.DESCRIBE):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.", [])
    users = context.services.users
    if request.users and len(request.users) > NAMES_MAX:
        return _response(ErrorCode.INVALID_REQUEST, f"A request may name at most {NAMES_MAX} users.", [])
    counts = Counter(one.name for one in request.users) if request.users else Counter(users.names())
    return answer_in_chunks(
        (_result(users, name) if count == 1 else _duplicate(name) for name, count in counts.items()),
        lambda result: 1 + len(result.credential_infos),
        partial(_response, ErrorCode.NONE, None),
        context.elements_encoder(DescribeUserScramCredentialsResponse, "results"),
        lambda count, chunks: _response(ErrorCode.NONE, None, context.encoded_elements(count, chunks)),
    )


def _result(users: Users, name: str) -> DescribeUserScramCredentialsResult:
    described = users.describe(name)
    if described is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _error(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    infos = [CredentialInfo(mechanism=one.number, iterations=iterations) for one, iterations in described.items()]
    return DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.NONE, error_message=None, credential_infos=infos
    )


def _error(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=shortened(message), credential_infos=[]
    )


def _duplicate(name: str) -> DescribeUserScramCredentialsResult:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return _error(name, ErrorCode.DUPLICATE_RESOURCE, message)


def _response(code: ErrorCode, message: str | None, results: Any) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message, results=results)
