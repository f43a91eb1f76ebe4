"""AlterUserScramCredentials: credentials are set and removed, and each wrong one is an error of its own."""

import hashlib

import pytest

from kwire.access.users.scram_credential import ScramMechanism
from kwire.errors import ErrorCode
from kwire.handlers import alter_user_scram_credentials
from kwire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.support.node import QuietNode, in_loop

SALT = b"sixteen bytes of"
NONE = (ErrorCode.NONE, None)


def upsertion(
    name: str,
    mechanism: int = 1,
    iterations: int = 4096,
    salt: bytes = SALT,
    password: str = "secret",
    salted: bytes | None = None,
) -> ScramCredentialUpsertion:
    """As a client makes it."""
    if salted is None:
        hash_name = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
        salted = hashlib.pbkdf2_hmac(
            hash_name, password.encode(), salt, max(iterations, 1) if iterations < 20000 else 1
        )
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


async def alter(
    node: QuietNode, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> dict[str, tuple[ErrorCode, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    answer = await node.ask(request, 0)
    assert len({one.user for one in answer.results}) == len(answer.results)
    return {one.user: (ErrorCode(one.error_code), one.error_message) for one in answer.results}


@in_loop
async def test_credentials_are_set_and_removed(node: QuietNode) -> None:
    users = node.services.users
    assert await alter(node, upsertion("alice"), upsertion("bob", 2, 8192)) == {"alice": NONE, "bob": NONE}
    assert users.describe("alice") == {ScramMechanism.SHA_256: 4096}
    assert users.describe("bob") == {ScramMechanism.SHA_512: 8192}
    assert await users.verify("alice", "secret")
    assert await users.verify("bob", "secret")
    assert await alter(node, upsertion("alice", password="new")) == {"alice": NONE}
    assert not await users.verify("alice", "secret")
    assert await users.verify("alice", "new")
    assert await alter(node, ScramCredentialDeletion(name="bob", mechanism=2)) == {"bob": NONE}
    assert users.names() == ["alice"]


@in_loop
async def test_every_wrong_change_is_an_error_of_its_own(node: QuietNode) -> None:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    cases: dict[str, tuple[ScramCredentialDeletion | ScramCredentialUpsertion, ErrorCode, str]] = {
        "few": (upsertion("few", iterations=4095), unacceptable, "Too few iterations"),
        "many": (upsertion("many", iterations=16385), unacceptable, "Too many iterations"),
        "": (upsertion(""), unacceptable, "Username must not be empty"),
        "unknown": (upsertion("unknown", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "zero": (upsertion("zero", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "short": (upsertion("short", salt=b"x" * 11), unacceptable, "The salt must have 12 to 1024 bytes"),
        "long": (upsertion("long", salt=b"x" * 1025), unacceptable, "The salt must have 12 to 1024 bytes"),
        "empty": (upsertion("empty", salted=b""), unacceptable, "The salted password must have 1 to 1024 bytes"),
        "x" * 256: (upsertion("x" * 256), unacceptable, "the user name must have at most 255 bytes"),
        "gone": (
            ScramCredentialDeletion(name="gone", mechanism=1),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        "other": (
            ScramCredentialDeletion(name="other", mechanism=9),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
    }
    answered = await alter(node, *(change for change, _, _ in cases.values()), upsertion("right"))
    assert answered == {name: (code, message) for name, (_, code, message) in cases.items()} | {"right": NONE}
    assert node.services.users.names() == ["right"]


@in_loop
async def test_a_user_may_be_changed_once_per_request(node: QuietNode) -> None:
    users = node.services.users
    await alter(node, upsertion("alice"))
    twice = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    for changes in (
        (upsertion("alice", 1, password="new"), upsertion("alice", 2, password="new")),
        (ScramCredentialDeletion(name="alice", mechanism=1), upsertion("alice", 2, password="new")),
        (upsertion("alice", 1), upsertion("alice", 1), upsertion("alice", 1)),
        (upsertion("alice", 9), upsertion("alice", 2, password="new")),
    ):
        assert await alter(node, *changes, upsertion("bob")) == {"alice": twice, "bob": NONE}
        assert users.describe("alice") == {ScramMechanism.SHA_256: 4096}
    assert await users.verify("alice", "secret")


@in_loop
async def test_changes_are_limited(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_user_scram_credentials, "CHANGES_MAX", 2)
    refused = (ErrorCode.INVALID_REQUEST, "A request may have at most 2 changes.")
    assert await alter(node, *(upsertion(name) for name in "abc")) == {"a": refused, "b": refused}
    assert node.services.users.names() == []
