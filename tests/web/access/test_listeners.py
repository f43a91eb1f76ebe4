"""Allowed hosts, the separate listener for health checks and metrics, and what may be exposed to other machines."""

import re

import pytest
from aiohttp import hdrs
from aiohttp.test_utils import make_mocked_request

from kwire.config import InvalidConfig, load
from kwire.web.answers.errors import Forbidden
from kwire.web.requests.origin_policy import EXPOSED_HEADERS, OriginPolicy
from tests.support.engines import Engine
from tests.support.node import in_uvloop
from tests.support.room_sockets import status_of
from tests.test_house import ROOT

OTHERS = "192.0.2.1"


def is_allowed(policy: OriginPolicy, host: str) -> bool:
    try:
        policy.check(make_mocked_request("GET", "/rooms", headers={hdrs.HOST: host}))
    except Forbidden as refused:
        return refused.code != "HostNotAllowed"
    return True


@pytest.mark.parametrize("is_loopback", [True, False])
@pytest.mark.parametrize("origins", [frozenset[str](), frozenset({"https://app.example"}), frozenset({"*"})])
def test_with_allowed_hosts_other_names_are_refused_on_every_address(
    is_loopback: bool, origins: frozenset[str]
) -> None:
    policy = OriginPolicy(origins, is_loopback, frozenset({"Kwire.example"}))
    for host in ("kwire.example", "KWIRE.example:8082", "127.0.0.1:1", "[::1]:8082", "192.0.2.7", "localhost"):
        assert is_allowed(policy, host), host
    for host in ("evil.example", "kwire.example.evil.example", "kwire.example@evil.example", "", "kwire.example:80:80"):
        assert not is_allowed(policy, host), host
    assert is_allowed(policy, "app.example") == ("https://app.example" in origins)


def test_without_the_setting_a_port_for_others_accepts_any_name() -> None:
    assert is_allowed(OriginPolicy(frozenset(), is_loopback=False), "any.example")


@pytest.mark.parametrize("value", ["kwire.example:8082", "http://kwire.example", "*", "a b"])
def test_a_host_that_is_no_name_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig, match="host name"):
        load(settings=[f"kwire.http.hosts={value}"])


def test_headers_that_the_server_sets_are_exposed() -> None:
    """The names in the sources, without those that every page may read or that are of no use to a script."""
    found = set()
    for path in (ROOT / "kwire/web").rglob("*.py"):
        found |= set(re.findall(r'headers\["([A-Z][A-Za-z-]+)"\] =|= "(X-Next-[A-Za-z]+)"', path.read_text()))
    names = {name for pair in found for name in pair if name} - {"Content-Security-Policy", "Referrer-Policy"}
    assert {"X-Next-Offset", "Retry-After", "Allow"} <= names
    assert names <= set(EXPOSED_HEADERS.split(", "))


# --- exposure


def test_a_port_that_other_machines_can_reach_needs_authentication() -> None:
    with pytest.raises(InvalidConfig, match=r"kwire\.http\.listener"):
        load(http=f"{OTHERS}:8082")
    config = load(http=f"{OTHERS}:8082", settings=["kwire.http.authentication=basic"])
    assert config.web.authentication == frozenset({"basic"})
    assert any("without TLS" in warning for warning in config.warnings)
    certificate = load(http=f"{OTHERS}:8082", settings=["kwire.http.authentication=certificate"])
    assert any("clients cannot send certificates" in warning for warning in certificate.warnings)
    assert not load(settings=["kwire.http.authentication=basic"]).warnings


def test_the_authentication_of_http_does_not_open_the_kafka_port() -> None:
    with pytest.raises(InvalidConfig, match="listeners"):
        load(kafka=f"{OTHERS}:9092", settings=["kwire.http.authentication=basic"])


def test_any_origin_cannot_be_combined_with_authentication() -> None:
    with pytest.raises(InvalidConfig, match="list the origins"):
        load(settings=["kwire.http.authentication=basic", "kwire.http.origins=*"])
    load(settings=["kwire.http.authentication=basic", "kwire.http.origins=https://app.example"])


def test_only_known_methods_are_accepted() -> None:
    with pytest.raises(InvalidConfig, match="basic or key or certificate"):
        load(settings=["kwire.http.authentication=digest"])
    both = load(settings=["kwire.http.authentication=basic,certificate"])
    assert both.web.authentication == {"basic", "certificate"}


def test_the_monitoring_listener_is_for_this_machine_only() -> None:
    with pytest.raises(InvalidConfig, match=r"kwire\.http\.monitoring\.listener"):
        load(settings=[f"kwire.http.monitoring.listener={OTHERS}:9100", "kwire.http.authentication=basic"])
    allowed = ["kwire.allow.unauthenticated=true", f"kwire.http.monitoring.listener={OTHERS}:9100"]
    assert load(settings=allowed).http_monitoring is not None
    with pytest.raises(InvalidConfig, match=r"Requires kwire\.http\.listener"):
        load(settings=["kwire.http.listener=", "kwire.http.monitoring.listener=127.0.0.1:9100"])


@in_uvloop
async def test_the_monitoring_listener_serves_only_health_and_metrics(engine: Engine) -> None:
    settings = ("kwire.http.monitoring.listener=127.0.0.1:0", "kwire.authorizer=acl")
    async with engine.http(*settings) as http:
        assert http.server.http is not None
        port = http.server.http.monitoring_port
        assert port is not None

        async def status(path: str, at: int, host: str = "localhost", method: str = "GET") -> int:
            return (await status_of(at, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()))[0]

        for path in ("/healthz", "/readyz", "/metrics"):
            assert await status(path, port) == 200, path
            assert await status(path, http.port) == 404, path
        for path in ("/rooms", "/docs", "/ws", "/openapi.json", "/"):
            assert await status(path, port) == 404, path
        assert await status("/tickets", port, method="POST") == 404
        assert await status("/metrics", port, "evil.example") == 403
    async with engine.http() as http:
        assert http.server.http is not None
        assert http.server.http.monitoring_port is None
        assert (await http.get("/healthz")).status == 200
