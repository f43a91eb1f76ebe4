"""The HTTP port in a browser's neighbourhood: pages of other origins, forms, names that lead here, internal names."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import hdrs
from aiohttp.test_utils import make_mocked_request

from kwire.errors import InvalidName
from kwire.web.answers.errors import Forbidden, Refusal, UnsupportedMediaType
from kwire.web.requests.origin_policy import OriginPolicy, check_name, is_loopback
from kwire.web.routes import ROUTES
from tests.support.http import Http, http_node
from tests.support.node import in_loop

EVENT = {"event_type": "message", "data": 1}
LISTED = "https://app.example"


def refusal(
    policy: OriginPolicy, method: str = "GET", host: str | None = "127.0.0.1:8082", **headers: str
) -> type[Exception] | None:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if host is not None:
        sent[hdrs.HOST] = host
    try:
        policy.check(make_mocked_request(method, "/rooms/r", headers=sent))
    except Refusal as error:
        return type(error)
    return None


def test_who_is_no_browser_is_not_held_up() -> None:
    policy = OriginPolicy(frozenset(), is_loopback=True)
    assert refusal(policy) is None
    assert refusal(policy, host=None) is None
    assert refusal(policy, "POST", Content_Type="application/json") is None
    assert refusal(policy, "POST") is None


def test_pages_of_other_origins_are_refused() -> None:
    policy = OriginPolicy(frozenset({LISTED}), is_loopback=True)
    assert refusal(policy, Origin="http://127.0.0.1:8082") is None
    assert refusal(policy, host="LOCALHOST:8082", Origin="http://localhost:8082") is None
    assert refusal(policy, Origin=LISTED) is None
    assert refusal(policy, Origin=LISTED.upper()) is None
    for origin in ("http://evil.example", "http://127.0.0.1:8083", "null", "", "https://app.example.evil.example"):
        assert refusal(policy, Origin=origin) is Forbidden, origin
        assert refusal(policy, "POST", Origin=origin) is Forbidden, origin
        assert refusal(policy, Origin=origin, Upgrade="websocket", Connection="Upgrade") is Forbidden, origin
    assert (
        refusal(OriginPolicy(frozenset({"*"}), is_loopback=True), Origin="http://evil.example", host="evil.example")
        is None
    )


def test_a_page_of_ours_behind_a_proxy_is_known_by_what_the_browser_says() -> None:
    """A proxy that asks under the name of the container changes the Host; the page's origin is the proxy's."""
    behind = OriginPolicy(frozenset(), is_loopback=False)
    page = {"Origin": "https://kwire.example", "host": "kwire:8082"}
    assert refusal(behind, "POST", Sec_Fetch_Site="same-origin", **page) is None
    for site in ("same-site", "cross-site", "none", "Same-Origin", ""):
        assert refusal(behind, "POST", Sec_Fetch_Site=site, **page) is Forbidden
    assert refusal(behind, "POST", **page) is Forbidden
    # It has no say in who we are.
    made_up = OriginPolicy(frozenset(), is_loopback=True)
    assert (
        refusal(made_up, Origin="http://evil.example", host="evil.example", Sec_Fetch_Site="same-origin") is Forbidden
    )


def test_a_port_for_others_answers_to_any_name_but_to_no_strange_page() -> None:
    policy = OriginPolicy(frozenset(), is_loopback=False)
    for host in ("kwire", "kwire:8082", "kwire.default.svc.cluster.local:8082", "192.0.2.7", "proxy.example"):
        assert refusal(policy, host=host) is None, host
        assert refusal(policy, "POST", host=host, Origin=f"http://{host}") is None, host
        for origin in ("null", "file://", f"http://evil.{host}", f"http://{host}.evil.example", f"http://evil@{host}"):
            assert refusal(policy, "POST", host=host, Origin=origin) is Forbidden, origin


def test_requests_of_other_sites_without_an_origin_are_refused() -> None:
    policy = OriginPolicy(frozenset(), is_loopback=True)
    for site in ("cross-site", "same-site"):
        assert refusal(policy, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image") is Forbidden
        assert refusal(policy, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe") is Forbidden
        # Somebody follows a link.
        assert refusal(policy, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document") is None
    assert refusal(policy, Sec_Fetch_Site="same-origin") is None
    assert refusal(policy, Sec_Fetch_Site="none") is None


def test_forms_and_plain_text_are_refused_unless_the_origin_is_listed() -> None:
    policy = OriginPolicy(frozenset({LISTED}), is_loopback=True)
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "Text/Plain"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert refusal(policy, method, Content_Type=kind) is UnsupportedMediaType
        assert refusal(policy, "POST", Content_Type=kind, Origin="http://127.0.0.1:8082") is UnsupportedMediaType
        assert refusal(policy, "POST", Content_Type=kind, Origin=LISTED) is None


def test_a_loopback_port_answers_to_its_own_names_only() -> None:
    policy = OriginPolicy(frozenset({LISTED}), is_loopback=True)
    for host in ("localhost", "localhost:1", "a.localhost", "127.0.0.1", "[::1]:8082", "192.0.2.7:80", "app.example"):
        assert refusal(policy, host=host) is None, host
    for host in ("evil.example", "localhost.evil.example:8082", "127.0.0.1.evil.example", ""):
        assert refusal(policy, host=host) is Forbidden, host
        # It has the same origin as we, and that does not help it.
        assert refusal(policy, host=host, Origin=f"http://{host}") is Forbidden, host
    assert refusal(OriginPolicy(frozenset(), is_loopback=False), host="broker.example") is None


def test_the_hosts_that_are_remembered_are_bounded() -> None:
    policy = OriginPolicy(frozenset(), is_loopback=True)
    for port in range(1000):
        assert refusal(policy, host=f"localhost:{port}") is None
    assert len(policy._known_hosts) <= 64


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False)],
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_internal_names_are_refused() -> None:
    for name in ("__consumer_offsets", "__", "__x"):
        with pytest.raises(InvalidName):
            check_name(name)
    check_name("_x")
    check_name("a__b")


@in_loop
async def test_no_path_leads_to_an_internal_topic(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        topics = http.node._shared.services.topics
        await topics.offsets_topic()
        before = topics.get("__consumer_offsets")
        assert before is not None
        for name in ("__consumer_offsets", "%5F%5Fconsumer_offsets", "_%5fconsumer_offsets"):
            for route in ROUTES:
                for parameter in ("{room}", "{topic}", "{name}"):
                    if parameter not in route.path:
                        continue
                    path = route.path.replace(parameter, name)
                    for other in ("{offset}", "{partition}"):
                        path = path.replace(other, "0")
                    body = EVENT if route.method in ("POST", "PUT") else None
                    answer = await http.ask(route.method, path, body)
                    assert answer.status == 400, (route.method, path)
                    assert answer.code in ("InvalidName", "INVALID_TOPIC_EXCEPTION") or "error_code" in answer.json
        # A look-alike in a room's encoding is a room of its own.
        assert (await http.post("/rooms/_x5F_consumer_offsets/events", EVENT)).status == 201
        assert (await http.get("/rooms/_x5F_consumer_offsets")).json["topic"] != "__consumer_offsets"
        assert before.partitions[0].log_end_offset == 0


@in_loop
async def test_a_smuggled_second_request_is_not_taken(tmp_path: Path) -> None:
    """Two ways to say where a body ends are one too many; what lies behind is not read as a request."""
    hidden = b"POST /rooms/__x/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    head = b"POST /rooms/r/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with http_node(tmp_path) as http:
        for framing in (
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
            b"Content-Length: +5\r\n\r\n",
            b"Content-Length : 5\r\n\r\n",
        ):
            answers = await raw_exchange(http, head + framing + hidden)
            assert answers.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400")), answers
            assert answers.count(b"HTTP/1.") == 1, answers


async def raw_exchange(http: Http, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(data)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


@in_loop
async def test_a_listed_origin_may_read_and_send(tmp_path: Path) -> None:
    async with http_node(tmp_path, f"kwire.http.origins={LISTED}") as http:
        asked = await http.ask("OPTIONS", "/rooms/r/events", Origin=LISTED, Access_Control_Request_Method="POST")
        assert asked.status == 204
        assert asked.headers["Access-Control-Allow-Origin"] == LISTED
        assert "POST" in asked.headers["Access-Control-Allow-Methods"]
        allowed = asked.headers["Access-Control-Allow-Headers"].split(", ")
        assert {"Content-Type", "Idempotency-Key", "Last-Event-ID"} <= set(allowed)
        for kind in ("application/json", "text/plain"):
            sent = await http.post("/rooms/r/events", b'{"event_type":"x","data":1}', Origin=LISTED, Content_Type=kind)
            assert (sent.status, sent.headers["Access-Control-Allow-Origin"]) == (201, LISTED)
        refused = await http.get("/rooms/none", Origin=LISTED)
        assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (404, LISTED)
        other = await http.ask("OPTIONS", "/rooms/r", Origin="http://evil.example", Access_Control_Request_Method="PUT")
        assert (other.status, other.code) == (403, "OriginNotAllowed")
        assert "Access-Control-Allow-Origin" not in other.headers


@in_loop
async def test_a_refused_origin_changes_nothing(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        assert (await http.put("/rooms/r", Origin="http://evil.example")).code == "OriginNotAllowed"
        assert (await http.post("/rooms/r/events", EVENT, Origin="http://evil.example")).status == 403
        assert (await http.get("/rooms/r/subscribe", Origin="http://evil.example")).status == 403
        assert (await http.get("/rooms/r/subscribe", Sec_Fetch_Site="cross-site")).status == 403
        assert (await http.get("/rooms")).json["room_count"] == 0
