"""CreateAcls: what is added, what is refused and why, and who may do it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.access import authorizer as authorizer_module
from kwire.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.handlers import create_acls
from kwire.wire.messages.create_acls import CREATE_ACLS, CreateAclsResponse
from tests.support.acls import (
    ALTER,
    ANY,
    CLUSTER,
    GROUP,
    MATCH,
    PREFIXED,
    UNKNOWN,
    creation,
    described,
    description,
    row,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_every_version, in_loop

NONE, INVALID_REQUEST, POLICY_VIOLATION, SECURITY_DISABLED = 0, 42, 44, 54
CLUSTER_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR = 31, 56
LATEST = 3


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, "kwire.authorizer=acl") as made:
        yield made


def codes(answer: CreateAclsResponse) -> list[int]:
    return [one.error_code for one in answer.results]


@in_every_version(CREATE_ACLS)
@in_loop
async def test_acls_are_added_and_in_force(guarded: QuietNode, version: int) -> None:
    rows = [
        row("t"),
        row("p", pattern_type=PREFIXED, host="10.0.0.1"),
        row("kafka-cluster", ALTER, resource_type=CLUSTER),
        row("*", resource_type=GROUP, principal="User:*"),
    ]
    answer = await guarded.ask(creation(*rows, rows[0]), version)
    assert (codes(answer), answer.throttle_time_ms) == ([NONE] * 5, 0)
    assert {one.error_message for one in answer.results} == {None}
    assert described(await guarded.ask(description(), LATEST)) == sorted(rows)
    access = guarded.services.authorizer.access(Principal("User", "alice"), "10.0.0.2")
    assert access.allows(Operation.READ, ResourceType.TOPIC, "t")
    assert not access.allows(Operation.READ, ResourceType.TOPIC, "p1")
    # They are there after a restart, and adding them again is no error.
    guarded.restart()
    assert described(await guarded.ask(description(), LATEST)) == sorted(rows)
    assert codes(await guarded.ask(creation(*rows), version)) == [NONE] * 4
    assert len(described(await guarded.ask(description(), LATEST))) == 4


REFUSED = [
    (row(resource_type=UNKNOWN), "Unknown resourceType 0"),
    (row(resource_type=99), "Unknown resourceType 99"),
    (row(resource_type=-1), "Unknown resourceType -1"),
    (row(resource_type=ANY), "Invalid resourceType ANY"),
    (row(pattern_type=UNKNOWN), "Unknown patternType 0"),
    (row(pattern_type=5), "Unknown patternType 5"),
    (row(pattern_type=ANY), "Invalid patternType ANY"),
    (row(pattern_type=MATCH), "Invalid patternType MATCH"),
    (row(operation=UNKNOWN), "Unknown operation 0"),
    (row(operation=16), "Unknown operation 16"),
    (row(operation=ANY), "Invalid operation ANY"),
    (row(permission=UNKNOWN), "Unknown permissionType 0"),
    (row(permission=4), "Unknown permissionType 4"),
    (row(permission=ANY), "Invalid permissionType ANY"),
    (row(""), "Invalid empty resource name"),
    (row("*", resource_type=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
    (row("", resource_type=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
    (row("n" * 1025), "The resource name has 1025 characters, at most 1024 are allowed"),
    (row(principal="User:" + "n" * 1020), "The principal has 1025 characters, at most 1024 are allowed"),
    (row(host="1" * 256), "The host has 256 characters, at most 255 are allowed"),
    (row(host=""), "The host must be an IP address or *, not empty"),
    (row(principal="alice"), "expected a principal of the form User:NAME, got 'alice'"),
    (row(principal="User:"), "expected a principal of the form User:NAME, got 'User:'"),
    (row(principal=""), "expected a principal of the form User:NAME, got ''"),
]


@in_loop
async def test_acls_that_cannot_be_are_refused_one_by_one(guarded: QuietNode) -> None:
    good = [row("first"), row("last", principal="User:" + "n" * 1019), row("n" * 1024)]
    answer = await guarded.ask(creation(good[0], *(one for one, _ in REFUSED), *good[1:]), LATEST)
    assert codes(answer) == [NONE, *[INVALID_REQUEST] * len(REFUSED), NONE, NONE]
    assert [one.error_message for one in answer.results[1:-2]] == [message for _, message in REFUSED]
    assert described(await guarded.ask(description(), LATEST)) == sorted(good)


@in_loop
async def test_without_an_authorizer_there_are_no_acls(node: QuietNode) -> None:
    answer = await node.ask(creation(row("t"), row("")), LATEST)
    assert codes(answer) == [SECURITY_DISABLED] * 2
    assert answer.results[0].error_message == "No Authorizer is configured on the broker."


@in_loop
async def test_only_who_may_alter_the_cluster_adds_acls(guarded: QuietNode) -> None:
    authorizer = guarded.services.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    alice = Principal("User", "alice")
    guarded.access = authorizer.access(alice, "10.0.0.1")
    assert codes(await guarded.ask(creation(row("a"), row("")), LATEST)) == [CLUSTER_AUTHORIZATION_FAILED] * 2
    assert len(authorizer.acls()) == 0
    cluster = (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, alice, "*")
    await authorizer.add([Acl(*cluster, Operation.DESCRIBE, Permission.ALLOW)])
    assert codes(await guarded.ask(creation(row("a")), LATEST)) == [CLUSTER_AUTHORIZATION_FAILED]
    await authorizer.add([Acl(*cluster, Operation.ALTER, Permission.ALLOW)])
    assert codes(await guarded.ask(creation(row("a")), LATEST)) == [NONE]


@in_loop
async def test_many_acls_are_added_in_chunks(guarded: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_acls, "CHANGES_PER_COMMIT", 3)
    monkeypatch.setattr(authorizer_module, "ACLS_MAX", 8)
    rows = [row(f"t{number}") for number in range(12)]
    rows[4] = row("")
    answer = await guarded.ask(creation(*rows), LATEST)
    # The last two chunks do not fit: 3 + 2 + 3 ACLs are there.
    assert codes(answer) == [*[NONE] * 4, INVALID_REQUEST, *[NONE] * 4, *[POLICY_VIOLATION] * 3]
    assert "There are 8 ACLs, and at most 8 are allowed." in (answer.results[-1].error_message or "")
    assert len(described(await guarded.ask(description(), LATEST))) == 8


@in_loop
async def test_acls_that_cannot_be_stored_are_reported(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, "kwire.authorizer=acl", files=files) as node:
        files.break_down("write")
        files.break_down("pwrite")
        files.break_down("pwritev")
        answer = await node.ask(creation(row("t"), row("")), LATEST)
        files.repair()
        assert codes(answer) == [KAFKA_STORAGE_ERROR, INVALID_REQUEST]
        assert described(await node.ask(description(), LATEST)) == []
