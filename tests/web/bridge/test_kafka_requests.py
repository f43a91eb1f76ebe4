"""Kafka's administrative requests as JSON on a bridge: what is served, and with which rights."""

import asyncio
from pathlib import Path
from secrets import token_hex, token_urlsafe

import pytest

from kwire.access.acl import CLUSTER_NAME, Operation
from kwire.bridge.kafka_requests.handlers import BRIDGE_HANDLERS
from kwire.errors import ErrorCode
from kwire.web.bridge import kafka_requests
from kwire.web.kafka_requests.listed import REQUESTS
from tests.support.bridge_access import BridgeHttp, bridge_with_users
from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine
from tests.support.http import Answer
from tests.support.http_access import ADMIN, BOB, Right
from tests.support.kafka_request_cases import (
    CASES,
    CLUSTER,
    EMPTY_GROUP,
    FAILING,
    NEW_TOPIC,
    PARTITIONED,
    TOPIC,
    TRANSACTIONAL_ID,
    KafkaCase,
    new_producer,
)
from tests.support.node import in_uvloop
from tests.web.access.route_rows import filled
from tests.web.kafka_requests.test_requests import errors_in

SERVED = {route.path.removeprefix("/kafka/") for route in kafka_requests.ROUTES}
over_clusters = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)
COORDINATOR_S = 30.0
# The cluster does not know yet who coordinates a new group or a new transactional id, or still writes what it was told.
PASSING = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"}
# The group of a commit without members is a classic one.
IS_CLASSIC = {"ConsumerGroupDescribe": "GROUP_ID_NOT_FOUND"}
# Metadata creates no topic on a bridge.
CREATES_NO_TOPIC = {(Operation.DESCRIBE, TOPIC), (Operation.CREATE, TOPIC)}


def upstream_of(engine: Engine) -> str:
    assert engine.upstream is not None
    return engine.upstream


def is_served(case: KafkaCase) -> bool:
    return case.api in SERVED and not (case.api == "Metadata" and set(case.rights) == CREATES_NO_TOPIC)


class Cases:
    """Sends the requests of the table to a bridge, each about resources of its own."""

    def __init__(self, http: BridgeHttp) -> None:
        self.http = http

    async def ask(self, case: KafkaCase, name: str, credentials: str) -> Answer:
        """Send the request; again while the coordinator is not ready."""
        async with asyncio.timeout(COORDINATOR_S):
            while True:
                answer = await self.http.post(case.path, filled(case.body, {"name": name}), Authorization=credentials)
                assert answer.status == 200, (case, answer)
                if not {error for _, error in errors_in(answer.json)} & PASSING:
                    return answer
                await asyncio.sleep(0.05)

    async def set_up(self, setup: str) -> str:
        """Create the resource of a case as `admin`, and return its name."""
        name = f"it-{token_hex(6)}"
        if setup in (PARTITIONED, EMPTY_GROUP):
            await self._make("CreateTopics", {"topics": [{**NEW_TOPIC, "name": name}]}, name)
        if setup == EMPTY_GROUP:
            partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}
            topics = [{"name": name, "partitions": [partition]}]
            await self._make("OffsetCommit", {"group_id": name, "member_id": "", "topics": topics}, name, 9)
        if setup == TRANSACTIONAL_ID:
            await self._make("InitProducerId", new_producer(name), name)
        return name

    async def _make(self, api: str, body: dict[str, object], name: str, version: int | None = None) -> None:
        answer = await self.ask(KafkaCase(api, body, version=version), name, ADMIN)
        assert errors_in(answer.json) == [], (api, answer)


def rights_of(case: KafkaCase, name: str) -> list[Right]:
    return [(operation, kind, CLUSTER_NAME if kind is CLUSTER else name) for operation, kind in case.rights]


def test_every_request_is_served_or_has_a_reason() -> None:
    assert {one.name for one in REQUESTS} == SERVED | set(kafka_requests.NOT_SERVED)
    assert not SERVED & set(kafka_requests.NOT_SERVED)


def test_every_served_request_has_a_handler_and_every_handler_is_served() -> None:
    assert {handler.api.name for handler in BRIDGE_HANDLERS.values()} == SERVED


@over_clusters
@in_uvloop
async def test_served_requests_succeed_and_fail(engine: Engine, tmp_path: Path) -> None:
    wrong: dict[str, object] = {}
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        cases = Cases(http)
        for case in filter(is_served, CASES):
            name = await cases.set_up(case.setup)
            found = {error for _, error in errors_in((await cases.ask(case, name, ADMIN)).json)}
            expected = IS_CLASSIC.get(case.api, case.accepted)
            if found != ({expected} if expected else set()):
                wrong[f"{case.api} {case.body}"] = found
        for api, (body, expected) in FAILING.items():
            if api in SERVED:
                answer = await cases.ask(KafkaCase(api, body), f"missing-{token_hex(6)}", ADMIN)
                found = {error for _, error in errors_in(answer.json)}
                if found != {expected}:
                    wrong[api] = answer.body
    assert wrong == {}


@over_clusters
@in_uvloop
async def test_a_client_without_a_right_is_refused(engine: Engine, tmp_path: Path) -> None:
    """Each right of each request: without it, with it on another resource, with it, and with a DENY."""
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        cases = Cases(http)
        for case in filter(is_served, CASES):
            if not case.rights:
                continue
            name = await cases.set_up(case.setup)
            check_refused(case, name, await cases.ask(case, name, BOB))
            if case.rights[0][1] is not CLUSTER:
                await http.allow(rights_of(case, "other"))
                check_refused(case, name, await cases.ask(case, name, BOB))
            for denied in rights_of(case, name):
                await http.allow(rights_of(case, name))
                await http.allow([denied], is_denied=True)
                check_refused(case, name, await cases.ask(case, name, BOB))
                await http.take_away()
            await http.allow(rights_of(case, name))
            allowed = await cases.ask(case, name, BOB)
            assert case.refusal not in allowed.body.decode(), (case, allowed)
            assert not case.is_list or f'"{name}"' in allowed.body.decode(), (case, allowed)
            await http.take_away()


def check_refused(case: KafkaCase, name: str, answer: Answer) -> None:
    body = answer.body.decode()
    if case.is_list:
        assert f'"{name}"' not in body, (case, answer)
    else:
        assert case.refusal in body, (case, answer)


@over_clusters
@in_uvloop
async def test_a_quota_of_changes_applies_to_names_beside_an_id(engine: Engine, tmp_path: Path) -> None:
    names = [f"quota-{token_hex(4)}" for _ in range(4)]
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        for name in names:
            await engine.create_topic(http.server, name, 3)
        rights = (Operation.DELETE, Operation.DESCRIBE)
        await http.allow([(operation, TOPIC, name) for name in names for operation in rights])
        entity = [{"entity_type": "user", "entity_name": "bob"}]
        op = {"key": "controller_mutation_rate", "value": 0.01, "remove": False}
        await http.as_admin("AlterClientQuotas", {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False})
        unknown = {"name": None, "topic_id": token_urlsafe(16)}
        asked = {"topics": [unknown, *({"name": name} for name in names)], "timeout_ms": 30_000}
        answer = await http.kafka("DeleteTopics", asked, BOB)
        assert answer.status == 200, answer
        codes = sorted(one["error_code"] for one in answer.json["responses"])
        assert codes == sorted([0, *[ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3, ErrorCode.UNKNOWN_TOPIC_ID]), answer
        for name in names:
            await http.as_admin("DeleteTopics", {"topics": [{"name": name}], "timeout_ms": 30_000})


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
