"""SaslHandshake on a connection without SASL. Logins are in tests/access and tests/server/test_login.py."""

from kwire.errors import ErrorCode
from kwire.wire.apis import SASL_HANDSHAKE
from kwire.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.node import QuietNode, in_every_version, in_loop


@in_every_version(SASL_HANDSHAKE)
@in_loop
async def test_there_is_no_login_on_a_listener_without_sasl(node: QuietNode, version: int) -> None:
    answer = await node.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
