"""DescribeAcls: which ACLs a filter selects, in answers of every size, and who may see them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.access.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.broker import chunked_answers
from kwire.handlers import describe_acls
from kwire.wire.messages.describe_acls import DESCRIBE_ACLS
from tests.support.acls import (
    ALL,
    ALLOW,
    ANY,
    DENY,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    UNKNOWN,
    WRITE,
    creation,
    described,
    description,
    row,
)
from tests.support.node import QuietNode, in_every_version, in_loop

NONE, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, SECURITY_DISABLED = 0, 31, 42, 54
LATEST = 3

ROWS = {
    "literal": row("orders"),
    "longer": row("orders-eu"),
    "wildcard": row("*", WRITE),
    "prefix": row("ord", pattern_type=PREFIXED),
    "same prefix": row("orders", pattern_type=PREFIXED),
    "star prefix": row("*", pattern_type=PREFIXED),
    "other": row("payments", ALL, DENY, principal="User:bob", host="::1"),
    "group": row("orders", resource_type=GROUP),
}

FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set(ROWS)),
    ({"name": "orders"}, {"literal", "same prefix", "group"}),
    ({"name": "orders", "pattern_type": LITERAL}, {"literal", "group"}),
    ({"name": "orders", "pattern_type": PREFIXED}, {"same prefix"}),
    ({"name": "orders", "pattern_type": MATCH}, {"literal", "wildcard", "prefix", "same prefix", "group"}),
    ({"name": "ordersome", "pattern_type": MATCH, "resource_type": TOPIC}, {"wildcard", "prefix", "same prefix"}),
    ({"name": "*"}, {"wildcard", "star prefix"}),
    ({"name": "*", "pattern_type": MATCH}, {"wildcard", "star prefix"}),
    ({"pattern_type": MATCH}, set(ROWS)),
    ({"pattern_type": PREFIXED}, {"prefix", "same prefix", "star prefix"}),
    ({"name": ""}, set()),
    ({"resource_type": GROUP}, {"group"}),
    ({"principal": "User:bob"}, {"other"}),
    ({"principal": "User:*"}, set()),
    ({"principal": "bob"}, set()),
    ({"host": "*"}, set(ROWS) - {"other"}),
    ({"host": "0:0:0:0:0:0:0:1"}, {"other"}),
    ({"operation": WRITE}, {"wildcard"}),
    ({"operation": ALL}, {"other"}),
    ({"permission_type": DENY}, {"other"}),
    # This one can match one ACL only.
    (
        {
            "name": "orders",
            "resource_type": TOPIC,
            "pattern_type": LITERAL,
            "principal": "User:alice",
            "host": "*",
            "operation": READ,
            "permission_type": ALLOW,
        },
        {"literal"},
    ),
    (
        {
            "name": "orders",
            "resource_type": TOPIC,
            "pattern_type": LITERAL,
            "principal": "User:alice",
            "host": "*",
            "operation": WRITE,
            "permission_type": ALLOW,
        },
        set(),
    ),
]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, "kwire.authorizer=acl") as made:
        yield made


@in_every_version(DESCRIBE_ACLS)
@in_loop
async def test_filters_select_acls(guarded: QuietNode, version: int) -> None:
    await guarded.ask(creation(*ROWS.values()), LATEST)
    for given, expected in FILTERS:
        answer = await guarded.ask(description(**given), version)
        assert (answer.error_code, answer.error_message, answer.throttle_time_ms) == (NONE, None, 0)
        assert described(answer) == sorted(ROWS[name] for name in expected), given


@in_loop
async def test_acls_of_one_pattern_are_together(guarded: QuietNode) -> None:
    await guarded.ask(creation(row("t"), row("u"), row("t", WRITE), row("t", pattern_type=PREFIXED)), LATEST)
    answer = await guarded.ask(description(), LATEST)
    assert sorted((one.resource_name, one.pattern_type, len(one.acls)) for one in answer.resources) == [
        ("t", LITERAL, 2),
        ("t", PREFIXED, 1),
        ("u", LITERAL, 1),
    ]


@in_every_version(DESCRIBE_ACLS)
@in_loop
async def test_large_answers_are_the_same(guarded: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(f"t{number % 7}", principal=f"User:{number}") for number in range(60)]
    await guarded.ask(creation(*rows), LATEST)
    whole = await guarded.ask(description(), version)
    monkeypatch.setattr(chunked_answers, "WEIGHT_PER_CHUNK", 5)
    monkeypatch.setattr(describe_acls, "ACLS_PER_ELEMENT", 2)
    in_chunks = await guarded.ask(description(), version)
    assert described(in_chunks) == described(whole) == sorted(rows)
    assert len(whole.resources) == 7
    assert max(len(one.acls) for one in in_chunks.resources) == 2


def only(field: str, number: int) -> dict[str, Any]:
    return {field: number}


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission_type"])
@in_loop
async def test_unknown_numbers_are_refused(guarded: QuietNode, field: str) -> None:
    await guarded.ask(creation(row()), LATEST)
    for number in (UNKNOWN, 99, -1):
        answer = await guarded.ask(description(**only(field, number)), LATEST)
        assert (answer.error_code, answer.resources) == (INVALID_REQUEST, [])
        assert answer.error_message.startswith("Unknown ")
        assert answer.error_message.endswith(f" {number}")
    assert (await guarded.ask(description(**only(field, ANY)), LATEST)).error_code == NONE


@in_loop
async def test_without_an_authorizer_there_are_no_acls(node: QuietNode) -> None:
    answer = await node.ask(description(resource_type=99), LATEST)
    assert (answer.error_code, answer.resources) == (SECURITY_DISABLED, [])
    assert answer.error_message == "No Authorizer is configured on the broker."


@in_loop
async def test_only_who_may_describe_the_cluster_sees_acls(guarded: QuietNode) -> None:
    authorizer = guarded.services.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    alice = Principal("User", "alice")
    guarded.access = authorizer.access(alice, "10.0.0.1")
    answer = await guarded.ask(description(), LATEST)
    assert (answer.error_code, answer.resources) == (CLUSTER_AUTHORIZATION_FAILED, [])
    cluster = (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, alice, "*")
    for operation in (Operation.DESCRIBE, Operation.ALTER):
        (allowed,) = acls = [Acl(*cluster, operation, Permission.ALLOW)]
        await authorizer.add(acls)
        answer = await guarded.ask(description(), LATEST)
        assert described(answer) == [(*allowed[:3], str(alice), *allowed[4:])]
        await authorizer.remove([AclFilter()])
