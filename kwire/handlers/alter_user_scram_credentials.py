"""AlterUserScramCredentials 0: set or remove SCRAM credentials of users, all valid changes in one commit.

- The client salts and hashes the password. The server stores keys that are derived from it.
- Each user has one result. A request may change one credential of a user, else the error is DUPLICATE_RESOURCE.
- An empty or invalid name, an iteration count outside Kafka's bounds, and a salt that is too short or too long are
  UNACCEPTABLE_CREDENTIAL. An unknown mechanism is UNSUPPORTED_SASL_MECHANISM. A credential to be removed that does not
  exist is RESOURCE_NOT_FOUND. A request with more than CHANGES_MAX changes is INVALID_REQUEST.
- Connections of a changed user are closed. The client needs ALTER on the cluster.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.access.users.scram_credential import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SALT_BYTES_MIN,
    SALTED_PASSWORD_BYTES_MAX,
    ScramMechanism,
    credential_of_salted,
)
from kwire.access.users.users import CredentialChange, Users, check_name
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.access_context import AccessContext
from kwire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

CHANGES_MAX = 1_000

Outcome = CredentialChange | KafkaError


def handle(
    context: AccessContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | Awaitable[AlterUserScramCredentialsResponse]:
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    if not context.cluster.permits(Operation.ALTER):
        return _refuse_all(changes, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if len(changes) > CHANGES_MAX:
        message = f"A request may have at most {CHANGES_MAX} changes."
        return _refuse_all(changes, ErrorCode.INVALID_REQUEST, message)
    users = context.services.users
    outcomes: dict[str, Outcome] = {}
    for one in changes:
        if one.name in outcomes:
            message = "A user credential cannot be altered twice in the same request"
            outcomes[one.name] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        else:
            outcomes[one.name] = _outcome(users, one)
    return _apply(users, outcomes)


async def _apply(users: Users, outcomes: dict[str, Outcome]) -> AlterUserScramCredentialsResponse:
    changes = [one for one in outcomes.values() if isinstance(one, CredentialChange)]
    try:
        await users.alter(changes)
    except ValueError as problem:
        refusal = KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(problem))
        outcomes = {name: refusal if isinstance(one, CredentialChange) else one for name, one in outcomes.items()}
    return AlterUserScramCredentialsResponse(results=[_result(name, one) for name, one in outcomes.items()])


def _outcome(users: Users, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Outcome:
    if not change.name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialUpsertion):
        return _upsertion(change, mechanism)
    if users.credential(change.name, mechanism) is None:
        message = "Attempt to delete a user credential that does not exist"
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
    return CredentialChange(change.name, mechanism, None)


def _upsertion(change: ScramCredentialUpsertion, mechanism: ScramMechanism) -> Outcome:
    problem = _problem(change)
    if problem:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    credential = credential_of_salted(mechanism, salted, salt, change.iterations)
    return CredentialChange(change.name, mechanism, credential)


def _problem(change: ScramCredentialUpsertion) -> str:
    if change.iterations < ITERATIONS_MIN:
        return "Too few iterations"
    if change.iterations > ITERATIONS_MAX:
        return "Too many iterations"
    if not SALT_BYTES_MIN <= len(change.salt) <= SALT_BYTES_MAX:
        return f"The salt must have {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes"
    if not 0 < len(change.salted_password) <= SALTED_PASSWORD_BYTES_MAX:
        return f"The salted password must have 1 to {SALTED_PASSWORD_BYTES_MAX} bytes"
    try:
        check_name(change.name)
    except ValueError as problem:
        return str(problem)
    return ""


def _result(name: str, outcome: Outcome) -> AlterUserScramCredentialsResult:
    if isinstance(outcome, KafkaError):
        return AlterUserScramCredentialsResult(user=name, error_code=outcome.code, error_message=outcome.message)
    return AlterUserScramCredentialsResult(user=name, error_code=ErrorCode.NONE, error_message=None)


def _refuse_all(
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion], code: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    refusal = KafkaError(code, message)
    names = dict.fromkeys(one.name for one in changes[:CHANGES_MAX])
    return AlterUserScramCredentialsResponse(results=[_result(name, refusal) for name in names])
