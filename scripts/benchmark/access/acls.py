"""ACLs of the benchmark's user, among ACLs of other users, prefixed and literal, that the server has to consider."""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from benchmark.access.client_config import User
from benchmark.access.login import log_in_scram
from benchmark.wire import ERROR_CODE, WireError, connect, read_frame, request_frame

CREATE_ACLS, CREATE_ACLS_VERSION = 30, 1
TOPIC, GROUP = 2, 3
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
DENY, ALLOW = 2, 3
ANY_HOST = "*"
ANSWER_TIMEOUT_SECONDS = 60
ACLS_PER_REQUEST = 500
BODY_AT = 8


class Acl(NamedTuple):
    """One ACL, with Kafka's numbers."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    operation: int
    permission: int


def acls_for(user: User, topics: str, count: int) -> list[Acl]:
    """Return `count` ACLs. The user may do everything with topics that begin with `topics`, and use every group."""
    principal = f"User:{user.name}"
    own = [
        Acl(TOPIC, topics, PREFIXED, principal, ALL, ALLOW),
        Acl(GROUP, "*", LITERAL, principal, ALL, ALLOW),
    ]
    return own + list(islice(_others(principal, topics), count - len(own)))


def _others(principal: str, topics: str) -> Iterator[Acl]:
    """Yield ACLs of every kind: of other users and topics, and some that apply to the user or to its topics."""
    number = 0
    while True:
        other = f"User:other-{number}"
        yield Acl(TOPIC, f"orders-{number}", LITERAL, other, READ, ALLOW)
        yield Acl(TOPIC, f"invoices-{number}.", PREFIXED, other, WRITE, ALLOW)
        yield Acl(TOPIC, f"salaries-{number}", LITERAL, principal, ALL, DENY)
        yield Acl(TOPIC, topics, PREFIXED, other, DESCRIBE, ALLOW)
        yield Acl(GROUP, f"billing-{number}", LITERAL, other, READ, ALLOW)
        number += 1


def add_acls(address: tuple[str, int], admin: User, acls: Sequence[Acl]) -> None:
    """Add ACLs, as a user that may do so. Raise WireError if one of them is refused."""
    with connect(address, ANSWER_TIMEOUT_SECONDS) as connection:
        log_in_scram(connection, admin)
        for start in range(0, len(acls), ACLS_PER_REQUEST):
            some = acls[start : start + ACLS_PER_REQUEST]
            body = struct.pack(">i", len(some)) + b"".join(map(_encode, some))
            connection.sendall(request_frame(CREATE_ACLS, CREATE_ACLS_VERSION, body))
            _check(read_frame(connection), len(some))


def _encode(acl: Acl) -> bytes:
    pattern = struct.pack(">b", acl.resource_type) + _string(acl.name) + struct.pack(">b", acl.pattern)
    return pattern + _string(acl.principal) + _string(ANY_HOST) + struct.pack(">bb", acl.operation, acl.permission)


def _check(reply: bytes, count: int) -> None:
    at = BODY_AT + 4 + 4
    for _ in range(count):
        (code,) = ERROR_CODE.unpack_from(reply, at)
        (size,) = ERROR_CODE.unpack_from(reply, at + 2)
        if code:
            raise WireError(f"CreateAcls answered error code {code}: {reply[at + 4 : at + 4 + size].decode()}")
        at += 4 + max(size, 0)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
