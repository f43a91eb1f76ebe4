"""The webhook sender: real receivers that behave badly, and forbidden targets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwire.server.outbound import webhook_sender
from kwire.server.outbound.address_rules import AddressRules, Target, parse_url
from kwire.server.outbound.webhook_sender import ANSWER_BYTES_MAX, EXCERPT_BYTES, LookUp, WebhookSender
from kwire.streams.webhooks.delivery.sender import Request, Response
from tests.server.forbidden_targets import ANSWERS, LITERALS, TRICKS
from tests.support.clock import ManualClock
from tests.support.node import in_loop, in_uvloop
from tests.support.webhook_receiver import CERTIFIED_NAME, HOST, Receiver, Reply, receiver_tls, receiving, trusting_tls

OWN_NETWORK = AddressRules(is_private_allowed=True)
BY_ADDRESS = AddressRules(is_http_allowed=True, ports=None)
PUBLIC = "93.184.216.34"


@asynccontextmanager
async def sender(rules: AddressRules = OWN_NETWORK, **more: Any) -> AsyncIterator[WebhookSender]:
    made = WebhookSender(rules, ManualClock(), **more)
    try:
        yield made
    finally:
        await made.close()


def answering(*addresses: str) -> LookUp:
    async def look_up(host: str, port: int) -> list[str]:
        return list(addresses)

    return look_up


def to(receiver: Receiver, timeout_ms: int = 5000) -> Request:
    return Request(receiver.url, {"Content-Type": "application/json", "X-Own": "1"}, b'{"a":1}', timeout_ms)


# --- what arrives


@in_uvloop
async def test_a_webhook_arrives_as_it_was_asked_for() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(202, body=b"thanks"))
        response = await sending.send(to(receiver))
        assert (response.status, response.excerpt, response.problem) == (202, "thanks", None)
        assert response.is_success
        (got,) = receiver.requests
        assert (got.path, got.body) == ("/hook", b'{"a":1}')
        assert got.headers["x-own"] == "1"
        assert got.headers["content-type"] == "application/json"
        assert got.headers["user-agent"].startswith("kwire-webhooks/")
        assert "cookie" not in got.headers


@in_loop
async def test_connections_are_kept_and_cookies_are_not() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(200, {"Set-Cookie": "a=b"}))
        for _ in range(3):
            assert (await sending.send(to(receiver))).is_success
        assert receiver.connection_count == 1
        assert all("cookie" not in got.headers for got in receiver.requests)


@in_loop
async def test_own_headers_cannot_be_replaced() -> None:
    async with receiving() as receiver, sender() as sending:
        await sending.send(Request(receiver.url, {"Accept-Encoding": "gzip", "User-Agent": "x"}, b""))
        (got,) = receiver.requests
        assert got.headers["accept-encoding"] == "identity"
        assert got.headers["user-agent"].startswith("kwire-webhooks/")


# --- receivers that behave badly


@in_loop
@pytest.mark.proves("S2-35")
async def test_only_2xx_is_success() -> None:
    async with receiving() as receiver, sender() as sending:
        for status in (200, 201, 204, 299, 300, 304, 400, 404, 410, 429, 500, 503):
            receiver.answer(status)
            response = await sending.send(to(receiver))
            assert response.status == status
            assert response.is_success == (200 <= status < 300)
            assert (response.problem is None) == response.is_success


@in_loop
async def test_redirects_are_failures_and_not_followed() -> None:
    async with receiving() as receiver, receiving() as other, sender() as sending:
        for status in (301, 302, 303, 307, 308):
            receiver.answer(Reply(status, {"Location": other.url}))
            response = await sending.send(to(receiver))
            assert response.status == status
            assert not response.is_success
            assert "redirects are not followed" in (response.problem or "")
        assert other.connection_count == 0


@in_loop
@pytest.mark.proves("S2-36")
async def test_a_receiver_that_hangs_is_given_up_in_time() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(is_silent=True))
        response = await sending.send(to(receiver, timeout_ms=100))
        assert response.status is None
        assert response.problem == "no answer within 100 ms"
        assert response.duration_ms >= 99
        assert (await sending.send(to(receiver))).is_success


@in_loop
async def test_a_receiver_that_answers_slowly_is_waited_for() -> None:
    async with receiving() as receiver, sender() as sending:
        gate = asyncio.Event()
        receiver.answer(Reply(wait=gate))
        attempt = asyncio.ensure_future(sending.send(to(receiver)))
        await receiver.received(1)
        assert not attempt.done()
        gate.set()
        assert (await attempt).is_success


@in_loop
async def test_a_status_counts_though_its_body_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "EXCERPT_SECONDS", 0.05)
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(200, body=b"begun", content_length=100))
        response = await sending.send(to(receiver))
        assert response.is_success
        assert response.excerpt == "begun"


@in_loop
async def test_of_a_huge_answer_only_the_beginning_is_read() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(500, body=b"x" * (8 * ANSWER_BYTES_MAX)))
        response = await sending.send(to(receiver))
        assert response.status == 500
        assert response.excerpt == "x" * EXCERPT_BYTES


@in_loop
async def test_secrets_that_a_receiver_repeats_are_hidden() -> None:
    async with receiving() as receiver, sender() as sending:
        secrets = ("planted-secret", "planted")
        request = to(receiver)._replace(secret_texts=secrets)
        receiver.answer(Reply(500, body=b"got planted-secret, planted"))
        assert (await sending.send(request)).excerpt == "got …, …"
        # A secret at the end of the excerpt is not cut before it is recognised.
        for length in (EXCERPT_BYTES - 5, 3 * EXCERPT_BYTES):
            body = (b"x" * (EXCERPT_BYTES - 5) + b"planted-secret" * 10)[: length + 14]
            receiver.answer(Reply(500, body=body))
            excerpt = (await sending.send(request)).excerpt
            assert "plan" not in excerpt
            assert len(excerpt) <= EXCERPT_BYTES


@in_loop
async def test_errors_have_no_query() -> None:
    """The text of aiohttp's error for a malformed answer has the whole URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 nonsense\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, sender() as sending:
        response = await sending.send(Request(f"http://{HOST}:{port}/in?token=planted", {}, b""))
        assert "the answer is not valid HTTP" in (response.problem or "")
        assert "planted" not in (response.problem or "")


