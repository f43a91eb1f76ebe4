"""What every client can do, and how it is refused."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from tests.support.secured_clients.login import Login

# A client that is neither done nor refused by then fails the test.
CLIENT_TIMEOUT_S = 30.0
# Groups commit this often, so that a test can see from outside what a consumer has read.
COMMIT_INTERVAL_MS = 50


class Refusal(Enum):
    """The kinds of refusals that users of a client must be able to distinguish."""

    RIGHT = "the principal lacks the right"
    LOGIN = "the user or the password is wrong"
    CERTIFICATE = "one side does not trust the certificate of the other"


class Refused(Exception):
    """The server refused the client, or the client refused the server."""

    def __init__(self, kind: Refusal, report: str) -> None:
        super().__init__(f"{kind}: {report}")
        self.kind = kind


def refusal_in(report: str, patterns: Mapping[Refusal, str]) -> Refused | None:
    """The refusal that a client reports as text."""
    for kind, pattern in patterns.items():
        if re.search(pattern, report):
            return Refused(kind, report)
    return None


class SecuredClient(Protocol):
    """A kind of client. Its calls block, and end within CLIENT_TIMEOUT_S if the server is right."""

    name: str

    def produce(self, login: Login, topic: str, values: Sequence[bytes]) -> None:
        """Write all values, or raise Refused."""

    def read_group(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        """Read `count` values from the beginning as the only member of a group, or raise Refused."""
