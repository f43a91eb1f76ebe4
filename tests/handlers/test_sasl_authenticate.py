"""SaslAuthenticate on a connection without SASL. Logins are in tests/access and tests/server/test_login.py."""

from kwire.errors import ErrorCode
from kwire.wire.apis import SASL_AUTHENTICATE
from kwire.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.support.node import QuietNode, in_every_version, in_loop


@in_every_version(SASL_AUTHENTICATE)
@in_loop
async def test_there_is_no_login_on_a_listener_without_sasl(node: QuietNode, version: int) -> None:
    answer = await node.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