@in_loop
async def test_compressed_answers_are_not_unpacked() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(200, {"Content-Encoding": "gzip"}, b"not gzip"))
        assert (await sending.send(to(receiver))).excerpt == "not gzip"


@in_loop
@pytest.mark.proves("S2-36")
async def test_nobody_there_and_no_answer_are_told_apart() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(Reply(is_cut=True))
        response = await sending.send(to(receiver))
        assert (response.status, response.problem) == (None, "the connection ended without an answer")
        await receiver.stop()
        response = await sending.send(to(receiver))
        assert response.status is None
        assert (response.problem or "").startswith("no connection")


@in_loop
async def test_a_restart_between_two_deliveries_is_no_failure() -> None:
    """Connections that were kept are dead, and the receiver is well."""
    async with receiving() as receiver, sender() as sending:
        gate = asyncio.Event()
        receiver.reply = lambda got: Reply(wait=gate)
        several = [asyncio.ensure_future(sending.send(to(receiver))) for _ in range(4)]
        await receiver.received(4)
        gate.set()
        assert all(response.is_success for response in await asyncio.gather(*several))
        await receiver.stop()
        await receiver.start()
        assert (await sending.send(to(receiver))).is_success


@in_loop
async def test_a_kept_connection_that_ends_as_it_is_used_is_replaced() -> None:
    async with receiving() as receiver, sender() as sending:
        receiver.answer(200, Reply(is_cut=True), 200)
        assert (await sending.send(to(receiver))).is_success
        assert (await sending.send(to(receiver))).is_success
        assert len(receiver.requests) == 3


