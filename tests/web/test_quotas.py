"""Quotas over HTTP: 429 with Retry-After and rate limit headers for publishing and reading; streams wait."""

import asyncio
from pathlib import Path
from time import perf_counter

import pytest

from kwire.access.access import Unrestricted
from kwire.access.quotas.client_quota import Allowance, Exceeded
from kwire.access.quotas.entities import entity_of
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.quotas import Alteration, Quotas
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import RequestAccess
from kwire.web.requests.quotas import QuotaExceeded, charge_partitions, quota_refusal, rate_limit_headers
from tests.support.engines import Engine, for_each_engine
from tests.support.http import Http
from tests.support.node import QuietNode, in_uvloop


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, (), "the quotas are those of the same code")


def event(text: str) -> dict[str, object]:
    return {"event_type": "t", "data": text}


EVENT = event("x")
MUTATIONS = "controller_mutation_rate"


async def limit(http: Http, value: float | None, kind: str = "producer_byte_rate") -> None:
    quotas = http.quotas
    await quotas.alter([Alteration(entity_of([("user", "ANONYMOUS")]), {kind: value})])


@in_uvloop
async def test_publishing_above_the_quota_is_refused(engine: Engine) -> None:
    async with engine.http() as http:
        answer = await http.ask("POST", "/rooms/r/events", EVENT)
        assert answer.status == 201
        assert "RateLimit" not in answer.headers
        await limit(http, 100)
        body = event("x" * 600)
        answer = await http.ask("POST", "/rooms/r/events", body)
        assert answer.status == 201
        assert answer.headers["RateLimit-Policy"] == '"producer_byte_rate";q=1000;w=10;qu="content-bytes"'
        assert answer.headers["RateLimit"] == '"producer_byte_rate";r=372;t=10'
        assert (await http.ask("POST", "/rooms/r/events", body)).status == 201
        answer = await http.ask("POST", "/rooms/r/events", body)
        assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert 1 <= int(answer.headers["Retry-After"]) <= 3
        assert answer.headers["RateLimit"].startswith('"producer_byte_rate";r=0;t=')
        assert answer.json["error"]["quota"] == "producer_byte_rate"
        # What is not publishing is not refused, and a refused request is not charged.
        assert (await http.get("/rooms/r/events?from_offset=0")).status == 200
        await limit(http, None)
        assert (await http.ask("POST", "/rooms/r/events", body)).status == 201


@in_uvloop
async def test_reading_above_the_quota_is_refused(engine: Engine) -> None:
    async with engine.http() as http:
        for _ in range(5):
            await http.ask("POST", "/rooms/r/events", event("x" * 1000))
        await limit(http, 100, "consumer_byte_rate")
        path = "/rooms/r/events?from_offset=0"
        assert (await http.get(path)).status == 200
        answer = await http.get(path)
        assert answer.status == 429
        assert int(answer.headers["Retry-After"]) > 10
        assert (await http.ask("POST", "/rooms/r/events", EVENT)).status == 201


@in_uvloop
async def test_the_time_of_requests_above_the_quota_is_refused_on_every_path(engine: Engine) -> None:
    async with engine.http() as http:
        await http.ask("POST", "/rooms/r/events", EVENT)
        # A tenth of a millisecond per second.
        await limit(http, 0.01, "request_percentage")
        answer = await http.get("/rooms")
        assert answer.status == 200
        assert answer.headers["RateLimit-Policy"] == '"request_percentage";q=1;w=10;qu="milliseconds"'
        for _ in range(100):
            answer = await http.get("/rooms/r")
            if answer.status != 200:
                break
        assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert answer.headers["Retry-After"] == "1"
        assert answer.headers["RateLimit"] == '"request_percentage";r=0;t=1'
        assert answer.json["error"]["quota"] == "request_percentage"
        for path in ("/topics", "/rooms/r/events?from_offset=0", "/rooms/r/subscribe", "/consumer-groups"):
            assert (await http.get(path)).status == 429, path
        assert (await http.ask("POST", "/rooms/r/events", EVENT)).status == 429
        # Health checks and metrics are answered.
        assert (await http.get("/healthz")).status == 200
        assert (await http.get("/metrics")).status == 200
        await limit(http, None, "request_percentage")
        assert (await http.get("/rooms")).status == 200


@in_uvloop
async def test_a_request_that_waits_is_not_charged_for_the_wait(engine: Engine) -> None:
    async with engine.http() as http:
        await limit(http, 50, "request_percentage")
        for _ in range(3):
            # Each waits for a sync of the disk, and a stream waits for events until its client disconnects.
            assert (await http.ask("POST", "/rooms/r/events", EVENT)).status == 201
        async with http.session.ws_connect(f"{http.url}/rooms/r/subscribe".replace("http", "ws")) as socket:
            await socket.receive_str()
            await asyncio.sleep(0.3)
        (meter,) = (one for one in http.quotas.meters.recent(10))
        used_s = meter.window.total(asyncio.get_running_loop().time()) / 100
        assert 0 < used_s < 0.2


