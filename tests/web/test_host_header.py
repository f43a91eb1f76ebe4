"""Host headers on a loopback port: only an address, localhost or a listed host, with nothing after it but a port."""

from pathlib import Path

import pytest
from aiohttp import hdrs
from aiohttp.test_utils import make_mocked_request

from kwire.web.answers.errors import Forbidden
from kwire.web.requests.origin_policy import OriginPolicy
from tests.support.http import http_node
from tests.support.node import in_loop

LISTED = "https://app.example"
OURS = [
    "127.0.0.1",
    "127.0.0.1:8082",
    "[::1]",
    "[::1]:8082",
    "[::FFFF:127.0.0.1]:1",
    "localhost",
    "LOCALHOST:8082",
    "app.localhost:1",
    "app.example:443",
    "127.0.0.1:",
]
FOREIGN = [
    "[::1]evil.com",
    "[::1]evil.com:8082",
    "[::1].evil.com",
    "[::1]:evil.com",
    "[::1]:80:evil.com",
    "[::1",
    "::1",
    "[127.0.0.1]",
    "[::1%evil.com]",
    "[localhost]",
    "127.0.0.1:evil.com",
    "localhost:80.evil.com",
    "localhost:80:80",
    "localhost@evil.com",
    "127.0.0.1]",
    "evil.com",
    "app.example.evil.com",
    "",
    "[]",
]


@pytest.mark.parametrize("host", OURS)
def test_hosts_that_are_ours(host: str) -> None:
    OriginPolicy(frozenset({LISTED, "null"}), is_loopback=True).check(
        make_mocked_request("GET", "/rooms", headers={hdrs.HOST: host})
    )


@pytest.mark.parametrize("host", FOREIGN)
def test_hosts_that_are_not(host: str) -> None:
    policy = OriginPolicy(frozenset({LISTED, "null"}), is_loopback=True)
    with pytest.raises(Forbidden) as refused:
        policy.check(make_mocked_request("GET", "/rooms", headers={hdrs.HOST: host}))
    assert refused.value.code == "HostNotAllowed"


@in_loop
async def test_a_server_refuses_a_name_after_a_bracketed_address(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        assert (await http.get("/rooms", Host="[::1]:8082")).status == 200
        refused = await http.get("/rooms", Host="[::1]evil.com")
        assert (refused.status, refused.json["error"]["code"]) == (403, "HostNotAllowed")
