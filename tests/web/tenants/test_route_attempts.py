"""Attempts of a tenant on every route to use or to see resources of another tenant, or of none.

A route without a row fails the test. Each attempt is sent twice: with the names of a resource of somebody else, and
with names of nothing. Both must be answered alike. No answer may contain anything of the other resource that the client
has not sent itself, and the resource stays as it is.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from kwire.web.needs import PUBLIC, Need
from tests.support.engines import Engine, is_route_served
from tests.support.http_access import ADMIN, AccessHttp
from tests.support.kafka_request_cases import TRANSACTIONAL_ID, create_transactional_id, load_transactions
from tests.support.node import in_uvloop
from tests.support.tenants import NO_SCOPE, SCOPES, A, B, tenant_http
from tests.web.access.route_rows import (
    BY_ROUTE,
    CLUSTER,
    EMPTY_GROUP,
    EVENT_TOPIC,
    GROUP_OF_TOPIC,
    NOTHING,
    PARTITIONED,
    ROOM,
    SCHEMA,
    TABLE,
    WEBHOOK,
    Row,
    filled,
)

READ_SECONDS = 10.0
AT_ONCE = 8
SECRET = "secret-of-somebody-else"
SECRET_PATH = "hook-of-somebody-else"
HOOK_URL = "http://127.0.0.1:9/"
# What differs between two equal answers.
# Headers that differ between any two answers.
DIFFERENT_HEADERS = ("Date", "Content-Length", "X-Request-ID")
VOLATILE = re.compile(
    r"evt_[0-9a-zA-Z_-]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|[0-9a-f]{32}|[0-9A-Za-z_-]{22,}|whsec_[^\"]+"
    # Brokers of Apache Kafka name any broker as the controller.
    r'|"producer_id":\d+|"controller_id":\d+'
)


class Resource(NamedTuple):
    """A resource of `owner`: the name that the owner uses, and ids."""

    owner: str
    name: str
    prefix: str
    member: str = "nobody"
    webhook: str = "00000000-0000-4000-8000-000000000000"


class Spelling(NamedTuple):
    """How a client may try to name a resource of somebody else."""

    what: str
    text: Callable[[Resource], str]
    escape: Callable[[str], str] = lambda text: quote(text, safe="")
    has_prefix: bool = True


def every_character(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


PLAIN = Spelling("plain name", lambda one: one.name, has_prefix=False)
FULL = Spelling("full name", lambda one: one.prefix + one.name)
SPELLINGS = (
    PLAIN,
    FULL,
    Spelling("full name, every character escaped", lambda one: one.prefix + one.name, every_character),
    Spelling("escaped twice", lambda one: "%6b" + one.prefix[1:] + one.name if one.prefix else one.name + "%2e"),
    Spelling("scope and colon", lambda one: f"bolt:{one.name}", has_prefix=False),
    Spelling("another folder", lambda one: f"../{one.prefix}{one.name}"),
    Spelling("own and other prefix", lambda one: SCOPES["a"].prefix + one.prefix + one.name),
    Spelling("in capital letters", lambda one: (one.prefix + one.name).upper()),
)


# A cluster takes longer, mostly to create the rooms that the attempts use by these names in the own scope.
SPELLINGS_ON_BRIDGES = (PLAIN, FULL)


class Attempts:
    """Sends the attempts of the tenant `a`, and checks the answers."""

    def __init__(self, http: AccessHttp, spellings: Sequence[Spelling]) -> None:
        self.http = http
        self._spellings = spellings
        self.counts: Counter[str] = Counter()
        self._number = 0

    # --- resources

    async def make(self, setup: str, owner: str) -> Resource:
        self._number += 1
        name = f"it-{self._number}"
        prefix = SCOPES[owner].prefix if owner in SCOPES else ""
        made = Resource(owner, name, prefix)
        data, path = ("my-own", "my-hook") if owner == "a" else (SECRET, SECRET_PATH)
        if setup == ROOM:
            await self._do(owner, "POST", f"/rooms/{name}/events", {"event_type": "message", "data": data})
        elif setup in (PARTITIONED, GROUP_OF_TOPIC, EMPTY_GROUP):
            await self._do(owner, "POST", f"/topics/{name}", {"num_partitions": 1})
            await self._do(owner, "POST", f"/topics/{name}/publish", {"event_type": "made", "data": data})
        elif setup in (EVENT_TOPIC, WEBHOOK):
            await self._do(owner, "POST", "/topics", {"name": name, "schemas": [SCHEMA]})
            event = {"topic": name, "type": "made", "payload": {"is": data}}
            await self._do(owner, "POST", "/events", event)
        if setup in (GROUP_OF_TOPIC, EMPTY_GROUP):
            await self._do(owner, "POST", f"/consumer-groups/{name}", {"topic": name})
        if setup == GROUP_OF_TOPIC:
            joined = await self._do(owner, "POST", f"/consumer-groups/{name}/join", {})
            made = made._replace(member=joined["member_id"])
        if setup == TRANSACTIONAL_ID:
            await create_transactional_id(self.http, name, Authorization=self._credentials(owner))
        if setup == WEBHOOK:
            hook = {"url": HOOK_URL + path, "topics": {name: "latest"}, "description": data}
            made = made._replace(webhook=(await self._do(owner, "POST", "/webhooks", hook))["id"])
        return made

    def nothing(self, like: Resource) -> Resource:
        """Names of nothing, of the same form."""
        self._number += 1
        prefix = NO_SCOPE.prefix if like.prefix else ""
        member = like.member if like.member == "nobody" else "AAAAAAAAAAAAAAAAAAAAAA"
        return Resource("nobody", f"it-{self._number}", prefix, member)

    async def state(self, one: Resource) -> list[object]:
        """What the owner sees of its resource."""
        paths = [
            f"/rooms/{one.name}/events",
            f"/rooms/{one.name}",
            f"/topics/{one.name}",
            f"/topics/{one.name}/stats",
            f"/consumer-groups/{one.name}/stats",
            f"/api/v1/groups/{one.name}",
            f"/webhooks/{one.webhook}",
        ]
        found: list[object] = []
        for path in paths:
            answer = await self.http.get(path, Authorization=self._credentials(one.owner))
            text = re.sub(rb'"(last_rebalance_secs|lag_seconds|last_compaction)": ?[0-9.]+', b"", answer.body)
            found.append((path, answer.status, text))
        return found

    async def load_groups(self) -> None:
        await self.make(GROUP_OF_TOPIC, "admin")
        async with asyncio.timeout(15):
            while (await self.http.get("/api/v1/groups", Authorization=ADMIN)).status != 200:
                await asyncio.sleep(0.01)

    def _credentials(self, owner: str) -> str:
        return {"a": A, "b": B}.get(owner, ADMIN)

    async def _do(self, owner: str, method: str, path: str, body: object) -> Any:
        answer = await self.http.ask(method, path, body, Authorization=self._credentials(owner))
        assert answer.status < 300, (owner, method, path, answer)
        return answer.json

    # --- requests

    async def send(self, row: Row, one: Resource, spelling: Spelling, query: str = "") -> tuple[int, str]:
        """Send the request of a row as `a`. Return the status, and the headers and the body as one text."""
        text, escape = spelling.text(one), spelling.escape
        path = row.path or row.route
        path = path.replace("{name}", escape(text)).replace("{member}", escape(one.member))
        path = re.sub(r"\{\w+\}", "nothing", path.replace("{webhook}", escape(one.webhook))) + query
        if row.route == "/ws":
            return await self._send_commands(text)
        body = row.body if isinstance(row.body, bytes) else filled(row.body, {"name": text})
        headers = {"Authorization": A, **row.headers}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        if row.is_stream:
            path += "?from_offset=0" if row.route.startswith("/rooms") else "?from=0" if "/subscribe" in path else ""
        async with self.http.session.request(
            row.method,
            URL(self.http.url + path, encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
        ) as answer:
            found = await self._read_stream(answer) if row.is_stream else await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name not in DIFFERENT_HEADERS}
            return answer.status, json.dumps(kept) + found.decode()

    async def _read_stream(self, answer: aiohttp.ClientResponse) -> bytes:
        """Read a stream until it has sent everything that is stored."""
        if answer.status != 200:
            return await answer.read()
        found = b""
        async with asyncio.timeout(READ_SECONDS):
            while b"caught_up" not in found:
                found += await answer.content.readany()
        return found

    async def _send_commands(self, room: str) -> tuple[int, str]:
        frames: list[str] = []
        commands: list[tuple[str, dict[str, object]]] = [
            ("stream.unsubscribe", {}),
            ("stream.history", {}),
            ("stream.subscribe", {"from_offset": 0}),
            ("stream.publish", {"event_type": "message", "data": 1}),
            ("stream.history", {}),
            ("stream.subscribe", {}),
            ("stream.unsubscribe", {}),
        ]
        async with self.http.session.ws_connect(f"{self.http.url}/ws", headers={"Authorization": A}) as socket:
            for number, (command, payload) in enumerate(commands):
                message = {"command": command, "payload": {"room": room, **payload}, "request_id": number}
                await socket.send_json(message)
                answer: dict[str, Any] = {}
                while answer.get("request_id") != number:
                    frames.append(await socket.receive_str(timeout=READ_SECONDS))
                    answer = json.loads(frames[-1])
        return 101, "\n".join(sorted(frames))

    # --- checks

    async def attempt(
        self, row: Row, one: Resource, nothing: Resource, spelling: Spelling, what: str | None = None
    ) -> None:
        found = await self.send(row, one, spelling)
        expected = await self.send(row, nothing, spelling)
        where = (row.method, row.route, one.owner, spelling.what)
        self._check_reveals_nothing(where, found[1], one, spelling)
        if row.route != "/subscribe/all":
            same = [(status, normalised(text, used)) for (status, text), used in ((found, one), (expected, nothing))]
            assert same[0] == same[1], (where, found, expected)
        assert (found[0] == 403) == is_of_cluster(row), (where, found)
        self.counts[what or spelling.what] += 1

    def _check_reveals_nothing(self, where: object, text: str, one: Resource, spelling: Spelling) -> None:
        assert SECRET not in text, (where, text)
        assert SECRET_PATH not in text, (where, text)
        sent = spelling.text(one)
        for known in (one.prefix, *(scope.prefix for scope in SCOPES.values())):
            assert not known or known in sent or known not in text, (where, text)

    async def run(self, row: Row) -> None:
        for owner in ("b", "admin"):
            one = await self.make(row.setup, owner)
            before = await self.state(one)
            if row.is_list:
                await self._run_list(row, one)
            else:
                nothing = self.nothing(one)
                for spelling in self._spellings:
                    await self.attempt(row, one, nothing, spelling)
                await self._run_ids(row, one)
            assert await self.state(one) == before, (row, owner)

    async def _run_list(self, row: Row, one: Resource) -> None:
        separator = "&" if "?" in row.path else "?"
        queries = ["", f"{separator}limit=1", f"{separator}after={one.prefix}", f"{separator}after={one.name[:-1]}"]
        if row.route in ("/rooms", "/topics"):
            queries += [f"{separator}prefix={one.prefix}", f"{separator}prefix=kws", f"{separator}prefix=it"]
        if row.setup == WEBHOOK:
            queries += [f"{separator}topic={one.name}", f"{separator}topic={one.prefix}{one.name}"]
        if row.refusal:
            queries = ["", "?version=1"]
        for query in queries:
            status, text = await self.send(row, one, PLAIN, query)
            assert status == 200, (row, query, text)
            for hidden in (f'"{one.name}"', one.webhook, SECRET, "kws-"):
                assert hidden not in text, (row, query, text)
            self.counts["lists"] += 1

    async def _run_ids(self, row: Row, one: Resource) -> None:
        """Ids of somebody else, with a group or a webhook of one's own."""
        if "{member}" in row.path:
            mine = await self.make(GROUP_OF_TOPIC, "a")
            nothing = self.nothing(mine)._replace(name=mine.name)
            await self.attempt(row, mine._replace(member=one.member), nothing, PLAIN, what="member ids")
        if "{webhook}" in row.path and "{name}" in row.path + json.dumps(row.body):
            mine = await self.make(WEBHOOK, "a")
            nothing = self.nothing(one)._replace(webhook=mine.webhook)
            for spelling in self._spellings:
                await self.attempt(row, one._replace(webhook=mine.webhook), nothing, spelling, what="event ids")

    async def use_own(self, row: Row) -> None:
        """The tenant may do everything with what is its own, and sees no prefix."""
        one = await self.make(row.setup, "a")
        status, text = await self.send(row, one, PLAIN)
        if is_of_cluster(row):
            assert status == 403, (row, text)
        else:
            assert status == row.status, (row, status, text)
        if row.refusal and row.rights:
            is_refused = all(kind is CLUSTER for _, kind in row.rights)
            assert (row.refusal in text) == is_refused, (row, text)
        assert "kws-" not in text, (row, text)
        if row.is_list:
            assert f'"{one.webhook if row.setup == WEBHOOK else one.name}"' in text, (row, text)
        self.counts["own"] += 1