@in_loop
async def test_answers_that_are_no_http_are_failures() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(talk, HOST, 0)
    async with sender() as sending:
        url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}/"
        response = await sending.send(Request(url, {}, b"", 5000))
        assert response.status is None
        assert response.problem
    server.close()


@in_loop
async def test_retry_after_is_read_in_both_its_forms() -> None:
    async with receiving() as receiver, sender() as sending:
        cases = {
            "120": 120_000,
            "0": 0,
            "99999999999999": 86_400_000,
            "Tue, 14 Nov 2023 22:14:20 GMT": 60_000,  # The clock says 22:13:20.
            "Tue, 14 Nov 2023 22:00:00 GMT": 0,
            "soon": None,
            "-5": None,
            "": None,
            "Fri, 99 Nov 9999 99:99:99 GMT": None,
        }
        for text, wanted_ms in cases.items():
            receiver.answer(Reply(503, {"Retry-After": text}))
            assert (await sending.send(to(receiver))).retry_after_ms == wanted_ms, text


@in_loop
async def test_after_the_end_nothing_is_sent() -> None:
    async with receiving() as receiver, sender() as sending:
        await sending.close()
        assert (await sending.send(to(receiver))).problem == "the server is stopping"
        assert receiver.connection_count == 0


# --- names and certificates


@in_uvloop
async def test_tls_asks_for_the_name_though_the_connection_goes_to_an_address() -> None:
    async with receiving(receiver_tls()) as receiver:
        request = Request(f"https://{CERTIFIED_NAME}:{receiver.port}/hook", {}, b"{}", 5000)
        async with sender(look_up=answering(HOST), tls=trusting_tls()) as sending:
            assert (await sending.send(request)).is_success
            assert receiver.requests[0].headers["host"] == f"{CERTIFIED_NAME}:{receiver.port}"
            other = request._replace(url=f"https://other.example:{receiver.port}/hook")
            response = await sending.send(other)
            assert response.status is None
            assert "certificate" in (response.problem or "")
        async with sender(look_up=answering(HOST)) as sending:
            assert "certificate" in ((await sending.send(request)).problem or "")
        assert len(receiver.requests) == 1


@in_loop
async def test_a_name_that_is_unknown_is_a_failure_in_words() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with sender(look_up=look_up) as sending:
        response = await sending.send(Request("https://unknown.example/", {}, b""))
        assert response.status is None
        assert "Name or service not known" in (response.problem or "")


@in_loop
async def test_a_lookup_that_hangs_is_given_up_in_time() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with sender(look_up=look_up) as sending:
        response = await sending.send(Request("https://slow.example/", {}, b"", 50))
        assert response.problem == "no answer within 50 ms"


@in_loop
async def test_lookups_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "LOOKUPS_WAITING_MAX", 1)
    begun, gate = asyncio.Event(), asyncio.Event()

    async def look_up(host: str, port: int) -> list[str]:
        begun.set()
        await gate.wait()
        return []

    async with sender(BY_ADDRESS, look_up=look_up) as sending:
        first = asyncio.ensure_future(sending.send(Request("https://one.example/", {}, b"", 5000)))
        await begun.wait()
        response = await sending.send(Request("https://two.example/", {}, b"", 5000))
        assert "too many names are being looked up" in (response.problem or "")
        gate.set()
        assert (await first).is_forbidden


# --- the guard


class Sockets:
    """Counts every connection that is begun anywhere, and lets none of them through."""

    def __init__(self) -> None:
        self.begun: list[Any] = []

    async def connect(self, loop: object, sock: socket.socket, address: Any) -> None:
        self.begun.append(address)
        raise ConnectionRefusedError("not in this test")


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Sockets:
    counting = Sockets()

    async def connect(loop: object, sock: socket.socket, address: Any) -> None:
        await counting.connect(loop, sock, address)

    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", connect)
    return counting


