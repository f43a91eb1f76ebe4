"""Every listed request on a real node: one that succeeds, and one that fails with a Kafka error."""

from pathlib import Path
from typing import Any

from kwire.handlers import HANDLERS
from kwire.web.kafka_requests.listed import EXCLUDED, REQUESTS
from tests.support.http import Http, http_node
from tests.support.http_access import ACL_SETTINGS
from tests.support.kafka_request_cases import (
    CASES,
    EMPTY_GROUP,
    FAILING,
    NEVER_FAILING,
    PARTITIONED,
    TRANSACTIONAL_ID,
    KafkaCase,
    load_transactions,
    new_producer,
)
from tests.support.node import in_uvloop
from tests.web.access.route_rows import filled


def test_every_api_of_the_kafka_port_is_listed_or_excluded_with_a_reason() -> None:
    listed = [one.name for one in REQUESTS]
    assert len(set(listed)) == len(listed)
    assert not set(listed) & set(EXCLUDED)
    assert {handler.api.name for handler in HANDLERS.values()} == {*listed, *EXCLUDED}


def test_every_listed_request_has_a_case_that_succeeds_and_one_that_fails() -> None:
    listed = {one.name for one in REQUESTS}
    assert {case.api for case in CASES} == listed
    failing = {case.api for case in CASES if case.accepted}
    assert {*FAILING, *failing, *NEVER_FAILING} == listed


def errors_in(answer: Any) -> list[tuple[int, str | None]]:
    """Every error code that is not 0, with its name."""
    found: list[tuple[int, str | None]] = []
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code") and value:
                found.append((value, answer.get(name.removesuffix("_code"))))
            found += errors_in(value)
    elif isinstance(answer, list):
        for one in answer:
            found += errors_in(one)
    return found


async def set_up(http: Http, case: KafkaCase, name: str) -> None:
    if case.setup in (PARTITIONED, EMPTY_GROUP):
        assert (await http.post(f"/topics/{name}", {"num_partitions": 1})).status == 201
    if case.setup == TRANSACTIONAL_ID:
        assert (await http.post("/kafka/InitProducerId", new_producer(name))).json["error_code"] == 0
    if case.setup == EMPTY_GROUP:
        assert (await http.post(f"/consumer-groups/{name}", {"topic": name})).status == 201


@in_uvloop
async def test_every_listed_request_succeeds_and_fails(tmp_path: Path) -> None:
    """One node for all of them. Requests that name ACLs need an authorizer."""
    async with http_node(tmp_path, ACL_SETTINGS[0], "super.users=User:ANONYMOUS") as http:
        await load_transactions(http)
        for number, case in enumerate(CASES):
            names = {"name": f"it-{number}"}
            await set_up(http, case, names["name"])
            answer = await http.post(case.path, filled(case.body, names))
            assert answer.status == 200, (case, answer)
            if case.accepted:
                assert {name for _, name in errors_in(answer.json)} == {case.accepted}, (case, answer)
            else:
                assert errors_in(answer.json) == [], (case, answer)
        wrong = {}
        for api, (body, expected) in FAILING.items():
            answer = await http.post(f"/kafka/{api}", filled(body, {"name": f"missing-{api}"}))
            found = {name for _, name in errors_in(answer.json)}
            if (answer.status, found) != (200, {expected}):
                wrong[api] = answer.body
    assert wrong == {}
