"""Every route of the HTTP port, with each kind of client: without credentials, with wrong ones, without the right, with
the right to another resource, with the right, and with a DENY.

A route without a row fails the test. Each request works on resources of its own.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp
import pytest
from yarl import URL

from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.web.needs import OPTIONAL, PUBLIC, Need
from kwire.web.routes import ROUTES
from tests.support.http_access import ADMIN, BOB, AccessHttp, Right, access_node, basic
from tests.support.kafka_request_cases import CASES as KAFKA_CASES
from tests.support.kafka_request_cases import TRANSACTIONAL_ID, load_transactions, new_producer
from tests.support.node import in_uvloop

Op = Operation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
PROXY_JSON = "application/vnd.kafka.json.v2+json"
PROXY = "application/vnd.kafka.v2+json"
SCHEMA = {"eventType": "made", "type": "object"}
EVENT = {"event_type": "message", "data": 1}
STORED = {"topic": "{name}", "type": "made", "payload": {}}
HOOK_URL = "https://hooks.example/in"

# How a resource is made before a request is sent.
Setup = str
NOTHING, ROOM, PARTITIONED, EVENT_TOPIC = "", "room", "topic", "event topic"
GROUP_OF_TOPIC, EMPTY_GROUP, WEBHOOK, KEY, USER = "group", "empty group", "webhook", "key", "user"


class Row(NamedTuple):
    """A request, and the rights that it needs. `{name}`, `{member}`, `{webhook}`, `{key}` and `{user}` are filled in.

    `is_list`: the answer is always 200, and shows the resource only to clients with the right. `refusal`: the answer is
    always 200, and contains this text for clients without one of the rights.
    """

    method: str
    route: str
    rights: tuple[tuple[Operation, ResourceType], ...] = ()
    setup: Setup = NOTHING
    path: str = ""
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    status: int = 200
    is_list: bool = False
    is_stream: bool = False
    refusal: str = ""

    @property
    def is_proxy(self) -> bool:
        return any("vnd.kafka" in value for value in self.headers.values())


READ_GROUP = ((Op.READ, GROUP), (Op.READ, TOPIC))
ALTER_CLUSTER = OTHERS_HOOK = ((Op.ALTER, CLUSTER),)
SENDING_HOOK = ((Op.ALTER, CLUSTER), (Op.READ, TOPIC))
G, M, T, W = "/consumer-groups/{group}", "/members/{member}", "/topics/{topic}", "/webhooks/{webhook}"
GP, TP = "/consumer-groups/{name}", "/topics/{name}"
PROXY_BODY = {"records": [{"value": 1}]}
AS_PROXY = {"Content-Type": PROXY_JSON, "Accept": PROXY}
ACCEPT_PROXY = {"Accept": PROXY}

TABLE: tuple[Row, ...] = (
    Row("GET", "/healthz"),
    Row("GET", "/readyz"),
    Row("GET", "/metrics", ((Op.DESCRIBE, CLUSTER),)),
    Row("GET", "/api/v1/groups", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, is_list=True),
    Row("GET", "/api/v1/groups/{group}", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, "/api/v1/groups/{name}"),
    # rooms
    Row("POST", "/rooms/{room}/events", ((Op.WRITE, TOPIC),), ROOM, "/rooms/{name}/events", EVENT, status=201),
    Row(
        "POST",
        "/rooms/{room}/events",
        ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        "/rooms/{name}/events",
        EVENT,
        status=201,
    ),
    Row(
        "POST",
        "/rooms/{room}/events",
        ((Op.WRITE, TOPIC), (Op.CREATE, CLUSTER)),
        NOTHING,
        "/rooms/{name}/events",
        EVENT,
        status=201,
    ),
    Row(
        "POST",
        "/rooms/{room}/events",
        ((Op.WRITE, TOPIC),),
        ROOM,
        "/rooms/{name}/events",
        json.dumps(EVENT).encode(),
        {"Content-Type": "application/x-ndjson"},
    ),
    Row("GET", "/rooms/{room}/events", ((Op.READ, TOPIC),), ROOM, "/rooms/{name}/events"),
    Row("GET", "/rooms/{room}/events/{offset}", ((Op.READ, TOPIC),), ROOM, "/rooms/{name}/events/0"),
    Row("GET", "/ws", ((Op.READ, TOPIC), (Op.WRITE, TOPIC)), ROOM, is_stream=True, status=101),
    Row("GET", "/rooms/{room}/subscribe", ((Op.READ, TOPIC),), ROOM, "/rooms/{name}/subscribe", is_stream=True),
    Row(
        "GET",
        "/rooms/{room}/subscribe",
        ((Op.READ, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        "/rooms/{name}/subscribe",
        is_stream=True,
    ),
    Row("GET", "/rooms", ((Op.DESCRIBE, TOPIC),), ROOM, is_list=True),
    Row("PUT", "/rooms/{room}", ((Op.CREATE, TOPIC),), NOTHING, "/rooms/{name}", {}, status=201),
    Row("PUT", "/rooms/{room}", ((Op.ALTER_CONFIGS, TOPIC),), ROOM, "/rooms/{name}", {"max_events": 5}),
    Row("PUT", "/rooms/{room}", ((Op.DESCRIBE, TOPIC),), ROOM, "/rooms/{name}", {}),
    Row("GET", "/rooms/{room}", ((Op.DESCRIBE, TOPIC),), ROOM, "/rooms/{name}"),
    Row("DELETE", "/rooms/{room}", ((Op.DELETE, TOPIC),), ROOM, "/rooms/{name}"),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.WRITE, TOPIC),),
        ROOM,
        body={"command": "stream.publish", "payload": {"room": "{name}", **EVENT}},
    ),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        body={"command": "stream.publish", "payload": {"room": "{name}", **EVENT}},
    ),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.READ, TOPIC),),
        ROOM,
        body={"command": "stream.history", "payload": {"room": "{name}"}},
    ),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.DESCRIBE, TOPIC),),
        ROOM,
        body={"command": "stream.unsubscribe", "payload": {"room": "{name}"}},
    ),
    # consumer groups
    Row(
        "POST",
        G + "/offsets/commit",
        READ_GROUP,
        GROUP_OF_TOPIC,
        GP + "/offsets/commit",
        {"partition_id": 0, "offset": 0},
    ),
    Row("GET", "/consumer-groups", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, is_list=True),
    Row("POST", G, READ_GROUP, PARTITIONED, GP, {"topic": "{name}"}, status=201),
    Row("DELETE", G, ((Op.DELETE, GROUP),), EMPTY_GROUP, GP),
    Row("POST", G + "/join", READ_GROUP, GROUP_OF_TOPIC, GP + "/join", {}),
    Row("GET", G + M + "/assignment", READ_GROUP, GROUP_OF_TOPIC, GP + M + "/assignment"),
    Row("POST", G + M + "/heartbeat", READ_GROUP, GROUP_OF_TOPIC, GP + M + "/heartbeat"),
    Row("DELETE", G + M + "/leave", ((Op.READ, GROUP),), GROUP_OF_TOPIC, GP + M + "/leave"),
    Row(
        "GET",
        G + "/offsets/{partition:(?!commit$)[^/]+}",
        ((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
        GROUP_OF_TOPIC,
        GP + "/offsets/0",
    ),
    Row("GET", G + "/stats", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, GP + "/stats"),
    Row("GET", G + M + "/stream", READ_GROUP, GROUP_OF_TOPIC, GP + M + "/stream", is_stream=True),
    # the event store
    Row("POST", "/topics", ((Op.CREATE, TOPIC),), NOTHING, body={"name": "{name}", "schemas": [SCHEMA]}, status=201),
    Row("POST", "/topics", ((Op.CREATE, CLUSTER),), NOTHING, body={"name": "{name}", "schemas": [SCHEMA]}, status=201),
    Row("GET", T + "/schemas", ((Op.DESCRIBE, TOPIC),), EVENT_TOPIC, TP + "/schemas"),
    Row("PUT", T + "/schemas", ((Op.ALTER, TOPIC),), EVENT_TOPIC, TP + "/schemas", {"schemas": [SCHEMA]}),
    Row("PATCH", T + "/schemas", ((Op.ALTER, TOPIC),), EVENT_TOPIC, TP + "/schemas", {"schemas": [SCHEMA]}),
    Row("POST", "/events", ((Op.WRITE, TOPIC),), EVENT_TOPIC, body=STORED, status=201),
    Row("GET", T + "/events", ((Op.READ, TOPIC),), EVENT_TOPIC, TP + "/events"),
    Row("GET", "/events/{event}", ((Op.READ, TOPIC),), EVENT_TOPIC, "/events/{name}-1"),
    Row("GET", "/subscribe/all", ((Op.READ, TOPIC),), EVENT_TOPIC, is_stream=True),
    Row(
        "GET",
        "/subscribe/streams/{topic}",
        ((Op.READ, TOPIC),),
        EVENT_TOPIC,
        "/subscribe/streams/{name}",
        is_stream=True,
    ),
    # webhooks
    Row(
        "POST",
        "/consumers/register",
        ((Op.READ, TOPIC),),
        EVENT_TOPIC,
        body={"callback": HOOK_URL, "topics": {"{name}": "latest"}},
        status=201,
    ),
    Row("GET", "/consumers", OTHERS_HOOK, WEBHOOK, is_list=True),
    Row("GET", "/consumers/{webhook:(?!register$)[^/]+}", OTHERS_HOOK, WEBHOOK, "/consumers/{webhook}"),
    Row("DELETE", "/consumers/{webhook:(?!register$)[^/]+}", OTHERS_HOOK, WEBHOOK, "/consumers/{webhook}"),
    Row(
        "POST",
        "/webhooks",
        ((Op.READ, TOPIC),),
        EVENT_TOPIC,
        body={"url": HOOK_URL, "topics": {"{name}": "latest"}},
        status=201,
    ),
    Row("GET", "/webhooks", OTHERS_HOOK, WEBHOOK, is_list=True),
    Row("GET", W, OTHERS_HOOK, WEBHOOK, W),
    Row("PATCH", W, SENDING_HOOK, WEBHOOK, W, {"description": "changed"}),
    Row("DELETE", W, OTHERS_HOOK, WEBHOOK, W),
    Row("POST", W + "/pause", OTHERS_HOOK, WEBHOOK, W + "/pause"),
    Row("POST", W + "/resume", SENDING_HOOK, WEBHOOK, W + "/resume"),
    Row("POST", W + "/rotate-secret", OTHERS_HOOK, WEBHOOK, W + "/rotate-secret"),
    Row("GET", W + "/deliveries", OTHERS_HOOK, WEBHOOK, W + "/deliveries"),
    Row("GET", W + "/dead-letters", OTHERS_HOOK, WEBHOOK, W + "/dead-letters"),
    Row("POST", W + "/dead-letters/resend", SENDING_HOOK, WEBHOOK, W + "/dead-letters/resend"),
    Row(
        "DELETE",
        W + "/dead-letters/{event:(?!resend$)[^/]+}",
        OTHERS_HOOK,
        WEBHOOK,
        W + "/dead-letters/{name}-1",
        status=404,
    ),
    Row("POST", W + "/resend", SENDING_HOOK, WEBHOOK, W + "/resend", {"eventIds": ["{name}-1"]}),
    Row("POST", W + "/replay", SENDING_HOOK, WEBHOOK, W + "/replay", {"sinceEventId": "{name}-1"}),
    Row("POST", W + "/test", OTHERS_HOOK, WEBHOOK, W + "/test"),
    # topics, and the API of REST Proxy
    Row("POST", T, ((Op.CREATE, TOPIC),), NOTHING, TP, {}, status=201),
    Row("POST", T, ((Op.CREATE, CLUSTER),), NOTHING, TP, {}, status=201),
    Row("POST", T, ((Op.WRITE, TOPIC),), PARTITIONED, TP, PROXY_BODY, AS_PROXY),
    Row("POST", T, ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)), NOTHING, TP, PROXY_BODY, AS_PROXY),
    Row("PUT", T + "/partitions", ((Op.ALTER, TOPIC),), PARTITIONED, TP + "/partitions", {"num_partitions": 2}),
    Row("DELETE", T, ((Op.DELETE, TOPIC),), PARTITIONED, TP),
    Row("POST", T + "/publish", ((Op.WRITE, TOPIC),), PARTITIONED, TP + "/publish", EVENT),
    Row("POST", T + "/partitions/{partition}/consume", ((Op.READ, TOPIC),), PARTITIONED, TP + "/partitions/0/consume"),
    Row("GET", T + "/records", ((Op.READ, TOPIC),), ROOM, TP + "/records"),
    Row(
        "GET",
        T + "/partitions/{partition}/records/{offset}",
        ((Op.READ, TOPIC),),
        ROOM,
        TP + "/partitions/0/records/0",
    ),
    Row("GET", T + "/stats", ((Op.DESCRIBE, TOPIC),), PARTITIONED, TP + "/stats"),
    Row("GET", "/topics", ((Op.DESCRIBE, TOPIC),), PARTITIONED, is_list=True),
    Row("GET", "/topics", ((Op.DESCRIBE, TOPIC),), EVENT_TOPIC, "/topics?events=true", is_list=True),
    Row("GET", T, ((Op.DESCRIBE, TOPIC),), PARTITIONED, TP, headers=ACCEPT_PROXY),
    Row("GET", T + "/partitions", ((Op.DESCRIBE, TOPIC),), PARTITIONED, TP + "/partitions", headers=ACCEPT_PROXY),
    Row(
        "GET",
        T + "/partitions/{partition}",
        ((Op.DESCRIBE, TOPIC),),
        PARTITIONED,
        TP + "/partitions/0",
        headers=ACCEPT_PROXY,
    ),
    Row(
        "GET",
        T + "/partitions/{partition}/offsets",
        ((Op.DESCRIBE, TOPIC),),
        PARTITIONED,
        TP + "/partitions/0/offsets",
        headers=ACCEPT_PROXY,
    ),
    Row(
        "GET",
        T + "/partitions/{partition}/segments",
        ((Op.DESCRIBE, TOPIC), (Op.DESCRIBE, CLUSTER)),
        PARTITIONED,
        TP + "/partitions/0/segments",
    ),
    Row("GET", "/brokers", headers=ACCEPT_PROXY),
    Row(
        "POST",
        T + "/partitions/{partition}",
        ((Op.WRITE, TOPIC),),
        PARTITIONED,
        TP + "/partitions/0",
        PROXY_BODY,
        AS_PROXY,
    ),
    Row(
        "POST",
        T + "/partitions/{partition}",
        ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        TP + "/partitions/0",
        PROXY_BODY,
        AS_PROXY,
    ),
    Row("POST", "/tickets", status=201),
    Row("POST", "/session", status=201),
    Row("GET", "/session"),
    Row("DELETE", "/session", status=204),
    Row("POST", "/keys", ALTER_CLUSTER, body={"scope": "acme"}, status=201),
    Row("GET", "/keys", ALTER_CLUSTER),
    Row("GET", "/keys/{key}", ALTER_CLUSTER, KEY),
    Row("PATCH", "/keys/{key}", ALTER_CLUSTER, KEY, body={"max_events": 5}),
    Row("POST", "/keys/{key}/rotate", ALTER_CLUSTER, KEY),
    Row("POST", "/keys/{key}/aliases", ALTER_CLUSTER, KEY, status=201),
    Row("DELETE", "/keys/{key}", ALTER_CLUSTER, KEY),
    Row("GET", "/users", ((Op.DESCRIBE, CLUSTER),)),
    Row("POST", "/users", ALTER_CLUSTER, USER, body={"name": "new-{name}", "password": "secret"}, status=201),
    Row("PUT", "/users/{user}/password", ALTER_CLUSTER, USER, body={"password": "another"}, status=204),
    Row("DELETE", "/users/{user}", ALTER_CLUSTER, USER, status=204),
    Row("GET", "/admin/node", ((Op.DESCRIBE, CLUSTER),)),
    Row("GET", "/overview", ((Op.DESCRIBE, CLUSTER),)),
    Row("GET", "/overview/topics", ((Op.DESCRIBE, TOPIC),), PARTITIONED, is_list=True),
    Row("POST", "/admin/backups", ALTER_CLUSTER, status=201),
    Row("GET", "/admin/backups/{backup}", ALTER_CLUSTER, path="/admin/backups/nothing", status=404),
    Row("GET", "/admin/backups/{backup}/files", ALTER_CLUSTER, path="/admin/backups/nothing/files", status=404),
    Row(
        "GET",
        "/admin/backups/{backup}/files/{number}",
        ALTER_CLUSTER,
        path="/admin/backups/nothing/files/0",
        status=404,
    ),
    Row("DELETE", "/admin/backups/{backup}", ALTER_CLUSTER, path="/admin/backups/nothing", status=404),
    # These need a key. Users with passwords are refused.
    Row("POST", "/db/api/v1/events", body={"topic": "{name}", "data": 1}, status=401),
    Row("GET", "/db/api/v1/events/subscribe", path="/db/api/v1/events/subscribe?topic={name}", status=401),
    *(
        Row("POST", f"/db/internal/v1/subscriptions/{name}", ALTER_CLUSTER, body={"key_uuid": "{name}"}, status=401)
        for name in ("request_slot", "release_slot")
    ),
    *(
        Row(
            *("POST", case.route, case.rights, case.setup, case.path, case.body),
            is_list=case.is_list,
            refusal=case.refusal,
        )
        for case in KAFKA_CASES
    ),
    Row("GET", "/openapi.json"),
    Row("GET", "/", status=302),
    Row("GET", "/console"),
    Row("GET", "/console/{path:.*}", path="/console/topics"),
    Row("GET", "/console/static/{build}/{file:.+}", path="/console/static/any/console.css"),
    *(Row("GET", path) for path in ("/docs", "/docs.css", "/docs.js", "/kwire.js", "/kwire.d.ts")),
)

BY_ROUTE = {(route.method, route.path): route for route in ROUTES}


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
            names["user"] = (await self._make("POST", "/users", {"name": names["name"], "password": "secret"}))["name"]
        if setup == TRANSACTIONAL_ID:
            await self._make("POST", "/kafka/InitProducerId", new_producer(names["name"]))
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


def filled(body: Any, names: dict[str, str]) -> Any:
    if isinstance(body, str):
        return body.replace("{name}", names.get("name", ""))
    if isinstance(body, dict):
        return {filled(key, names): filled(value, names) for key, value in body.items()}
    return [filled(one, names) for one in body] if isinstance(body, list) else body


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


@in_uvloop
async def test_every_route_with_every_kind_of_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kwire.access.login_limits.FAILURES_MAX", 1_000_000)
    monkeypatch.setattr("kwire.web.requests.authentication.FAILURE_DELAY_SECONDS", 0)
    async with access_node(tmp_path) as http:
        table = Table(http)
        await table.load_groups()
        await load_transactions(http, Authorization=ADMIN)
        for row in TABLE:
            await table.run(row)
    with capsys.disabled():
        print(f"\n{sum(table.counts.values())} cases of {len(BY_ROUTE)} routes: {dict(table.counts)}")
    assert table.counts["right"] >= 70