async def _try_all(sending: WebhookSender, port: int) -> list[tuple[str, Response]]:
    urls = [url.replace("{port}", str(port)) for url in (*LITERALS, *TRICKS)]
    return [(url, await sending.send(Request(url, {}, b"{}", 2000))) for url in urls]


@in_loop
async def test_no_forbidden_url_makes_a_connection() -> None:
    """Against listeners on every address of this machine, with real name resolution and nothing in between."""
    count = 0

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        writer.close()

    assert len(LITERALS) + len(TRICKS) + len(ANSWERS) >= 60
    server = await asyncio.start_server(connected, "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    six = await asyncio.start_server(connected, "::", port)
    for rules in (BY_ADDRESS, AddressRules()):
        async with sender(rules) as sending:
            for url, response in await _try_all(sending, port):
                assert response.is_forbidden, (url, response)
    reader, writer = await asyncio.open_connection(HOST, port)
    await reader.read()
    writer.close()
    assert count == 1, "the listener counts, and this one connection is all there was"
    server.close()
    six.close()


@in_loop
async def test_no_forbidden_url_even_begins_a_connection(sockets: Sockets) -> None:
    async with sender(BY_ADDRESS) as sending:
        for url, response in await _try_all(sending, 8080):
            assert response.is_forbidden, (url, response)
    assert sockets.begun == []


@pytest.mark.parametrize("addresses", ANSWERS, ids=str)
@in_loop
async def test_no_name_leads_to_a_forbidden_address(sockets: Sockets, addresses: tuple[str, ...]) -> None:
    async with sender(BY_ADDRESS, look_up=answering(*addresses)) as sending:
        for url in ("http://harmless.example/", "https://harmless.example:8443/x"):
            response = await sending.send(Request(url, {}, b"{}", 2000))
            assert response.is_forbidden, response
    assert sockets.begun == []


@in_loop
async def test_a_name_that_changes_after_the_look_changes_nothing(sockets: Sockets) -> None:
    """Rebinding: good when it is checked, bad when it would be asked again."""
    asked = 0

    async def look_up(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return [PUBLIC] if asked == 1 else [HOST]

    async with sender(BY_ADDRESS, look_up=look_up) as sending:
        response = await sending.send(Request("http://rebinding.example/", {}, b"{}", 2000))
        assert response.status is None
        assert not response.is_forbidden
        assert (asked, sockets.begun) == (1, [(PUBLIC, 80)])
        assert (await sending.send(Request("http://rebinding.example/", {}, b"{}", 2000))).is_forbidden
    assert sockets.begun == [(PUBLIC, 80)]


@in_loop
async def test_a_redirect_to_a_forbidden_place_is_not_followed() -> None:
    async with receiving() as receiver, receiving() as secret, sender() as sending:
        receiver.answer(Reply(302, {"Location": secret.url}), Reply(200, {"Refresh": f"0;url={secret.url}"}))
        for _ in range(2):
            await sending.send(to(receiver))
        assert secret.connection_count == 0


@in_loop
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as receiver, receiving() as proxy, sender() as sending:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{HOST}:{proxy.port}")
        assert (await sending.send(to(receiver))).is_success
        assert (proxy.connection_count, receiver.connection_count) == (0, 1)


@in_loop
async def test_a_socket_is_refused_though_everything_before_it_was_fooled(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line: rules for URLs and names that let everything pass."""

    def check_url(self: AddressRules, url: str) -> Target:
        return parse_url(url)

    def check_addresses(self: AddressRules, addresses: list[str]) -> list[str]:
        return addresses

    monkeypatch.setattr(AddressRules, "check_url", check_url)
    monkeypatch.setattr(AddressRules, "check_addresses", check_addresses)
    async with sender(BY_ADDRESS, look_up=answering("10.0.0.1", "::1")) as sending:
        for url in ("http://127.0.0.1/", "http://[::1]/", "http://fooled.example/"):
            response = await sending.send(Request(url, {}, b"{}", 2000))
            assert response.status is None
            assert "is an address that is" in (response.problem or "")
    assert sockets.begun == []
