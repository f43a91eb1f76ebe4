"""AlterClientQuotas: quotas are set and removed, each entity has its result, wrong ones are refused."""

from collections.abc import Mapping

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import ALTER_CLIENT_QUOTAS
from tests.support.node import QuietNode, in_every_version, in_loop
from tests.support.quotas import Entity, alter, alteration, describe, described, entry

RATE = "producer_byte_rate"


@in_every_version(ALTER_CLIENT_QUOTAS)
@in_loop
async def test_quotas_are_set_changed_and_removed(node: QuietNode, version: int) -> None:
    entity: Entity = {"user": "alice", "client-id": None}
    for values, expected in (
        ({RATE: 100.0, "request_percentage": 0.5}, {RATE: 100.0, "request_percentage": 0.5}),
        ({RATE: 200.0}, {RATE: 200.0, "request_percentage": 0.5}),
        ({"request_percentage": None, "consumer_byte_rate": None}, {RATE: 200.0}),
    ):
        answer = await node.ask(alteration(entry(entity, values)), version)
        assert [(one.error_code, one.error_message) for one in answer.entries] == [(0, None)]
        assert {part.entity_type: part.entity_name for part in answer.entries[0].entity} == entity
        assert described(await node.ask(describe(), 1)) == [(entity, expected)]
    await alter(node, entity, {RATE: None})
    assert described(await node.ask(describe(), 1)) == []


@in_loop
async def test_validate_only_changes_nothing(node: QuietNode) -> None:
    good, bad = entry({"user": "alice"}, {RATE: 1.0}), entry({"user": "bob"}, {RATE: 0.0})
    answer = await node.ask(alteration(good, bad, validate_only=True), 1)
    assert [one.error_code for one in answer.entries] == [0, ErrorCode.INVALID_REQUEST]
    assert described(await node.ask(describe(), 1)) == []


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {RATE: 1.0}),
        ({"planet": "earth"}, {RATE: 1.0}),
        ({"user": ""}, {RATE: 1.0}),
        ({"user": "alice", "ip": "::1"}, {RATE: 1.0}),
        ({"ip": "somewhere.example"}, {"connection_creation_rate": 1.0}),
        ({"user": "alice"}, {"speed": 1.0}),
        ({"user": "alice"}, {"connection_creation_rate": 1.0}),
        ({"ip": "::1"}, {RATE: 1.0}),
        ({"user": "alice"}, {RATE: -1.0}),
        ({"user": "alice"}, {RATE: 1.5}),
        ({"user": "alice"}, {RATE: 1e19}),
        ({"user": "alice"}, {RATE: float("nan")}),
        ({"user": "alice"}, {"request_percentage": float("inf")}),
        ({"ip": "::1"}, {"connection_creation_rate": 3e9}),
    ],
)
@in_loop
async def test_wrong_quotas_are_refused_and_others_are_set(
    node: QuietNode, entity: Entity, values: Mapping[str, float]
) -> None:
    answer = await node.ask(alteration(entry(entity, values), entry({"user": "bob"}, {RATE: 5.0})), 1)
    assert [one.error_code for one in answer.entries] == [ErrorCode.INVALID_REQUEST, 0]
    assert answer.entries[0].error_message
    assert described(await node.ask(describe(), 1)) == [({"user": "bob"}, {RATE: 5.0})]


@in_loop
async def test_repeated_entities_and_keys_are_refused(node: QuietNode) -> None:
    twice = entry({"user": "alice"}, {RATE: 1.0})
    answer = await node.ask(alteration(twice, entry({"user": "alice"}, {RATE: 2.0})), 1)
    assert [one.error_code for one in answer.entries] == [0, ErrorCode.INVALID_REQUEST]
    both = entry({"user": "bob"}, {RATE: 1.0})
    both.ops += both.ops
    answer = await node.ask(alteration(both), 1)
    assert [one.error_code for one in answer.entries] == [ErrorCode.INVALID_REQUEST]


@in_loop
async def test_a_request_for_many_entities(node: QuietNode) -> None:
    answer = await node.ask(alteration(*(entry({"user": f"u{number}"}, {RATE: 1.0}) for number in range(350))), 1)
    assert [one.error_code for one in answer.entries] == [0] * 350
    assert len(node.services.quotas) == 350