def is_of_cluster(row: Row) -> bool:
    """Whether only administrators may use the route."""
    needs = BY_ROUTE[row.method, row.route].needs or ()
    return any(isinstance(one, Need) and one.resource_type is CLUSTER and not one.is_in_handler for one in needs)


def normalised(text: str, used: Resource) -> str:
    # How many events of a subscription on /ws come before its end is a matter of time. Only the answers are compared.
    answers = [line for line in text.splitlines() if '"request_id"' in line]
    text = "\n".join(answers) or text
    text = text.replace(used.webhook, "WEBHOOK").replace(used.member, "MEMBER")
    for prefix in (used.prefix[1:], used.prefix[1:].upper()):
        text = text.replace(prefix, "PREFIX") if prefix else text
    text = re.sub(rf"(?i){used.name}(?![0-9])", "NAME", text)
    return VOLATILE.sub("VOLATILE", re.sub(r'"subscription_id": ?"?[^",]+"?', "", text))


def test_every_route_has_a_row() -> None:
    assert {(row.method, row.route) for row in TABLE} == set(BY_ROUTE)


# What a test can create on a bridge without the event store and without groups over HTTP.
OF_BRIDGES = (NOTHING, ROOM, PARTITIONED, TRANSACTIONAL_ID)


def rows_of(engine: Engine) -> list[Row]:
    rows = [row for row in TABLE if BY_ROUTE[row.method, row.route].needs != PUBLIC]
    if engine.upstream is None:
        return rows
    return [row for row in rows if is_route_served(row.method, row.route) and row.setup in OF_BRIDGES]


@in_uvloop
async def test_a_tenant_neither_uses_nor_sees_what_belongs_to_others(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(engine)
    async with tenant_http(engine, "kwire.webhooks.allow.private=true") as http:
        attempts = Attempts(http, SPELLINGS if engine.upstream is None else SPELLINGS_ON_BRIDGES)
        if engine.upstream is None:
            await attempts.load_groups()
        await load_transactions(http, Authorization=ADMIN)
        for row in rows:
            await attempts.use_own(row)
        # The lists come first: later the tenant has resources whose names look like full names of others.
        for row in rows:
            if row.is_list:
                await attempts.run(row)
        slots = asyncio.Semaphore(AT_ONCE)

        async def run(row: Row) -> None:
            async with slots:
                await attempts.run(row)

        await asyncio.gather(*(run(row) for row in rows if not row.is_list))
    tried = sum(attempts.counts.values()) - attempts.counts["own"]
    routes = {(row.method, row.route) for row in rows}
    with capsys.disabled():
        print(f"\n{tried} attempts on {len(routes)} routes, 0 succeeded: {dict(attempts.counts)}")
    assert tried >= (800 if engine.upstream is None else 200)
