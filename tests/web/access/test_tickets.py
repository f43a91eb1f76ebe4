"""Tickets: valid once, for a short time, for streams only, and only a hash of them is kept."""

import aiohttp
import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.access.principal import Principal
from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import PERMANENT
from kwire.web.requests.authentication import UserLogin
from kwire.web.requests.tickets import TICKET_SECONDS, TICKETS_MAX, TICKETS_PER_PRINCIPAL_MAX, Tickets
from tests.support.clock import ManualClock
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, BASIC_SETTING, BOB, AccessHttp, access_http
from tests.support.node import in_uvloop
from tests.support.room_sockets import http_stream, status_of, upgrade_request

BOB_PRINCIPAL = Principal("User", "bob")


def test_a_ticket_is_valid_once() -> None:
    tickets = Tickets(ManualClock())
    text = tickets.issue(BOB_PRINCIPAL, PERMANENT)
    assert len(text) == 43, "32 bytes, URL-safe"
    redeemed = tickets.redeem(text)
    assert redeemed is not None
    assert redeemed.principal == BOB_PRINCIPAL
    assert tickets.redeem(text) is None
    assert len(tickets) == 0


def test_a_ticket_expires() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    early, late = tickets.issue(BOB_PRINCIPAL, PERMANENT), tickets.issue(BOB_PRINCIPAL, PERMANENT)
    clock.advance(TICKET_SECONDS * 1000 - 1)
    assert tickets.redeem(early) is not None
    clock.advance(1)
    assert tickets.redeem(late) is None
    assert len(tickets) == 0


def test_a_guessed_or_empty_ticket_is_refused_and_changes_nothing() -> None:
    tickets = Tickets(ManualClock())
    text = tickets.issue(BOB_PRINCIPAL, PERMANENT)
    for guess in ("", "x", text[:-1], text + "A", text.swapcase(), "\ud800"):
        assert tickets.redeem(guess) is None
    assert tickets.redeem(text) is not None


def test_the_number_of_open_tickets_is_bounded_for_each_principal_and_in_total() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    for _ in range(TICKETS_PER_PRINCIPAL_MAX):
        tickets.issue(BOB_PRINCIPAL, PERMANENT)
    with pytest.raises(Refusal) as refused:
        tickets.issue(BOB_PRINCIPAL, PERMANENT)
    assert (refused.value.status, refused.value.code) == (429, "TooManyTickets")
    for number in range(TICKETS_MAX - TICKETS_PER_PRINCIPAL_MAX):
        tickets.issue(Principal("User", f"user-{number}"), PERMANENT)
    with pytest.raises(Refusal):
        tickets.issue(Principal("User", "new"), PERMANENT)
    clock.advance(TICKET_SECONDS * 1000)
    tickets.issue(BOB_PRINCIPAL, PERMANENT)
    assert len(tickets) == 1


def test_the_ticket_of_a_deleted_user_is_refused() -> None:
    login = UserLogin()
    tickets = Tickets(ManualClock())
    text = tickets.issue(BOB_PRINCIPAL, login)
    login.end()
    assert tickets.redeem(text) is None


def test_tickets_are_kept_as_hashes() -> None:
    tickets = Tickets(ManualClock())
    text = tickets.issue(BOB_PRINCIPAL, PERMANENT)
    assert text not in repr(vars(tickets))
    assert text.encode() not in b"".join(tickets._open)


async def ticket(http: AccessHttp, credentials: str = BOB) -> str:
    answer = await http.post("/tickets", Authorization=credentials)
    assert (answer.status, answer.headers["Cache-Control"]) == (201, "no-store")
    assert answer.json["expires_in_secs"] == TICKET_SECONDS
    found: str = answer.json["ticket"]
    return found


