"""SaslHandshake 0-1: select the SASL mechanism of the login. The login itself is in `kwire/access/sasl`.

- On a listener without SASL, and after the login, the error is ILLEGAL_SASL_STATE. If the session has an end
  (`connections.max.reauth.ms`), a handshake after the login begins a re-authentication (KIP-368).
- A mechanism that is not enabled is UNSUPPORTED_SASL_MECHANISM. The response has the enabled mechanisms. It is sent
  after `connection.failed.authentication.delay.ms`, and then the connection is closed.
- After version 1 the client sends its tokens in SaslAuthenticate requests. After version 0 it sends them without
  request headers.
"""

from kwire.access.sasl.authentication import Authentication, SaslFailure
from kwire.concurrency.chunking import eager
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import BlockingContinuation, Context
from kwire.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse | BlockingContinuation:
    authentication = context.peer.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    is_raw = context.api_version == 0
    # Most steps do not wait, and need no task.
    answer = eager(_shake_hands(authentication, request.mechanism, is_raw))
    return answer if isinstance(answer, SaslHandshakeResponse) else BlockingContinuation(answer, keeps_frame=False)


async def _shake_hands(authentication: Authentication, mechanism: str, is_raw: bool) -> SaslHandshakeResponse:
    try:
        mechanisms = await authentication.handshake(mechanism, is_raw=is_raw)
    except SaslFailure as failure:
        is_mechanism_wrong = failure.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        mechanisms = authentication.mechanisms if is_mechanism_wrong else ()
        return SaslHandshakeResponse(error_code=failure.code, mechanisms=list(mechanisms))
    return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=list(mechanisms))
