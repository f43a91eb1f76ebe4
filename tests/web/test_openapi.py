"""The description of the HTTP API: whole, made from the routes, and true, which schemathesis tries to disprove."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
from aiohttp import web
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from kwire.web.answers.errors import KAFKA_STATUSES, STREAM_STATUSES, Refusal, error_answer, error_body, status_of
from kwire.web.documentation.openapi import document
from kwire.web.route import Route
from kwire.web.routes import ROUTES
from tests.support.effort import repetitions
from tests.support.http import http_node
from tests.support.node import in_loop
from tests.support.server import KwireProcess

DRAFT = "https://json-schema.org/draft/2020-12/schema"
# Random requests of each operation, beside those that schemathesis derives from the description.
TRIED_EXAMPLES = repetitions(quick=4, full=50)
# A run of schemathesis has no time limit of its own, which would leave out operations on a busy machine. Only a run
# that hangs takes longer than this.
TRIED_SECONDS_MAX = repetitions(quick=600, full=1800)
# What is described is accepted, but where it depends on what there is, or on more than a description can say.
UNDESCRIBED = {
    "names and values of topic settings": ("POST /topics/{topic}", "POST /topics"),
    "schemas, which have rules of their own, for a topic of the event store": (
        "PUT /topics/{topic}/schemas",
        "PATCH /topics/{topic}/schemas",
    ),
    "whether a topic is one of the event store": (
        "GET /topics/{topic}/schemas",
        "GET /topics/{topic}/events",
        "GET /events/{event}",
        "POST /events",
    ),
    "where deliveries may go, and expressions": (
        "POST /webhooks",
        "PATCH /webhooks/{webhook}",
        "POST /consumers/register",
    ),
    "whether a webhook has the topic of an event": (
        "POST /webhooks/{webhook}/resend",
        "POST /webhooks/{webhook}/dead-letters/resend",
        "GET /webhooks/{webhook}/dead-letters",
        "DELETE /webhooks/{webhook}/dead-letters/{event}",
    ),
    "characters that SASLprep does not allow in names and passwords": ("POST /users", "PUT /users/{user}/password"),
    "fields of which one is needed": ("POST /webhooks/{webhook}/replay",),
    "which fields a version of a Kafka API has, and the elements that a request may have": tuple(
        f"POST {route.path}" for route in ROUTES if route.path.startswith("/kafka/")
    ),
}
EXCEPTIONS = "".join(
    f'[[operations]]\ninclude-name = "{name}"\nchecks.positive_data_acceptance.enabled = false\n'
    for names in UNDESCRIBED.values()
    for name in names
)


def test_every_route_is_described() -> None:
    described = document(ROUTES)
    assert described["openapi"] == "3.1.0"
    for route in ROUTES:
        if route.is_hidden:
            continue
        operation = described["paths"][re.sub(r":[^{}]*\}", "}", route.path)][route.method.lower()]
        assert operation["summary"], route
        assert set(map(str, route.answers)) <= set(operation["responses"]), route
        assert {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"} == set(
            re.findall(r"\{(\w+)", route.path)
        ), route
        assert operation["tags"][0] in {tag["name"] for tag in described["tags"]}, route


def test_the_description_is_openapi_3_1_and_its_schemas_are_json_schema() -> None:
    described = msgspec.json.decode(msgspec.json.encode(document(ROUTES)))
    assert [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(described)] == []
    for name, schema in described["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid({"$schema": DRAFT, **schema}), name


def test_operations_have_names_of_their_own() -> None:
    operations = [one["operationId"] for path in document(ROUTES)["paths"].values() for one in path.values()]
    assert len(set(operations)) == len(operations)


def test_every_reference_leads_somewhere() -> None:
    described = document(ROUTES)
    text = msgspec.json.encode(described).decode()
    for name in set(re.findall(r"#/components/schemas/([^\"]+)", text)):
        assert name in described["components"]["schemas"], name
    for name in described["components"]["schemas"]:
        assert f'#/components/schemas/{name}"' in text, name


def test_a_route_is_described_by_what_it_decodes() -> None:
    class Wanted(msgspec.Struct):
        count: int
        name: str | None = None

    async def handle(services: object, request: web.Request) -> web.Response:
        return web.Response()

    route = Route("POST", "/things/{thing}", handle, request=Wanted, query=Wanted, answers={201: Wanted})
    operation = document([route])["paths"]["/things/{thing}"]["post"]
    assert [(one["name"], one["in"], one["required"]) for one in operation["parameters"]] == [
        ("thing", "path", True),
        ("count", "query", True),
        ("name", "query", False),
    ]
    assert operation["parameters"][2]["schema"] == {"type": "string"}
    assert operation["requestBody"]["required"]
    assert "201" in operation["responses"]


def test_every_error_has_a_status_of_its_fault() -> None:
    for status in (*STREAM_STATUSES.values(), *KAFKA_STATUSES.values()):
        assert status in (400, 403, 404, 409, 413, 429, 500, 503)


@in_loop
async def test_what_nobody_foresaw_is_told_without_its_details() -> None:
    secret = ValueError("secret")
    assert status_of(secret) == 500
    assert "secret" not in str(error_body(secret))
    answer = error_answer(Refusal("no", code="No", status=429, limit=3))
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert isinstance(answer.body, bytes)
    assert msgspec.json.decode(answer.body) == {"error": {"code": "No", "message": "no", "limit": 3}}


@in_loop
async def test_errors_of_the_frame_are_json_too(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        answer = await http.get("/nothing")
        assert (answer.status, answer.code) == (404, "NotFound")
        answer = await http.ask("PATCH", "/rooms/r")
        assert (answer.status, answer.code) == (405, "MethodNotAllowed")
        assert answer.headers["Allow"] == "DELETE, GET, HEAD, PUT"


@in_loop
async def test_pages_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        assert (await http.get("/")).headers["Location"] == "/docs"
        page = await http.get("/docs")
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        loaded = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.body.decode())
        assert len(loaded) == 4
        for path in ("/docs", *loaded):
            answer = await http.get(path)
            assert answer.status == 200
            assert not re.search(rb"(?:src|href|url|import|fetch)\W{1,3}(?:https?:)?//", answer.body)
            again = await http.get(path, If_None_Match=answer.headers["Etag"])
            assert (again.status, again.body) == (304, b"")


def test_exceptions_are_about_operations_that_there_are() -> None:
    shown = {f"{route.method} {re.sub(r':[^{}]*}', '}', route.path)}" for route in ROUTES}
    assert {name for names in UNDESCRIBED.values() for name in names} <= shown


def answered_requests(report: Path) -> Counter[str]:
    """How many requests of each operation were answered, in a report of schemathesis: one event a line."""
    counts: Counter[str] = Counter()
    for line in report.read_bytes().splitlines():
        scenario = msgspec.json.decode(line).get("ScenarioFinished")
        if scenario is None:
            continue
        operation: str = scenario["recorder"]["label"]
        method = operation.partition(" ")[0]
        # Requests with other methods than the described one are among them: they do not reach the operation.
        counts[operation] += sum(
            one["request"]["method"] == method and one["response"] is not None
            for one in scenario["recorder"].get("interactions", {}).values()
        )
    return counts


@pytest.mark.timeout(TRIED_SECONDS_MAX * 1.1)
def test_schemathesis_finds_nothing_that_contradicts_the_description(tmp_path: Path) -> None:
    """Requests within and outside of what is described: every answer is a described one, and none is a 5xx."""
    streams = {route.path for route in ROUTES if route.is_streaming}
    (tmp_path / "schemathesis.toml").write_text(EXCEPTIONS)
    report = tmp_path / "report.ndjson"
    server = KwireProcess(tmp_path / "node")
    server.restart()
    try:
        command = [
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            f"{server.http_url}/openapi.json",
            "--no-color",
            f"--max-examples={TRIED_EXAMPLES}",
            "--phases=examples,coverage,fuzzing",
            "--request-timeout=10",
            "--generation-deterministic",
            f"--report-ndjson-path={report}",
            # A stream has no end that one could wait for.
            *(f"--exclude-path={path}" for path in sorted(streams)),
        ]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TRIED_SECONDS_MAX)
        assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
        tried = answered_requests(report)
        described = {
            f"{method.upper()} {path}"
            for path, operations in document(ROUTES)["paths"].items()
            for method in operations
            if path not in streams
        }
        # Schemathesis leaves out the description itself, which it has read.
        assert set(tried) == described - {"GET /openapi.json"}
        assert [operation for operation, count in sorted(tried.items()) if not count] == []
    finally:
        server.kill()
