"""SASL/PLAIN (RFC 4616): one token with an authorization id, a user name and a password."""

from kwire.access.sasl.mechanism import PLAIN, Admit, AuthenticationFailed
from kwire.access.users.saslprep import prepare
from kwire.access.users.users import NAME_BYTES_MAX, Users


class PlainExchange:
    """The server's side of SASL/PLAIN."""

    def __init__(self, users: Users, admit: Admit, host: str = "") -> None:
        """`host` is the address of the client."""
        self._users = users
        self._admit = admit
        self._host = host
        self.user: str | None = None
        self.claimed_user = ""

    async def step(self, token: bytes) -> bytes:
        try:
            authorization_id, user, password = token.decode().split("\0")
            user = prepare(user, NAME_BYTES_MAX)
        except ValueError:
            raise AuthenticationFailed(f"Authentication failed: Invalid SASL/{PLAIN} token") from None
        self.claimed_user = user[:NAME_BYTES_MAX]
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        await self._admit(user, is_known=self._users.is_proven(user, password))
        is_right = await self._users.verify(user, password, self._host)
        # A client may act only as the user that it proves to be: see CVE-2017-12610.
        if not is_right or authorization_id not in ("", user):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        self.user = user
        return b""