@in_uvloop
async def test_partitions_that_are_created_and_deleted_are_charged(engine: Engine) -> None:
    async with engine.http("controller.quota.window.num=2") as http:
        # A burst of two partitions, then one partition per second.
        await limit(http, 1, "controller_mutation_rate")
        answer = await http.ask("PUT", "/rooms/a")
        assert answer.status == 201
        assert answer.headers["RateLimit-Policy"] == '"controller_mutation_rate";q=2;w=2;qu="partitions"'
        # As in Kafka a client that has tokens left may take any number of them.
        assert (await http.ask("POST", "/topics/t", {"num_partitions": 6})).status == 201
        for method, path in (
            ("PUT", "/rooms/b"),
            ("POST", "/rooms/c/events"),
            ("GET", "/rooms/d/subscribe"),
            ("POST", "/topics/u"),
            ("PUT", "/topics/t/partitions"),
            ("DELETE", "/rooms/a"),
            ("DELETE", "/topics/t"),
        ):
            body: object = {"num_partitions": 7} if path.endswith("partitions") else None
            answer = await http.ask(method, path, EVENT if path.endswith("events") else body)
            assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED"), path
            assert 1 <= int(answer.headers["Retry-After"]) <= 6
            assert answer.headers["RateLimit"].startswith('"controller_mutation_rate";r=0;t=')
        # Existing ones are used as before.
        assert (await http.ask("POST", "/rooms/a/events", EVENT)).status == 201
        await limit(http, None, "controller_mutation_rate")
        assert (await http.ask("PUT", "/rooms/b")).status == 201


@in_uvloop
async def test_partitions_are_charged_or_refused_whenever_the_quota_becomes_free(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.services.quotas.alter([Alteration(entity_of([("user", "ANONYMOUS")]), {MUTATIONS: 1.0})])
        for phase in range(5):
            check_charges_until_free(node, 0.0002 * phase)


class Clock:
    """A clock that goes on by 0.2 ms whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.0002
        return self.now


def check_charges_until_free(node: QuietNode, phase_s: float) -> None:
    clock = Clock()
    quotas, access = Quotas(node.metastore, clock), RequestAccess(Unrestricted())
    charge_partitions(quotas, access, 100)
    clock.now += 88.99 + phase_s  # eleven partitions were free
    outcomes = []
    for _ in range(100):
        try:
            charge_partitions(quotas, access, 0)
            outcomes.append("charged")
        except QuotaExceeded:
            outcomes.append("refused")
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"refused", "charged"}


@in_uvloop
async def test_a_stream_above_the_quota_waits_and_loses_nothing(engine: Engine) -> None:
    async with engine.http() as http:
        await limit(http, 10_000, "consumer_byte_rate")
        url = f"{http.url}/rooms/r/subscribe".replace("http", "ws")
        async with http.session.ws_connect(url) as socket:
            began = perf_counter()
            for number in range(13):
                await http.ask("POST", "/rooms/r/events", event(f"{number:03}" + "x" * 10_000))
            found: list[str] = []
            async with asyncio.timeout(20):
                while len(found) < 13:
                    text = await socket.receive_str()
                    found += [part[:3] for part in text.split('"data":"')[1:]]
            assert found == [f"{number:03}" for number in range(13)]
            # 130 kB at 10 kB/s, of which 100 kB are free.
            assert 0.1 < perf_counter() - began < 10


@in_uvloop
async def test_metrics_show_the_clients_that_used_a_quota_last(engine: Engine) -> None:
    async with engine.http() as http:
        quotas = http.quotas
        await quotas.alter([Alteration(entity_of([("client-id", None)]), {"producer_byte_rate": 10.0})])
        for number in range(150):
            client = quotas.client("alice", f"app-{number}")
            assert client is not None
            assert client.produced(110) == 1000
        text = (await http.get("/metrics")).body.decode()
        assert "kwire_quota_meters 150.0" in text
        assert "kwire_quota_entities 1.0" in text
        labels = '{client_id="app-149",ip="",quota="producer_byte_rate",user=""}'
        assert f"kwire_quota_limit{labels} 10.0" in text
        assert f"kwire_quota_throttle_seconds_total{labels} 1.0" in text
        assert f"kwire_quota_throttled_total{labels} 1.0" in text
        assert text.count("kwire_quota_rate{") == 100


def test_a_route_may_map_the_refusal() -> None:
    exceeded = Exceeded(QuotaKind.PRODUCE, 100.0, 2_100)
    refusal = quota_refusal(exceeded)
    assert (refusal.status, refusal.headers["Retry-After"]) == (429, "3")

    def as_bad_request(exceeded: Exceeded) -> Refusal:
        return Refusal(f"too much, wait {exceeded.retry_after_s} s")

    assert as_bad_request(exceeded).status == 400


def test_header_fields() -> None:
    assert rate_limit_headers([Allowance(QuotaKind.CONSUME, 1000, 10, 0, 3)]) == {
        "RateLimit-Policy": '"consumer_byte_rate";q=1000;w=10;qu="content-bytes"',
        "RateLimit": '"consumer_byte_rate";r=0;t=3',
    }
