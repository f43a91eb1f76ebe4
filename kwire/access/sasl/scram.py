"""SASL/SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), by the package `scramp`.

- An authorization id is refused, even if it is the user name. Kafka's clients send none.
- Channel binding is not offered, so the flags `n` and `y` are accepted and `p` is refused.
- Delegation tokens, for which Kafka's clients add the extension `tokenauth`, are refused. Optional extensions of the
  RFC's form are ignored, as it requires.
- The nonce of the final message must be that of the server's first message. Before version 2.6.1, librdkafka put the
  client's nonce before it a second time. This one other form is accepted, because kcat still has such a version.
- For an unknown user the exchange takes the same steps and fails at the last one.
- Keys cannot log in: the server would need more than the hash of their secrets.
"""

from typing import Any

from kwire.access.keys.key_format import is_key_id
from kwire.access.keys.key_login import KeyLogin
from kwire.access.principal import USER, Principal
from kwire.access.sasl.mechanism import PLAIN, Admit, AuthenticationFailed, admit_immediately
from kwire.access.users.saslprep import check_length, prepare
from kwire.access.users.scram_credential import ScramCredential, ScramMechanism
from kwire.access.users.users import NAME_BYTES_MAX, Users


class ScramExchange:
    """The server's side of SASL/SCRAM."""

    def __init__(
        self, users: Users, mechanism: ScramMechanism, nonce: str | None = None, admit: Admit = admit_immediately
    ) -> None:
        """`nonce` is the server's part of the nonce. Only tests choose it."""
        self._users = users
        self._admit = admit
        self._mechanism = mechanism
        self._client_nonce = ""
        self._credential: ScramCredential | None = None
        self._nonce = nonce
        # The exchange of scramp. It is made when the login is admitted, because that takes a tenth of a millisecond.
        self._server: Any = None
        self.principal: Principal | None = None
        self.key_login: KeyLogin | None = None
        self.claimed_user = ""

    async def step(self, token: bytes) -> bytes:
        from scramp import ScramException

        try:
            message = token.decode()
            if self._credential is not None:
                return self._final(message).encode()
            name = _user_name(message)
            await self._admit(name)
            return self._first(message).encode()
        except (ScramException, ValueError):
            # As in Kafka, the message does not say what is wrong, because it could reveal whether the user exists.
            raise AuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism.mechanism
            ) from None

    def _first(self, message: str) -> str:
        # Imported here, because the import takes a tenth of a second and few servers need it.
        from scramp import ScramMechanism as ScrampMechanism

        mechanism = ScrampMechanism(self._mechanism.mechanism)
        self._server = mechanism.make_server(self._find_credential, s_nonce=self._nonce)
        self._server.set_client_first(message)
        if is_key_id(self.claimed_user):
            raise AuthenticationFailed(
                f"Authentication failed: keys log in with SASL mechanism {PLAIN}, not {self._mechanism.mechanism}"
            )
        self._client_nonce = message.partition(",r=")[2].partition(",")[0]
        first: str = self._server.get_server_first()
        return first

    def _final(self, message: str) -> str:
        nonce = self._server.nonce
        doubled = f"{self._client_nonce}{nonce}"
        if message.split(",", 2)[1:2] == [f"r={doubled}"]:
            self._server.nonce = type(nonce)(doubled)
        # It compares the nonces: see CVE-2024-56128.
        self._server.set_client_final(message)
        final: str = self._server.get_server_final()
        if self._users.credential(self.claimed_user, self._mechanism) != self._credential:
            raise ValueError("the user was changed or deleted since the first message")
        self.principal = Principal(USER, self.claimed_user)
        return final

    def _find_credential(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self.claimed_user = name
        self._credential = found = self._users.login_credential(name, self._mechanism)
        return found.salt, found.stored_key, found.server_key, found.iterations


def _user_name(message: str) -> str:
    """Return the normal form of the user name in a client's first message. Raises ValueError.

    It costs little, so that a login can wait before its other steps.
    """
    name = message.split(",", 3)[2:3]
    if not name:
        raise ValueError("the first message has no user name")
    given = name[0].removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
    # The normal form of a long name takes long to compute, here and in scramp.
    check_length(given, NAME_BYTES_MAX)
    return prepare(given, NAME_BYTES_MAX)
