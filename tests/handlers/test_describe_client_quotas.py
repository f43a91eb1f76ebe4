"""DescribeClientQuotas: the quotas that match a filter, and wrong filters are refused."""

import pytest

from kwire.access.quotas.entities import entity_of
from kwire.access.quotas.quotas import Alteration
from kwire.errors import ErrorCode
from kwire.wire.apis import DESCRIBE_CLIENT_QUOTAS
from tests.support.node import QuietNode, in_every_version, in_loop
from tests.support.quotas import Entity, Filter, alter, describe, described

ALICE: Entity = {"user": "alice"}
ALICE_APP: Entity = {"user": "alice", "client-id": "app"}
ALL_APPS: Entity = {"client-id": None}
ADDRESS: Entity = {"ip": "::1"}


async def with_quotas(node: QuietNode) -> None:
    for entity in (ALICE, ALICE_APP, ALL_APPS):
        await alter(node, entity, {"producer_byte_rate": 1000.0, "request_percentage": 2.5})
    await alter(node, ADDRESS, {"connection_creation_rate": 5.0})


@in_every_version(DESCRIBE_CLIENT_QUOTAS)
@in_loop
async def test_without_quotas_there_are_no_entries(node: QuietNode, version: int) -> None:
    for components in ((), (("user", 0, "alice"), ("client-id", 1, None)), (("user", 2, None),), (("ip", 0, "::1"),)):
        answer = await node.ask(describe(*components), version)
        assert (answer.error_code, answer.error_message, answer.entries) == (0, None, [])


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [ALICE, ALICE_APP, ALL_APPS, ADDRESS]),
        ([("user", 0, "alice")], False, [ALICE, ALICE_APP]),
        ([("user", 0, "alice")], True, [ALICE]),
        ([("user", 2, None)], False, [ALICE, ALICE_APP]),
        ([("user", 0, "bob")], False, []),
        ([("client-id", 1, None)], False, [ALL_APPS]),
        ([("client-id", 2, None)], False, [ALICE_APP, ALL_APPS]),
        ([("user", 0, "alice"), ("client-id", 0, "app")], True, [ALICE_APP]),
        ([("user", 1, None)], False, []),
        ([("ip", 0, "::1")], True, [ADDRESS]),
        ([], True, []),
    ],
)
@in_loop
async def test_a_filter_selects_entities(
    node: QuietNode, components: list[Filter], strict: bool, expected: list[Entity]
) -> None:
    await with_quotas(node)
    answer = await node.ask(describe(*components, strict=strict), 1)
    found = described(answer)
    assert [entity for entity, _ in found] == expected
    for entity, values in found:
        is_ip = "ip" in entity
        assert values == (
            {"connection_creation_rate": 5.0} if is_ip else {"producer_byte_rate": 1000.0, "request_percentage": 2.5}
        )


@in_loop
async def test_many_entities_are_described_in_chunks(node: QuietNode) -> None:
    await node.services.quotas.alter(
        Alteration(entity_of([("user", f"u{number}")]), {"producer_byte_rate": 1.0}) for number in range(1000)
    )
    assert len(described(await node.ask(describe(("user", 2, None)), 1))) == 1000


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("planet", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, "x"), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "x"), ("ip", 1, None)], ErrorCode.INVALID_REQUEST),
    ],
)
@in_loop
async def test_wrong_filters_are_refused(node: QuietNode, components: list[Filter], code: ErrorCode) -> None:
    answer = await node.ask(describe(*components), 1)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
