"""The interface of a SASL mechanism, and the mechanisms that the server has, by name."""

from collections.abc import Awaitable
from typing import Protocol

from kwire.access.keys.key_login import KeyLogin
from kwire.access.principal import Principal

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"

# The maximum size of a token. A PLAIN token has two names of 255 bytes and a password of 1,024.
TOKEN_BYTES_MAX = 2_048


class AuthenticationFailed(Exception):
    """The client did not prove that it is the user. The message is for the client and contains nothing secret."""


class Admit(Protocol):
    """Waits until the login of a user may be checked. A mechanism calls it once, as soon as it knows the user name."""

    def __call__(self, user: str, *, is_known: bool = False) -> Awaitable[None]:
        """`is_known` says that the password is known to be right."""
        ...


async def admit_immediately(user: str, *, is_known: bool = False) -> None:
    """An `Admit` without limits."""


class Exchange(Protocol):
    """The server's side of one exchange of a mechanism."""

    @property
    def principal(self) -> Principal | None:
        """The principal of the client. It is None until the exchange has succeeded."""
        ...

    @property
    def key_login(self) -> KeyLogin | None:
        """The login of a client with a key. It is None for a user, and until the exchange has succeeded."""
        ...

    @property
    def claimed_user(self) -> str:
        """The user name that the client has sent, whether it is that of a user or not. It is empty before that."""
        ...

    async def step(self, token: bytes) -> bytes:
        """Take the next token of the client, and return that of the server. Raises AuthenticationFailed."""
        ...
