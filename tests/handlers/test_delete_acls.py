"""DeleteAcls: what filters remove, what the answer lists, what is refused, and who may do it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.access import authorizer as authorizer_module
from kwire.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.handlers import delete_acls
from kwire.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilterResult
from tests.support.acls import (
    DENY,
    LITERAL,
    MATCH,
    PREFIXED,
    UNKNOWN,
    WRITE,
    Row,
    creation,
    deletion,
    described,
    description,
    one_filter,
    row,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_every_version, in_loop

NONE, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, POLICY_VIOLATION = 0, 31, 42, 44
SECURITY_DISABLED, KAFKA_STORAGE_ERROR = 54, 56
LATEST = 3

ROWS = [row("orders"), row("orders", WRITE), row("ord", pattern_type=PREFIXED), row("*", WRITE, DENY), row("payments")]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path, "kwire.authorizer=acl") as made:
        yield made


def matched(result: DeleteAclsFilterResult) -> list[Row]:
    assert (result.error_code, result.error_message) == (NONE, None)
    for one in result.matching_acls:
        assert (one.error_code, one.error_message) == (NONE, None)
    return sorted(
        (
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in result.matching_acls
    )


async def rows_of(node: QuietNode) -> list[Row]:
    return described(await node.ask(description(), LATEST))


@in_every_version(DELETE_ACLS)
@in_loop
async def test_filters_remove_acls_and_each_lists_what_it_matched(guarded: QuietNode, version: int) -> None:
    await guarded.ask(creation(*ROWS), LATEST)
    filters = [one_filter("orders", pattern_type=MATCH), one_filter(operation=WRITE), one_filter("missing")]
    answer = await guarded.ask(deletion(*filters), version)
    assert answer.throttle_time_ms == 0
    # An ACL that two filters match is in both lists.
    assert [matched(one) for one in answer.filter_results] == [sorted(ROWS[:4]), sorted([ROWS[1], ROWS[3]]), []]
    assert await rows_of(guarded) == [ROWS[4]]
    guarded.restart()
    assert await rows_of(guarded) == [ROWS[4]]
    access = guarded.services.authorizer.access(Principal("User", "alice"), "10.0.0.1")
    assert not access.allows(Operation.READ, ResourceType.TOPIC, "orders")
    assert access.allows(Operation.READ, ResourceType.TOPIC, "payments")


@in_loop
async def test_literal_filter_spares_prefixes_and_the_wildcard(guarded: QuietNode) -> None:
    await guarded.ask(creation(*ROWS), LATEST)
    answer = await guarded.ask(deletion(one_filter("ord", pattern_type=LITERAL)), LATEST)
    assert matched(answer.filter_results[0]) == []
    await guarded.ask(deletion(one_filter("orders", pattern_type=LITERAL)), LATEST)
    assert await rows_of(guarded) == sorted(ROWS[2:])


@in_loop
async def test_filters_with_unknown_numbers_are_refused_and_the_others_used(guarded: QuietNode) -> None:
    await guarded.ask(creation(*ROWS), LATEST)
    fields = ("resource_type", "pattern_type", "operation", "permission_type")
    wrong: list[dict[str, Any]] = [{field: number} for field in fields for number in (UNKNOWN, 99)]
    bad = [one_filter(**one) for one in wrong]
    answer = await guarded.ask(deletion(*bad, one_filter("payments")), LATEST)
    assert [one.error_code for one in answer.filter_results] == [*[INVALID_REQUEST] * len(bad), NONE]
    assert [one.matching_acls for one in answer.filter_results[:-1]] == [[]] * len(bad)
    assert await rows_of(guarded) == sorted(ROWS[:4])


@in_every_version(DELETE_ACLS)
@in_loop
async def test_large_answers_are_the_same(guarded: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    filters = [one_filter("orders"), one_filter(operation=99), one_filter()]
    await guarded.ask(creation(*ROWS), LATEST)
    whole = await guarded.ask(deletion(*filters), version)
    monkeypatch.setattr(delete_acls, "WEIGHT_PER_CHUNK", 2)
    await guarded.ask(creation(*ROWS), LATEST)
    assert await guarded.ask(deletion(*filters), version) == whole
    assert [len(one.matching_acls) for one in whole.filter_results] == [2, 0, 5]


@in_loop
async def test_too_many_removals_are_refused(guarded: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "REMOVED_MAX", 4)
    await guarded.ask(creation(*ROWS), LATEST)
    answer = await guarded.ask(deletion(one_filter("payments"), one_filter()), LATEST)
    assert [one.error_code for one in answer.filter_results] == [POLICY_VIOLATION] * 2
    assert "match more than 4 ACLs" in answer.filter_results[0].error_message
    assert await rows_of(guarded) == sorted(ROWS)


@in_loop
async def test_without_an_authorizer_there_are_no_acls(node: QuietNode) -> None:
    answer = await node.ask(deletion(one_filter(), one_filter(operation=99)), LATEST)
    assert [one.error_code for one in answer.filter_results] == [SECURITY_DISABLED] * 2


@in_loop
async def test_only_who_may_alter_the_cluster_removes_acls(guarded: QuietNode) -> None:
    await guarded.ask(creation(*ROWS), LATEST)
    authorizer = guarded.services.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    alice = Principal("User", "alice")
    guarded.access = authorizer.access(alice, "10.0.0.1")
    cluster = (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, alice, "*")
    await authorizer.add([Acl(*cluster, Operation.DESCRIBE, Permission.ALLOW)])
    answer = await guarded.ask(deletion(one_filter(), one_filter()), LATEST)
    assert [one.error_code for one in answer.filter_results] == [CLUSTER_AUTHORIZATION_FAILED] * 2
    assert len(authorizer.acls()) == len(ROWS) + 1
    await authorizer.add([Acl(*cluster, Operation.ALTER, Permission.ALLOW)])
    answer = await guarded.ask(deletion(one_filter("payments")), LATEST)
    assert matched(answer.filter_results[0]) == [ROWS[4]]


@in_loop
async def test_removals_that_cannot_be_stored_are_reported(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, "kwire.authorizer=acl", files=files) as node:
        await node.ask(creation(*ROWS), LATEST)
        files.break_down("write")
        files.break_down("pwrite")
        files.break_down("pwritev")
        answer = await node.ask(deletion(one_filter()), LATEST)
        files.repair()
        assert [one.error_code for one in answer.filter_results] == [KAFKA_STORAGE_ERROR]
        assert await rows_of(node) == sorted(ROWS)
