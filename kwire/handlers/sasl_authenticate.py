"""SaslAuthenticate 0-2: a token of the login. The login itself is in `kwire/access/sasl`.

- After a wrong token the error is SASL_AUTHENTICATION_FAILED. The response is sent after
  `connection.failed.authentication.delay.ms`, and then the connection is closed.
- If the address of the client has failed too often, the check waits for up to ten seconds. If too many logins of the
  address wait, the connection is closed without a response, so that the client tries again.
- After the login, and on a listener without SASL, the error is ILLEGAL_SASL_STATE.
- Version 1 adds the lifetime of the session, 0 if it has no end (KIP-368). Version 2 is flexible.
"""

from kwire.access.sasl.authentication import Authentication, IllegalRequest, SaslFailure
from kwire.access.sasl.mechanism import TOKEN_BYTES_MAX
from kwire.concurrency.chunking import eager
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import BlockingContinuation, Context, DropConnection
from kwire.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

AFTER_LOGIN = "SaslAuthenticate request received after successful authentication"


def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | BlockingContinuation:
    authentication = context.peer.authentication
    if authentication is None or authentication.is_done:
        return _refusal(ErrorCode.ILLEGAL_SASL_STATE, AFTER_LOGIN)
    # The frame is released while the token is checked, so a token that is too long is not kept.
    token = bytes(request.auth_bytes) if len(request.auth_bytes) <= TOKEN_BYTES_MAX else None
    # Most steps do not wait, and need no task.
    answer = eager(_authenticate(authentication, token))
    return answer if isinstance(answer, SaslAuthenticateResponse) else BlockingContinuation(answer, keeps_frame=False)


async def _authenticate(authentication: Authentication, token: bytes | None) -> SaslAuthenticateResponse:
    try:
        step = await authentication.authenticate(token)
    except SaslFailure as failure:
        return _refusal(failure.code, failure.message)
    except IllegalRequest as problem:
        raise DropConnection(str(problem)) from None
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        auth_bytes=step.token,
        session_lifetime_ms=step.session_lifetime_ms,
    )


def _refusal(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")
