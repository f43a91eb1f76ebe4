"""Kafka's administrative requests as JSON on a bridge: what is served, and with which rights."""

from pathlib import Path

import pytest

from kwire.access.acl import CLUSTER_NAME, Operation
from kwire.bridge.kafka_requests.handlers import BRIDGE_HANDLERS
from kwire.web.bridge import kafka_requests
from tests.support.bridge_access import bridge_with_users
from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine
from tests.support.http_access import ADMIN, BOB
from tests.support.kafka_request_cases import CASES, CLUSTER, FAILING, TOPIC
from tests.support.node import in_uvloop
from tests.web.access.route_rows import filled
from tests.web.kafka_requests.test_requests import errors_in

SERVED = {route.path.removeprefix("/kafka/") for route in kafka_requests.ROUTES}
over_clusters = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)


def upstream_of(engine: Engine) -> str:
    assert engine.upstream is not None
    return engine.upstream


def test_every_served_request_has_a_handler_and_every_handler_is_served() -> None:
    assert {handler.api.name for handler in BRIDGE_HANDLERS.values()} == SERVED


@over_clusters
@in_uvloop
async def test_served_requests_succeed_and_fail(engine: Engine, tmp_path: Path) -> None:
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        for case in CASES:
            if case.api in SERVED:
                answer = await http.post(case.path, filled(case.body, {"name": "it"}), Authorization=ADMIN)
                assert answer.status == 200, (case, answer)
                assert {name for _, name in errors_in(answer.json)} == ({case.accepted} if case.accepted else set()), (
                    case
                )
        for api, (body, expected) in FAILING.items():
            if api in SERVED:
                answer = await http.kafka(api, filled(body, {"name": "missing"}), ADMIN)
                assert {name for _, name in errors_in(answer.json)} == {expected}, (api, answer)


@over_clusters
@in_uvloop
async def test_a_client_without_a_right_is_refused(engine: Engine, tmp_path: Path) -> None:
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        for case in CASES:
            if case.api not in SERVED or not case.rights:
                continue
            body = filled(case.body, {"name": "it"})
            rights = [(op, kind, CLUSTER_NAME if kind is CLUSTER else "it") for op, kind in case.rights]
            refused = await http.kafka(case.api, body, BOB)
            assert refused.status == 200, case
            assert case.refusal in refused.body.decode(), (case, refused)
            await http.allow(rights)
            allowed = await http.kafka(case.api, body, BOB)
            assert case.refusal not in allowed.body.decode(), (case, allowed)
            await http.allow(rights[:1], is_denied=True)
            denied = await http.kafka(case.api, body, BOB)
            assert case.refusal in denied.body.decode(), (case, denied)
            await http.take_away()


@over_clusters
@in_uvloop
async def test_a_quota_of_a_user_applies_to_what_it_publishes(engine: Engine, tmp_path: Path) -> None:
    event = {"event_type": "t", "data": "x" * 600}
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        everything = [(operation, TOPIC, "r") for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)]
        await http.allow(everything)
        assert (await http.post("/rooms/r/events", event, Authorization=BOB)).status == 201
        entity = [{"entity_type": "user", "entity_name": "bob"}]
        op = {"key": "producer_byte_rate", "value": 100.0, "remove": False}
        await http.as_admin("AlterClientQuotas", {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False})
        statuses = [(await http.post("/rooms/r/events", event, Authorization=BOB)).status for _ in range(4)]
        assert statuses[-1] == 429
        assert (await http.post("/rooms/r/events", event, Authorization=ADMIN)).status == 201
