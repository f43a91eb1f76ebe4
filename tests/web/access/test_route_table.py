"""Every route of the HTTP port, with each kind of client: without credentials, with wrong ones, without the right, with
the right to another resource, with the right, and with a DENY.

A route without a row fails the test. Each request works on resources of its own.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import aiohttp
import pytest
from yarl import URL

from kwire.access.acl import CLUSTER_NAME, Operation
from kwire.web.needs import OPTIONAL, PUBLIC, Need
from kwire.web.routes import ROUTES
from tests.support.engines import Engine, is_route_served
from tests.support.http_access import ADMIN, BOB, AccessHttp, Right, access_http, basic
from tests.support.kafka_request_cases import TRANSACTIONAL_ID, create_transactional_id, load_transactions
from tests.support.node import in_uvloop
from tests.web.access.route_rows import (
    BY_ROUTE,
    CLUSTER,
    EMPTY_GROUP,
    EVENT,
    EVENT_TOPIC,
    GROUP_OF_TOPIC,
    HOOK_URL,
    KEY,
    NOTHING,
    PARTITIONED,
    ROOM,
    SCHEMA,
    STORED,
    TABLE,
    TOPIC,
    USER,
    WEBHOOK,
    Op,
    Row,
    Setup,
    filled,
)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Table:
    """Sends the requests of the table, and counts the cases."""

    def __init__(self, http: AccessHttp) -> None:
        self.http = http
        self.counts: Counter[str] = Counter()
        self._number = 0

    async def names(self, setup: Setup) -> dict[str, str]:
        """Make a resource as `admin`. Return its names."""
        self._number += 1
        names = {
            "name": f"it-{self._number}",
            "member": "nobody",
            "webhook": "nothing",
            "key": "nothing",
            "user": "nobody",
        }
        topic = f"/topics/{names['name']}"
        if setup == ROOM:
            await self._make("POST", f"/rooms/{names['name']}/events", EVENT)
        elif setup in (PARTITIONED, GROUP_OF_TOPIC, EMPTY_GROUP):
            await self._make("POST", topic, {"num_partitions": 1})
        elif setup in (EVENT_TOPIC, WEBHOOK):
            await self._make("POST", "/topics", {"name": names["name"], "schemas": [SCHEMA]})
            await self._make("POST", "/events", filled(STORED, names))
        if setup in (GROUP_OF_TOPIC, EMPTY_GROUP):
            group = f"/consumer-groups/{names['name']}"
            await self._make("POST", group, {"topic": names["name"]})
            if setup == GROUP_OF_TOPIC:
                names["member"] = (await self._make("POST", group + "/join", {}))["member_id"]
        if setup == WEBHOOK:
            made = await self._make("POST", "/webhooks", {"url": HOOK_URL, "topics": {names["name"]: "latest"}})
            names["webhook"] = made["id"]
        if setup == USER:
            names["user"] = (await self._make("POST", "/users", {"name": names["name"], "password": "a-secret"}))[
                "name"
            ]
        if setup == TRANSACTIONAL_ID:
            await create_transactional_id(self.http, names["name"], Authorization=ADMIN)
        if setup == KEY:
            names["key"] = (await self._make("POST", "/keys", {"scope": names["name"]}))["id"]
        return names

    async def load_groups(self) -> None:
        """The first group makes the topic of the offsets, whose shards are loaded then."""
        await self.names(GROUP_OF_TOPIC)
        async with asyncio.timeout(15):
            while (await self.http.get("/api/v1/groups", Authorization=ADMIN)).status != 200:
                await asyncio.sleep(0.01)

    async def _make(self, method: str, path: str, body: object) -> Any:
        answer = await self.http.ask(method, path, body, Authorization=ADMIN)
        assert answer.status < 300, answer
        return answer.json

    async def send(self, row: Row, names: dict[str, str], credentials: str | None, method: str | None = None) -> Reply:
        path = row.path or row.route
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        body = row.body if isinstance(row.body, bytes) else filled(row.body, names)
        headers = dict(row.headers)
        if credentials is not None:
            headers["Authorization"] = credentials
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        if row.route == "/ws" and method is None:
            return await self._send_command(names, headers)
        async with self.http.session.request(
            method or row.method,
            URL(self.http.url + path, encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
        ) as answer:
            is_open = row.is_stream and answer.status == 200
            return Reply(answer.status, dict(answer.headers), b"" if is_open else await answer.read())

    async def _send_command(self, names: dict[str, str], headers: dict[str, str]) -> Reply:
        """Publish and read on the WebSocket. A refused command has the status 403."""
        try:
            async with self.http.session.ws_connect(f"{self.http.url}/ws", headers=headers) as socket:
                for command, payload in (("stream.publish", EVENT), ("stream.subscribe", {}), ("stream.history", {})):
                    await socket.send_json({"command": command, "payload": {"room": names["name"], **payload}})
                    while "control" in (answer := await socket.receive_json(timeout=10)) or "offset" in answer:
                        pass
                    if "error" in answer:
                        return Reply(403, {}, json.dumps(answer).encode())
                return Reply(101, {}, b"{}")
        except aiohttp.WSServerHandshakeError as error:
            return Reply(error.status, dict(error.headers or {}), b'{"error": {"code": "Unauthorized"}}')

    def check_unauthorized(self, row: Row, reply: Reply) -> None:
        assert reply.status == 401, (row, reply)
        assert reply.headers["WWW-Authenticate"] == 'Basic realm="kwire", charset="UTF-8"', row
        if row.is_proxy:
            assert reply.json["error_code"] == 40101, (row, reply)
        else:
            assert reply.json["error"]["code"] == "Unauthorized", (row, reply)

    def check_forbidden(self, row: Row, reply: Reply) -> None:
        if row.refusal:
            assert reply.status == 200, (row, reply)
            assert row.refusal in reply.body.decode(), (row, reply)
            return
        assert reply.status == 403, (row, reply)
        if row.is_proxy:
            assert reply.json["error_code"] == 40301, (row, reply)
            assert "User:bob is not allowed to" in reply.json["message"]
        else:
            error = reply.json["error"]
            assert error["code"].endswith("_AUTHORIZATION_FAILED"), (row, reply)
            operations = {operation for operation, _ in row.rights}
            if row.method == "PUT" and row.route == "/rooms/{room}":
                # So the refusal does not reveal whether the room exists.
                operations.add(Op.CREATE)
            assert Operation[error["operation"]] in operations, (row, reply)
            assert "User:bob is not allowed to" in error["message"]

    def check_refused(self, row: Row, reply: Reply, names: dict[str, str]) -> None:
        """A list leaves the resource out; everything else is refused."""
        if row.is_list:
            assert reply.status == 200, (row, reply)
            for name in (names["name"], names["webhook"]):
                assert f'"{name}"' not in reply.body.decode(), (row, reply)
        else:
            self.check_forbidden(row, reply)

    async def run(self, row: Row) -> None:
        needs = BY_ROUTE[row.method, row.route].needs
        if needs == PUBLIC:
            for case, credentials in (("no credentials", None), ("wrong credentials", basic("bob", "wrong"))):
                assert (await self.send(row, {}, credentials)).status == row.status, row
                self.counts[f"public: {case}"] += 1
            return
        names = await self.names(row.setup)
        if needs == OPTIONAL:
            assert (await self.send(row, names, None)).status == row.status, row
            self.counts["optional: no credentials"] += 1
        else:
            self.check_unauthorized(row, await self.send(row, names, None))
            self.counts["no credentials"] += 1
        for wrong in (basic("bob", "wrong"), basic("nobody", "b-secret")):
            self.check_unauthorized(row, await self.send(row, names, wrong))
            self.counts["wrong credentials"] += 1
        if row.method == "GET" and not row.is_stream and needs != OPTIONAL:
            assert (await self.send(row, names, None, "HEAD")).status == 401
            self.counts["HEAD without credentials"] += 1
        assert (await self.send(row, names, None, "OPTIONS")).status == 401
        self.counts["OPTIONS without credentials"] += 1
        if row.rights:
            await self._run_rights(row, names)
        reply = await self.send(row, await self._allowed(row), BOB)
        assert reply.status == row.status, (row, reply)
        assert not row.refusal or row.refusal not in reply.body.decode(), (row, reply)
        self.counts["right"] += 1
        await self.http.take_away()

    async def _run_rights(self, row: Row, names: dict[str, str]) -> None:
        self.check_refused(row, await self.send(row, names, BOB), names)
        self.counts["no right"] += 1
        if not row.is_list and row.route not in ("/ws", "/subscribe/all"):
            await self._check_existence_is_hidden(row, names)
        await self.http.allow(*_rights(row, "other"))
        if row.route != "/subscribe/all":
            cluster_only = all(kind is CLUSTER for _, kind in row.rights)
            if not cluster_only:
                self.check_refused(row, await self.send(row, names, BOB), names)
                self.counts["right on another resource"] += 1
        await self.http.take_away()
        for denied in row.rights:
            names = await self.names(row.setup)
            await self.http.allow(*_rights(row, names["name"]))
            await self.http.allow(*_rights(row._replace(rights=(denied,)), names["name"]), is_denied=True)
            self.check_refused(row, await self.send(row, names, BOB), names)
            self.counts["deny"] += 1
            await self.http.take_away()

    async def _allowed(self, row: Row) -> dict[str, str]:
        names = await self.names(row.setup)
        await self.http.allow(*_rights(row, names["name"]))
        if row.is_list:
            reply = await self.send(row, names, BOB)
            shown = names["webhook"] if row.setup == WEBHOOK else names["name"]
            assert f'"{shown}"' in reply.body.decode(), (row, reply)
        return names

    async def _check_existence_is_hidden(self, row: Row, names: dict[str, str]) -> None:
        """A client without rights gets the same answer for a resource that does not exist."""
        self._number += 1
        missing = {
            "name": f"it-{self._number}",
            "member": "nobody",
            "webhook": "nothing",
            "key": "nothing",
            "user": "nobody",
        }
        found = [
            (reply.status, reply.body.decode().replace(used["name"], "NAME"))
            for used in (names, missing)
            for reply in [await self.send(row, used, BOB)]
        ]
        assert found[0] == found[1], row
        self.counts["missing resource"] += 1


def _rights(row: Row, name: str) -> Iterator[Right]:
    for operation, kind in row.rights:
        yield operation, kind, CLUSTER_NAME if kind is CLUSTER else name


def test_every_route_declares_its_needs_and_has_a_row() -> None:
    undeclared = [(route.method, route.path) for route in ROUTES if route.needs is None]
    assert not undeclared
    assert {(row.method, row.route) for row in TABLE} == set(BY_ROUTE)


def test_the_rows_use_only_operations_that_the_routes_declare() -> None:
    for row in TABLE:
        needs = BY_ROUTE[row.method, row.route].needs
        declared = {(need.operation, need.resource_type) for need in needs or () if isinstance(need, Need)}
        # CREATE on the cluster stands for CREATE on each topic, as in Kafka.
        wanted = {(Op.CREATE, TOPIC) if right == (Op.CREATE, CLUSTER) else right for right in row.rights}
        assert wanted <= declared, row


# What a test can create on a bridge without the event store and without groups over HTTP.
OF_BRIDGES = (NOTHING, ROOM, PARTITIONED)


def rows_of(engine: Engine) -> list[Row]:
    """The rows of the routes that an engine serves. Kafka's requests to a bridge have a test of their own."""
    if engine.upstream is None:
        return list(TABLE)
    return [
        row
        for row in TABLE
        if is_route_served(row.method, row.route) and row.setup in OF_BRIDGES and not row.route.startswith("/kafka/")
    ]


@in_uvloop
async def test_every_route_with_every_kind_of_client(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kwire.access.login_limits.FAILURES_MAX", 1_000_000)
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0)
    rows = rows_of(engine)
    async with access_http(engine) as http:
        table = Table(http)
        if engine.upstream is None:
            await table.load_groups()
            await load_transactions(http, Authorization=ADMIN)
        for row in rows:
            await table.run(row)
    routes = {(row.method, row.route) for row in rows}
    with capsys.disabled():
        print(f"\n{sum(table.counts.values())} cases of {len(routes)} routes: {dict(table.counts)}")
    assert table.counts["right"] >= (70 if engine.upstream is None else 40)
