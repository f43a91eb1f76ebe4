"""Basic authentication, client certificates, failed logins, and headers that must not decide anything."""

import asyncio
import logging
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp.test_utils import make_mocked_request

from kwire.access.acl import Operation, ResourceType
from kwire.access.login_limits import FAILURES_MAX
from kwire.access.principal import Principal
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.node import Node
from kwire.web.answers.errors import Unauthorized
from kwire.web.requests.authentication import FAILURE_DELAY_SECONDS, Authenticator, parse_basic
from tests.support.clock import ManualClock
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, BASIC_SETTING, BOB, FakeUsers, access_http, basic
from tests.support.node import in_loop, in_uvloop, running_node
from tests.support.room_sockets import raw_connection, status_of, upgrade_request

HOST = "192.0.2.7"


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_basic_credentials_are_parsed_as_in_rfc_7617() -> None:
    assert parse_basic("Basic " + encoded("bob:b:c")) == ("bob", "b:c")
    assert parse_basic("basic " + encoded("bob:")) == ("bob", "")
    assert parse_basic("BASIC   " + encoded("Zoë:pässword ✓")) == ("Zoë", "pässword ✓")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic ",
        "Basic bob:secret",
        "Basic " + encoded("bob"),
        "Basic " + encoded(":secret"),
        "Basic " + encoded("bob:secret")[:-1] + "*",
        "Basic " + b64encode(b"bob:\xff").decode(),
        "Basic " + encoded("bob:a\nb"),
        "Basic " + encoded("bo\0b:secret"),
        "Basic " + encoded("b" * 257 + ":secret"),
        "Basic " + encoded("bob:" + "s" * 1025),
        "Bearer " + encoded("bob:secret"),
        "Basic" + encoded("bob:secret"),
        "Negotiate abc",
    ],
)
def test_malformed_credentials_are_refused_and_not_quoted(header: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        parse_basic(header)
    assert "secret" not in refused.value.message
    assert encoded("bob:secret")[:8] not in refused.value.message


@in_uvloop
async def test_tricks_with_the_header_do_not_help(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0)
    async with access_http(engine) as http:
        good, bad = f"Authorization: {ADMIN}\r\n", "Authorization: Basic YTpi\r\n"

        async def status(*lines: str, method: str = "GET", path: str = "/rooms") -> int:
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{''.join(lines)}\r\n"
            return (await status_of(http.port, head.encode()))[0]

        assert await status(good) == 200
        assert await status(good.replace("Authorization", "aUTHORIZATION")) == 200
        assert await status(good.replace("Basic", "bAsIc")) == 200
        # Two headers are ambiguous: a proxy may have checked the other one.
        for pair in ((good, bad), (bad, good), (good, good)):
            assert await status(*pair) in (400, 401), pair
        for line in (
            good.replace("Authorization", "Proxy-Authorization"),
            good.replace("Authorization", "X-Authorization"),
            "X-Forwarded-User: admin\r\n",
            "X-Remote-User: admin\r\n",
            "Remote-User: admin\r\n",
            "Cookie: user=admin\r\n",
            "X-Forwarded-For: 127.0.0.1\r\n",
            f"Sec-WebSocket-Protocol: {ADMIN}\r\n",
        ):
            assert await status(line) == 401, line
        for query in (f"authorization={ADMIN.replace(' ', '%20')}", "user=admin&password=a-secret", "ticket=x"):
            assert await status(path=f"/rooms?{query}") == 401, query
        # The password in the URL is not sent by any server as such; the path does not authenticate.
        assert await status(path="http://admin:a-secret@127.0.0.1/rooms") in (400, 401)


@in_uvloop
async def test_missing_credentials_fail_on_paths_that_do_not_exist_too(engine: Engine) -> None:
    async with access_http(engine) as http:
        for method, path in (
            ("GET", "/nothing"),
            ("POST", "/nothing"),
            ("PATCH", "/rooms"),
            ("TRACE", "/rooms"),
            ("OPTIONS", "/rooms"),
            ("OPTIONS", "*"),
        ):
            answer = await http.ask(method, path if path != "*" else "/")
            assert answer.status == 401, (method, path)
        assert (await http.get("/nothing", Authorization=BOB)).status == 404
        assert (await http.ask("PATCH", "/rooms", Authorization=BOB)).status == 405
        # An OPTIONS that only looks like a preflight: the origin is not listed, or the method is missing.
        refused = await http.ask(
            "OPTIONS", "/rooms", Origin="https://evil.example", Access_Control_Request_Method="GET"
        )
        assert refused.status == 403
        assert (await http.ask("OPTIONS", "/rooms", Access_Control_Request_Method="GET")).status == 401


@in_uvloop
async def test_control_headers_choose_neither_the_method_nor_the_topic(engine: Engine) -> None:
    """CVE-2026-49098: a header of a request named the topic of the message."""
    async with access_http(engine) as http:
        for name in ("mine", "theirs"):
            await http.post(f"/topics/{name}", {"num_partitions": 1}, Authorization=ADMIN)
            await http.put(f"/rooms/{name}-room", {}, Authorization=ADMIN)
        for name in ("mine", "mine-room"):
            await http.allow((Operation.WRITE, ResourceType.TOPIC, name), (Operation.READ, ResourceType.TOPIC, name))
        tricks = {
            "X-HTTP-Method-Override": "DELETE",
            "X-HTTP-Method": "DELETE",
            "X-Method-Override": "DELETE",
            "X-Original-URL": "/topics/theirs/publish",
            "X-Rewrite-URL": "/topics/theirs/publish",
            "kafka.OVERRIDE_TOPIC": "theirs",
            "CamelKafkaOverrideTopic": "theirs",
            "Topic": "theirs",
            "X-Kafka-Topic": "theirs",
            "ce-topic": "theirs",
        }
        for name, value in tricks.items():
            for path in ("/topics/mine/publish", "/rooms/mine-room/events"):
                answer = await http.ask(
                    "POST", path, {"event_type": "t", "data": 1}, **{name: value, "Authorization": BOB}
                )
                assert answer.status in (200, 201), (name, answer)
        topics = set((await http.get("/topics", Authorization=ADMIN)).json) - {AUDIT_TOPIC}
        assert topics == {"mine", "mine-room", "theirs", "theirs-room"}
        offsets = (await http.get("/topics/theirs/partitions/0/offsets", Authorization=ADMIN)).json
        assert offsets["end_offset"] == 0
        assert (await http.get("/rooms/theirs-room", Authorization=ADMIN)).json["event_count"] == 0
        assert (await http.get("/rooms/mine-room", Authorization=ADMIN)).json["event_count"] == len(tricks)


@in_uvloop
async def test_encoded_names_are_the_names_that_rights_are_checked_for(engine: Engine) -> None:
    async with access_http(engine) as http:
        for room in ("secret", "a/b", "zoë"):
            answer = await http.ask("PUT", f"/rooms/{quote(room, safe='')}", {}, Authorization=ADMIN)
            assert answer.status == 201
        await http.allow((Operation.READ, ResourceType.TOPIC, "open"), (Operation.READ, ResourceType.TOPIC, "a_x2F_b"))
        for path in (
            "/rooms/%73ecret/events",
            "/rooms/secret%00/events",
            "/rooms/open%2F..%2Fsecret/events",
            "/rooms/open/../secret/events",
            "/rooms/zo%C3%AB/events",
            "/rooms/SECRET/events",
        ):
            assert (await http.get(path, Authorization=BOB)).status in (403, 404), path
        assert (await http.get("/rooms/a%2Fb/events", Authorization=BOB)).status == 200
        assert (await http.get("/rooms/a%2fb/events", Authorization=BOB)).status == 200


@in_uvloop
async def test_websocket_upgrades_need_credentials(engine: Engine) -> None:
    async with access_http(engine) as http:
        for path in ("/ws", "/rooms/r/subscribe", "/subscribe/all", "/rooms", "/healthz"):
            status, _ = await status_of(http.port, upgrade_request(path))
            assert status == (200 if path == "/healthz" else 401), path
        status, _ = await status_of(http.port, upgrade_request("/ws", Authorization=BOB))
        assert status == 101


@in_uvloop
async def test_the_origin_is_checked_with_valid_credentials_too(engine: Engine) -> None:
    settings = (
        "kwire.authorizer=acl",
        "super.users=User:admin",
        BASIC_SETTING,
        "kwire.http.origins=https://app.example",
    )
    async with access_http(engine, *settings) as http:
        for path in ("/rooms", "/ws"):
            status, _ = await status_of(
                http.port, upgrade_request(path, Authorization=ADMIN, Origin="https://evil.example")
            )
            assert status == 403, path
        answer = await http.get("/rooms", Authorization=ADMIN, Origin="https://app.example")
        assert answer.status == 200
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Access-Control-Allow-Credentials" not in answer.headers
        exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"Retry-After", "X-Next-Offset", "WWW-Authenticate"} <= set(exposed)
        # The page must be able to read why it was refused.
        refused = await http.get("/rooms", Origin="https://app.example")
        assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, "https://app.example")
        # A preflight has no credentials.
        preflight = await http.ask(
            "OPTIONS", "/rooms", Origin="https://app.example", Access_Control_Request_Method="POST"
        )
        assert preflight.status == 204
        assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"].split(", ")
        assert "Access-Control-Allow-Credentials" not in preflight.headers