@in_uvloop
async def test_a_ticket_opens_one_stream_of_each_kind(engine: Engine) -> None:
    async with access_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        await http.allow((Operation.READ, ResourceType.TOPIC, "lobby"))
        path = "/rooms/lobby/subscribe?from_offset=0&ticket="
        for accept in ("application/x-ndjson", "text/event-stream"):
            text = await ticket(http)
            async with http_stream(http.port, path + text, Accept=accept) as stream:
                assert b"subscribed" in (await stream.line() or b"")
            assert (await http.get(path + text, Accept=accept)).code == "Unauthorized"
        text = await ticket(http)
        async with http.session.ws_connect(f"{http.url}{path}{text}") as socket:
            assert "result" in await socket.receive_json(timeout=10)


@in_uvloop
async def test_a_ticket_as_a_subprotocol_is_selected_in_the_answer(engine: Engine) -> None:
    async with access_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        await http.allow((Operation.READ, ResourceType.TOPIC, "lobby"))
        offered = f"kwire.ticket.{await ticket(http)}"
        async with http.session.ws_connect(f"{http.url}/ws", protocols=["other", offered]) as socket:
            assert socket.protocol == offered
            await socket.send_json({"command": "stream.subscribe", "payload": {"room": "lobby"}})
            assert "result" in await socket.receive_json(timeout=10)
            await socket.send_json(
                {"command": "stream.publish", "payload": {"room": "lobby", "event_type": "t", "data": 1}}
            )
            while "control" in (answer := await socket.receive_json(timeout=10)):
                pass
            assert answer["error"]["code"] == "TOPIC_AUTHORIZATION_FAILED"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.session.ws_connect(f"{http.url}/ws", protocols=[offered])
        assert refused.value.status == 401


@in_uvloop
async def test_a_ticket_is_no_credential_for_other_requests(engine: Engine) -> None:
    async with access_http(engine) as http:
        text = await ticket(http, ADMIN)
        for method, path in (
            ("GET", "/rooms"),
            ("GET", "/topics"),
            ("GET", "/rooms/lobby/events"),
            ("POST", "/rooms/lobby/events"),
            ("POST", "/tickets"),
            ("HEAD", "/rooms"),
        ):
            assert (await http.ask(method, f"{path}?ticket={text}")).status == 401, path
        for header in (f"Bearer {text}", f"Ticket {text}", text):
            assert (await http.get("/rooms", Authorization=header)).status == 401
        assert (await http.get("/rooms", Sec_WebSocket_Protocol=f"kwire.ticket.{text}")).status == 401
        async with http_stream(http.port, f"/rooms/lobby/subscribe?ticket={text}"):
            pass


@in_uvloop
async def test_a_ticket_does_not_make_up_for_wrong_credentials_and_two_are_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0)
    async with access_http(engine) as http:
        first, second = await ticket(http, ADMIN), await ticket(http, ADMIN)
        wrong = await http.get(f"/rooms/lobby/subscribe?ticket={first}", Authorization="Basic YTpi")
        assert wrong.status == 401
        for request in (
            f"/rooms/lobby/subscribe?ticket={first}&ticket={second}",
            "/rooms/lobby/subscribe?ticket=",
        ):
            assert (await http.get(request)).status == 401, request
        both = upgrade_request(f"/ws?ticket={first}", Sec_WebSocket_Protocol=f"kwire.ticket.{second}")
        assert (await status_of(http.port, both))[0] == 401
        # None of these has used a ticket up.
        async with http_stream(http.port, f"/rooms/lobby/subscribe?ticket={first}"):
            pass


@in_uvloop
async def test_without_authentication_there_are_no_tickets(engine: Engine) -> None:
    async with access_http(engine, "kwire.authorizer=none") as http:
        answer = await http.post("/tickets")
        assert (answer.status, answer.code) == (403, "AuthenticationDisabled")
        assert (await http.get("/rooms/lobby/subscribe?ticket=x")).code == "BadRequest"
    async with access_http(engine, BASIC_SETTING) as http:
        assert (await http.post("/tickets", Authorization=BOB)).status == 201
