"""The login of a client, without a connection: the requests to send, in order.

`log_in` is a generator. It yields a request, and expects the response to be sent into it.
"""

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from kwire.kafka_client.errors import LoginRefused, error_code
from kwire.wire.schema import Api

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
HANDSHAKE_VERSION = AUTHENTICATE_VERSION = 1
# A part of the message of kwire and of Kafka about a wrong password.
_INVALID_CREDENTIALS: Final = "invalid credentials"

# An API, a version and a message.
Request = tuple[Api, int, Any]


class Login(NamedTuple):
    """A user and its password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user}, [hidden])"


def log_in(address: str, mechanism: str, login: Login) -> Generator[Request, Any, None]:
    """Yield the requests of a login. Raises LoginRefused."""
    # Imported here and below, because most clients connect without a login.
    from kwire.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

    offered = yield SASL_HANDSHAKE, HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=mechanism)
    if offered.error_code:
        known = ", ".join(offered.mechanisms)
        raise LoginRefused(f"{address} does not offer {mechanism}, but {known}: set sasl.mechanism")
    if mechanism == PLAIN:
        yield from _authenticate(address, login.user, f"\0{login.user}\0{login.password}".encode())
    else:
        yield from _log_in_with_scram(address, mechanism, login)


def _log_in_with_scram(address: str, mechanism: str, login: Login) -> Generator[Request, Any, None]:
    from scramp import ScramClient, ScramException

    try:
        client = ScramClient([mechanism], login.user, login.password)
        first = yield from _authenticate(address, login.user, client.get_client_first().encode())
        client.set_server_first(first.decode())
        final = yield from _authenticate(address, login.user, client.get_client_final().encode())
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError):
        # The cause is not shown: it may contain parts of the password's hash.
        raise LoginRefused(f"{address} gave a wrong answer to the login of user {login.user}") from None


def _authenticate(address: str, user: str, data: bytes) -> Generator[Request, Any, bytes]:
    from kwire.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest

    response = yield SASL_AUTHENTICATE, AUTHENTICATE_VERSION, SaslAuthenticateRequest(auth_bytes=data)
    if response.error_code:
        reason = response.error_message or error_code(response.error_code).name
        if _INVALID_CREDENTIALS in reason:
            reason = "the user name or the password is wrong"
        raise LoginRefused(f"{address} refused the login of user {user}: {reason}")
    return bytes(response.auth_bytes)
