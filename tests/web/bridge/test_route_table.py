"""Routes of a bridge with each kind of client: without credentials, with wrong ones, without and with the right.

The rows and the checks are those of a server. Kafka's requests as JSON have a test of their own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.web.bridge.routes import BRIDGE_ROUTES
from tests.support.bridge_access import BridgeHttp, bridge_with_users
from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine
from tests.support.http import Answer
from tests.support.http_access import Right
from tests.support.node import in_uvloop
from tests.web.access.route_rows import NOTHING, PARTITIONED, ROOM, TABLE
from tests.web.access.test_route_table import Table

SERVED = {(route.method, route.path) for route in BRIDGE_ROUTES if not route.path.startswith("/kafka/")}
ROWS = [row for row in TABLE if (row.method, row.route) in SERVED and row.setup in (NOTHING, ROOM, PARTITIONED)]


class BridgeRights:
    """A bridge whose rights change as those of a server in this process."""

    def __init__(self, http: BridgeHttp) -> None:
        self._http = http
        self.session = http.session

    @property
    def url(self) -> str:
        return self._http.url

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._http.get(path, **headers)

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        return await self._http.ask(method, path, body, **headers)

    async def take_away(self, user: str = "bob") -> None:
        await self._http.take_away(user)

    async def allow(self, *rights: Right, user: str = "bob", is_denied: bool = False) -> None:
        await self._http.allow(rights, user, is_denied=is_denied)


@asynccontextmanager
async def table_of(directory: Path, engine: Engine) -> AsyncIterator[Table]:
    assert engine.upstream is not None
    async with bridge_with_users(directory, engine.upstream) as http:
        yield Table(BridgeRights(http))


@pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)
@in_uvloop
async def test_every_route_with_every_kind_of_client(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kwire.access.login_limits.FAILURES_MAX", 1_000_000)
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0)
    async with table_of(tmp_path / "bridge", engine) as table:
        for row in ROWS:
            await table.run(row)
    routes = {(row.method, row.route) for row in ROWS}
    with capsys.disabled():
        print(f"\n{sum(table.counts.values())} cases of {len(routes)} routes: {dict(table.counts)}")
    assert table.counts["right"] >= 40