@in_loop
async def test_another_spelling_of_a_name_is_not_another_principal() -> None:
    """SASLprep maps the letter to `b`. As a principal of its own, it would escape a DENY for `bob`."""
    authenticator = Authenticator(ManualClock(), FakeUsers(bob="b-secret"), None, sleep=_no_sleep)
    request = make_mocked_request("GET", "/rooms", headers={"Authorization": basic("\uff42ob", "b-secret")})
    with pytest.raises(Unauthorized):
        await authenticator.identify(request, is_streaming=False)


async def _no_sleep(seconds: float) -> None:
    pass


# --- failed logins


@in_loop
async def test_a_failed_login_is_answered_later_and_an_unknown_user_costs_the_same_check() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    users = FakeUsers(bob="b-secret")
    authenticator = Authenticator(ManualClock(), users, None, sleep=sleep)
    for credentials in (basic("bob", "wrong"), basic("nobody", "wrong")):
        request = make_mocked_request("GET", "/rooms", headers={"Authorization": credentials})
        with pytest.raises(Unauthorized):
            await authenticator.identify(request, is_streaming=False)
    assert slept == [FAILURE_DELAY_SECONDS] * 2
    assert users.verified == ["bob", "nobody"]
    request = make_mocked_request("GET", "/rooms", headers={"Authorization": BOB})
    assert (await authenticator.identify(request, is_streaming=False)).principal == Principal("User", "bob")
    assert len(slept) == 2


