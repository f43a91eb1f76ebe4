"""Browser sessions: how long they are valid, which requests may use their cookie, and what they reveal."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.access.keys.key import NewKey
from kwire.access.login_limits import FAILURES_MAX
from kwire.access.principal import Principal
from kwire.access.roles import Role, acls_of_role
from kwire.web.access.session_cookie import COOKIE_NAME
from kwire.web.access.session_store import (
    AGE_SECONDS_MAX,
    IDLE_SECONDS,
    SESSIONS_MAX,
    SESSIONS_PER_PRINCIPAL_MAX,
    Sessions,
)
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import PERMANENT
from kwire.web.requests.authentication import UserLogin
from tests.support.clock import ManualClock
from tests.support.engines import Engine
from tests.support.http import Answer
from tests.support.http_access import ACL_SETTINGS, ADMIN, BOB, AccessHttp, access_http, basic
from tests.support.node import in_uvloop
from tests.support.room_sockets import http_stream, status_of, upgrade_request

ALICE = Principal("User", "alice")
END_SECONDS = 5.0
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


# --- the store


def test_a_session_ends_when_it_is_not_used() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    token, session = sessions.create(ALICE, PERMANENT)
    for _ in range(3):
        clock.advance(IDLE_SECONDS * 1000 - 1)
        assert sessions.find(token) is session
    clock.advance(IDLE_SECONDS * 1000)
    assert session.revision == 1
    assert sessions.find(token) is None
    assert len(sessions) == 0


def test_a_session_ends_at_its_maximum_age_however_often_it_is_used() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    token, session = sessions.create(ALICE, PERMANENT)
    for _ in range(AGE_SECONDS_MAX // 60 - 1):
        clock.advance(60_000)
        assert sessions.find(token) is session
    assert session.seconds_left == 60
    clock.advance(60_000)
    assert not session.is_valid()
    assert sessions.find(token) is None


def test_a_session_ends_with_its_login() -> None:
    sessions = Sessions(ManualClock())
    login = UserLogin()
    token, session = sessions.create(ALICE, login)
    assert sessions.find(token) is session
    revision = session.revision
    login.end()
    assert session.revision > revision
    assert sessions.find(token) is None


def test_a_principal_with_too_many_sessions_loses_the_one_that_was_not_used_for_the_longest_time() -> None:
    sessions = Sessions(ManualClock())
    tokens = [sessions.create(ALICE, PERMANENT).token for _ in range(SESSIONS_PER_PRINCIPAL_MAX)]
    first = sessions.find(tokens[0])
    sessions.create(ALICE, PERMANENT)
    assert sessions.find(tokens[0]) is first
    assert sessions.find(tokens[1]) is None
    assert len(sessions) == SESSIONS_PER_PRINCIPAL_MAX


def test_the_number_of_sessions_is_bounded() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    for number in range(SESSIONS_MAX):
        sessions.create(Principal("User", str(number)), PERMANENT)
    with pytest.raises(Refusal, match="10000 sessions") as refused:
        sessions.create(ALICE, PERMANENT)
    assert refused.value.status == 429
    clock.advance(IDLE_SECONDS * 1000)
    sessions.create(ALICE, PERMANENT)
    assert len(sessions) == 1


def test_tokens_are_random_and_only_their_hashes_are_kept() -> None:
    sessions = Sessions(ManualClock())
    tokens = {sessions.create(ALICE, PERMANENT).token for _ in range(50)}
    assert len(tokens) == 50
    assert {len(token) for token in tokens} == {43}
    assert not any(token in repr(vars(sessions)) for token in tokens)
    for guess in ("", "x", "\ud800", next(iter(tokens))[:-1]):
        assert sessions.find(guess) is None


# --- over HTTP


async def log_in(http: AccessHttp, credentials: str = BOB) -> str:
    """Return the token of a new session."""
    answer = await http.post("/session", Authorization=credentials)
    assert (answer.status, answer.headers["Cache-Control"]) == (201, "no-store"), answer
    return token_in(answer)


def token_in(answer: Answer) -> str:
    return SimpleCookie(answer.headers["Set-Cookie"])[COOKIE_NAME].value


def cookie(token: str) -> dict[str, str]:
    return {"Cookie": f"theme=dark; {COOKIE_NAME}={token}; other=1"}


@asynccontextmanager
async def http_with_room(engine: Engine) -> AsyncIterator[AccessHttp]:
    async with access_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        yield http


@in_uvloop
async def test_the_cookie_authenticates_requests_streams_and_websockets(engine: Engine) -> None:
    async with http_with_room(engine) as http:
        answer = await http.post("/session", Authorization=BOB)
        parts = answer.headers["Set-Cookie"].split("; ")
        assert parts[0].startswith(f"{COOKIE_NAME}=")
        assert set(parts[1:]) == {"Path=/", "HttpOnly", "SameSite=Strict"}
        used = cookie(token_in(answer))
        refused = await http.get("/rooms/lobby/events", **used)
        assert (refused.status, refused.code) == (403, "TOPIC_AUTHORIZATION_FAILED")
        await http.allow((Operation.READ, ResourceType.TOPIC, "lobby"), (Operation.WRITE, ResourceType.TOPIC, "lobby"))
        assert (await http.get("/rooms/lobby/events", **used)).status == 200
        event = {"event_type": "t", "data": 1}
        published = await http.ask("POST", "/rooms/lobby/events", event, **used, **SAME_SITE)
        assert published.status == 201, published
        for accept in ("text/event-stream", "application/x-ndjson"):
            async with http_stream(http.port, "/rooms/lobby/subscribe", Accept=accept, **used) as stream:
                assert b"subscribed" in (await stream.line() or b"")
        headers = {**used, "Origin": http.url}
        async with http.session.ws_connect(f"{http.url}/ws", headers=headers) as socket:
            await socket.send_json({"command": "stream.subscribe", "payload": {"room": "lobby"}})
            assert "result" in await socket.receive_json(timeout=10)
        ticket = await http.ask("POST", "/tickets", **used, **SAME_SITE)
        assert ticket.status == 201


@in_uvloop
async def test_the_cookie_is_not_accepted_from_pages_of_other_origins(engine: Engine) -> None:
    """Also not from a listed origin: a WebSocket of such a page could read with the rights of the user."""
    origins = "kwire.http.origins=https://app.example"
    async with access_http(engine, *ACL_SETTINGS, "kwire.http.authentication=basic", origins) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        used = cookie(await log_in(http, ADMIN))
        event = {"event_type": "t", "data": 1}

        async def change(**headers: str) -> tuple[int, str]:
            answer = await http.ask("POST", "/rooms/lobby/events", event, **used, **headers)
            return answer.status, answer.code if answer.status >= 400 else ""

        foreign = (403, "SessionOriginNotAllowed")
        assert await change() == foreign, "neither header"
        assert await change(Origin="https://app.example") == foreign
        assert await change(Origin="https://app.example", Sec_Fetch_Site="cross-site") == foreign
        assert await change(Sec_Fetch_Site="none") == foreign
        assert await change(Origin="http://localhost:1") == (403, "OriginNotAllowed")
        assert await change(Origin="null") == (403, "OriginNotAllowed")
        assert await change(Sec_Fetch_Site="same-site") == (403, "OriginNotAllowed")
        assert await change(Origin=http.url, Sec_Fetch_Site="same-site") == foreign
        assert await change(Origin=http.url) == (201, "")
        assert await change(Sec_Fetch_Site="same-origin") == (201, "")
        assert await change(Origin="https://proxy.example", Sec_Fetch_Site="same-origin") == (201, "")

        for method in ("PUT", "PATCH", "DELETE"):
            assert (await http.ask(method, "/rooms/lobby", {}, **used)).status == 403, method
        assert (await http.ask("DELETE", "/session", **used)).code == "SessionOriginNotAllowed"
        logged_in = await http.post("/session", Authorization=ADMIN, Origin="https://app.example")
        assert logged_in.code == "SessionOriginNotAllowed", "a page of another origin does not choose the session"

        assert (await http.get("/rooms", **used)).status == 200
        assert (await http.get("/rooms", **used, Sec_Fetch_Site="none")).status == 200, "typed in the address bar"
        assert (await http.get("/rooms", **used, Origin="https://app.example")).status == 403
        for origin, status in (
            (None, 403),
            ("https://app.example", 403),
            ("http://evil", 403),
            ("http://127.0.0.1", 101),
        ):
            headers = used if origin is None else {**used, "Origin": origin}
            assert (await status_of(http.port, upgrade_request("/ws", **headers)))[0] == status, origin
        # With the header Authorization, nothing has changed.
        answer = await http.ask("POST", "/rooms/lobby/events", event, Authorization=ADMIN, Origin="https://app.example")
        assert answer.status == 201


@in_uvloop
async def test_logging_out_ends_the_session_and_its_streams(engine: Engine) -> None:
    async with http_with_room(engine) as http:
        used = cookie(await log_in(http, ADMIN))
        other = cookie(await log_in(http, ADMIN))
        async with http_stream(http.port, "/rooms/lobby/subscribe", Accept="application/x-ndjson", **used) as stream:
            assert b"subscribed" in (await stream.line() or b"")
            answer = await http.ask("DELETE", "/session", **used, **SAME_SITE)
            assert answer.status == 204
            assert answer.headers["Set-Cookie"].startswith(f"{COOKIE_NAME}=; Max-Age=0; ")
            async with asyncio.timeout(END_SECONDS):
                while b"closed" not in (line := await stream.line() or b"closed"):
                    pass
            assert b"the session has ended" in line
        refused = await http.get("/rooms", **used)
        assert (refused.status, refused.code) == (401, "Unauthorized")
        assert "the session has ended" in refused.json["error"]["message"]
        assert (await http.ask("DELETE", "/session", **used, **SAME_SITE)).status == 204, "again"
        assert (await http.ask("DELETE", "/session")).status == 204, "without a session"
        assert (await http.get("/rooms", **other)).status == 200


@pytest.mark.parametrize("is_deleted", [True, False])
@in_uvloop
async def test_a_deleted_or_changed_user_loses_the_session_at_once(engine: Engine, is_deleted: bool) -> None:
    async with http_with_room(engine) as http:
        await http.allow((Operation.READ, ResourceType.TOPIC, "lobby"))
        used = cookie(await log_in(http))
        async with http_stream(http.port, "/rooms/lobby/subscribe", Accept="application/x-ndjson", **used) as stream:
            assert b"subscribed" in (await stream.line() or b"")
            if is_deleted:
                http.users.delete("bob")
            else:
                http.users.passwords["bob"] = "new"
                http.users.changed("bob")
            assert (await http.get("/rooms", **used)).status == 401
            async with asyncio.timeout(END_SECONDS):
                while b"closed" not in (await stream.line() or b"closed"):
                    pass
        if not is_deleted:
            assert (await http.get("/rooms", **cookie(await log_in(http, basic("bob", "new"))))).status == 200


@in_uvloop
async def test_the_session_of_a_key_has_its_scope_and_ends_when_it_is_revoked(engine: Engine) -> None:
    async with access_http(engine, *ACL_SETTINGS, "kwire.http.authentication=basic,key") as http:
        keys = http.keys
        issued = await keys.create(NewKey(scope="acme"))
        used = cookie(await log_in(http, f"Bearer {issued.credentials.token}"))
        facts = (await http.get("/session", **used)).json
        assert (facts["kind"], facts["scope"], facts["role"]) == ("key", "acme", None)
        assert (await http.ask("PUT", "/rooms/lobby", {}, **used, **SAME_SITE)).status == 201
        rooms = (await http.get("/rooms", **used)).json
        assert "kws-" not in str(rooms)
        assert "lobby" in str(rooms)
        await keys.revoke(issued.key.id)
        assert (await http.get("/rooms", **used)).status == 401
        assert (await http.get("/session", **used)).json["principal"] is None


@in_uvloop
async def test_failed_logins_count_against_the_budget_of_basic(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0)
    async with access_http(engine) as http:
        used = cookie(await log_in(http, ADMIN))
        for _ in range(2 * FAILURES_MAX):
            assert (await http.get("/rooms", **cookie("x" * 43))).status == 401, "ended sessions are not failed logins"
        for number in range(FAILURES_MAX):
            path, method = (("/session", "POST"), ("/rooms", "GET"))[number % 2]
            assert (await http.ask(method, path, Authorization=basic("bob", f"guess {number}"))).status == 401
        for path, method in (("/session", "POST"), ("/session", "GET"), ("/rooms", "GET")):
            answer = await http.ask(method, path, Authorization=BOB)
            assert (answer.status, answer.code) == (429, "TooManyFailedLogins"), path
        assert (await http.get("/rooms", **used)).status == 200, "open sessions continue"


@in_uvloop
async def test_only_the_header_authorization_creates_a_session(engine: Engine) -> None:
    async with access_http(engine) as http:
        first = await log_in(http)
        again = await http.ask("POST", "/session", **cookie(first), **SAME_SITE)
        assert (again.status, again.code) == (400, "BadRequest"), "else a session would have no maximum age"
        answer = await http.ask("POST", "/session", Authorization=ADMIN, **cookie(first), **SAME_SITE)
        assert (answer.status, answer.json["principal"]) == (201, "User:admin")
        assert (await http.get("/rooms", **cookie(first))).status == 401, (
            "the new session replaces the one of the cookie"
        )
        twice = {"Cookie": f"{COOKIE_NAME}={first}; {COOKIE_NAME}={token_in(answer)}"}
        assert (await http.get("/rooms", **twice)).status == 401
        wrong = {**cookie(token_in(answer)), "Authorization": basic("bob", "wrong")}
        assert (await http.get("/rooms", **wrong)).status == 401, "a session does not make up for a wrong password"


@in_uvloop
async def test_scripts_get_no_challenge_that_opens_a_dialog(engine: Engine) -> None:
    async with access_http(engine) as http:
        for headers in ({"Sec-Fetch-Dest": "empty"}, {"X-Requested-With": "console"}):
            answer = await http.ask("GET", "/rooms", **headers, **SAME_SITE)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Session realm="kwire"')
        assert (await http.get("/rooms")).headers["WWW-Authenticate"].startswith("Basic ")


@in_uvloop
async def test_the_facts_name_the_role_and_the_operations(engine: Engine) -> None:
    async with access_http(engine) as http:
        nobody = (await http.get("/session")).json
        assert nobody == {
            "principal": None,
            "kind": "anonymous",
            "login_needed": True,
            "login_methods": ["basic"],
            "scope": None,
            "role": None,
            "has_acls": True,
            "password_length_min": 8,
            "reads_audit": False,
            "cluster_operations": [],
            "topic_operations": [],
            "session": None,
        }
        assert (await http.get("/session", **cookie("ended"))).json == nobody
        admin = (await http.get("/session", Authorization=ADMIN)).json
        assert (admin["principal"], admin["kind"], admin["role"]) == ("User:admin", "user", "admin")
        assert {"ALTER", "CREATE", "DESCRIBE"} <= set(admin["cluster_operations"])
        assert admin["reads_audit"]
        assert {"READ", "WRITE", "CREATE"} <= set(admin["topic_operations"])
        assert admin["session"] is None
        assert (await http.get("/session", Authorization=basic("bob", "wrong"))).status == 401
        used = cookie(await log_in(http))
        bob = (await http.get("/session", **used)).json
        assert (bob["role"], bob["cluster_operations"], bob["reads_audit"]) == (None, [], False)
        assert bob["topic_operations"] == []
        assert bob["session"]["idle_secs"] == IDLE_SECONDS
        assert AGE_SECONDS_MAX - 60 <= bob["session"]["expires_in_secs"] <= AGE_SECONDS_MAX
        await http.acls.add(acls_of_role(Role.OPERATOR, Principal("User", "bob")))
        bob = (await http.get("/session", **used)).json
        assert bob["role"] == "operator"
        assert bob["cluster_operations"] == ["CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
        await http.allow((Operation.READ, ResourceType.TOPIC, "lobby"))
        assert (await http.get("/session", **used)).json["role"] is None, "more than the role"
        operations = {"READ", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
        assert set((await http.get("/session", **used)).json["topic_operations"]) == operations
        await http.allow((Operation.READ, ResourceType.TOPIC, "kwire-audit"))
        assert (await http.get("/session", **used)).json["reads_audit"]


@in_uvloop
async def test_without_authentication_nobody_needs_a_session(engine: Engine) -> None:
    async with engine.http() as http:
        facts = (await http.get("/session")).json
        assert (facts["principal"], facts["login_needed"], facts["role"]) == ("User:ANONYMOUS", False, "admin")
        assert (await http.ask("POST", "/session")).code == "AuthenticationDisabled"
        assert (await http.ask("DELETE", "/session")).status == 204


@in_uvloop
async def test_tokens_are_in_no_log_no_audit_entry_and_no_body(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with http_with_room(engine) as http:
        token = await log_in(http, ADMIN)
        used = cookie(token)
        answers = [
            await http.get("/session", **used),
            await http.get("/nothing", **used),
            await http.get("/rooms?limit=x", **used),
            await http.ask("POST", "/rooms/lobby/events", {}, **used),
            await http.ask("POST", "/rooms/lobby/events", {}, **used, **SAME_SITE),
            await http.get("/rooms", Cookie=f"{COOKIE_NAME}={token}; {COOKIE_NAME}={token}"),
            await http.get("/metrics", **used),
            await http.ask("DELETE", "/session", **used, **SAME_SITE),
            await http.get("/rooms", **used),
        ]
    assert token not in caplog.text + "".join(map(str, answers))
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert token.encode() not in stored
