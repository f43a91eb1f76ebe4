"""Principals: the authenticated identity of a client, in Kafka's form `User:alice`."""

from typing import NamedTuple

USER = "User"
# The type of principals that log in with an API key.
KEY = "Key"


class Principal(NamedTuple):
    """The identity of a client. Its type is `User`, as in Kafka, or `Key` for a client with an API key."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# The principal of clients on listeners without authentication.
ANONYMOUS = Principal(USER, "ANONYMOUS")
# In an ACL: every principal of the type `User`.
ANY_USER = Principal(USER, "*")


def parse_principal(text: str) -> Principal:
    """Parse `TYPE:NAME`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise ValueError(f"expected a principal of the form User:NAME, got {text!r}")
    return Principal(kind, name)