@in_uvloop
async def test_password_guessing_over_many_connections_ends_in_429(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0.01)
    async with access_http(engine) as http:
        guesses = [http.get("/rooms", Authorization=basic("bob", f"guess {number}")) for number in range(50)]
        statuses = [answer.status for answer in await asyncio.gather(*guesses)]
        assert statuses.count(401) == FAILURES_MAX
        assert statuses.count(429) == 50 - FAILURES_MAX
        answer = await http.get("/rooms", Authorization=BOB)
        assert (answer.status, answer.code) == (429, "TooManyFailedLogins")
        assert "Retry-After" in answer.headers
        assert len(http.users.verified) == FAILURES_MAX
        # Requests without credentials are not logins.
        assert (await http.get("/healthz")).status == 200
        assert (await http.get("/rooms")).status == 401


# --- certificates


@in_uvloop
async def test_a_client_certificate_identifies_the_client(tmp_path: Path) -> None:
    found: list[Principal | None] = []

    def prepare(node: Node) -> None:
        node.certificate_principal = lambda transport: found.pop()

    async with running_node(tmp_path, "kwire.http.authentication=certificate", prepare=prepare) as node:
        assert node.http is not None
        request = b"GET /rooms HTTP/1.1\r\nHost: localhost\r\n\r\n"
        found.append(Principal("User", "CN=bob"))
        assert (await status_of(node.http.port, request))[0] == 200
        found.append(None)
        status, head = await status_of(node.http.port, request)
        assert status == 401
        assert b'WWW-Authenticate: Certificate realm="kwire"' in head
        # Basic is off, so the header is not considered.
        found.append(None)
        with_header = request[:-2] + f"Authorization: {ADMIN}\r\n\r\n".encode()
        assert (await status_of(node.http.port, with_header))[0] == 401


# --- secrets


@in_uvloop
async def test_secrets_are_in_no_log_and_no_answer(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    planted = "planted-secret-5f2c"
    async with access_http(engine) as http:
        http.users.passwords["bob"] = planted
        credentials = basic("bob", planted)
        ticket = (await http.post("/tickets", Authorization=credentials)).json["ticket"]
        answers = [
            await http.get("/rooms", Authorization=credentials),
            await http.get("/rooms", Authorization=basic("eve", planted)),
            await http.get("/rooms", Authorization="Basic " + planted),
            await http.get(f"/rooms?ticket={ticket}"),
            await http.get(f"/rooms/r/subscribe?ticket={ticket}"),
            await http.get("/rooms/r/events", Authorization=credentials),
        ]
        async with raw_connection(http.port) as (reader, writer):
            writer.write(f"GET / HTTP/1.1\r\nAuthorization: {credentials}\r\nbroken header\r\n\r\n".encode())
            broken = await reader.read(4096)
        metrics = await http.get("/metrics", Authorization=ADMIN)
    seen = caplog.text + "".join(map(str, answers)) + broken.decode() + metrics.body.decode()
    for secret in (planted, credentials.split()[1], ticket):
        assert secret not in seen


@in_uvloop
async def test_without_authentication_the_header_is_ignored(engine: Engine) -> None:
    async with engine.http() as http:
        assert (await http.get("/rooms", Authorization="Basic nonsense")).status == 200
