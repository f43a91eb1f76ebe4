"""Streams of two tenants that use the same names, while both publish: each sees only its own events and plain names."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp

from tests.support.engines import Engine, if_served
from tests.support.http_access import ADMIN, AccessHttp
from tests.support.node import in_uvloop
from tests.support.tenants import SCOPES, A, B, tenant_http

EVENTS = 40
SECONDS = 20.0
SCHEMA = {"eventType": "made", "type": "object"}

Texts = list[str]
# Reads a stream until a text satisfies the condition, and returns all texts.
Until = Callable[[str], bool]


async def socket_texts(http: AccessHttp, path: str, credentials: str, until: Until, begun: asyncio.Event) -> Texts:
    found: Texts = []
    async with (
        asyncio.timeout(SECONDS),
        http.session.ws_connect(http.url + path, headers={"Authorization": credentials}) as socket,
    ):
        while not found or not until(found[-1]):
            found.append(await socket.receive_str())
            begun.set()
    return found


async def command_texts(http: AccessHttp, path: str, credentials: str, until: Until, begun: asyncio.Event) -> Texts:
    """As `socket_texts`, by a command on /ws. `path` is the room."""
    found: Texts = []
    async with (
        asyncio.timeout(SECONDS),
        http.session.ws_connect(http.url + "/ws", headers={"Authorization": credentials}) as socket,
    ):
        await socket.send_json({"command": "stream.subscribe", "payload": {"room": path, "from_offset": 0}})
        while not found or not until(found[-1]):
            found.append(await socket.receive_str())
            begun.set()
    return found


async def line_texts(
    http: AccessHttp, path: str, credentials: str, until: Until, begun: asyncio.Event, accept: str = ""
) -> Texts:
    """The lines of NDJSON or Server-Sent Events."""
    found: Texts = []
    headers = {"Authorization": credentials, **({"Accept": accept} if accept else {})}
    async with asyncio.timeout(SECONDS), http.session.get(http.url + path, headers=headers) as answer:
        assert answer.status == 200, await answer.read()
        while not found or not until(found[-1]):
            found.append((await answer.content.readline()).decode())
            begun.set()
    return found


async def sse_texts(http: AccessHttp, path: str, credentials: str, until: Until, begun: asyncio.Event) -> Texts:
    return await line_texts(http, path, credentials, until, begun, "text/event-stream")


def events_in(texts: Texts, field: str) -> list[Any]:
    """The events among the messages of a stream: what has the field and is no control message."""
    found = []
    for text in texts:
        if "{" in text:
            message = json.loads(text[text.index("{") :])
            if field in message and "control" not in message and "result" not in message:
                found.append(message)
    return found


def has_all(field: str, last: object) -> Until:
    return lambda text: any(one[field] == last for one in events_in([text], field))


async def gather_begun(reads: Sequence[tuple[asyncio.Event, Awaitable[Texts]]]) -> "asyncio.Future[list[Texts]]":
    """Start readers, and wait until each has received its first message."""
    reading = asyncio.gather(*(one for _, one in reads))
    async with asyncio.timeout(SECONDS):
        for begun, _ in reads:
            await begun.wait()
    return reading


async def publish(http: AccessHttp, owner: str, credentials: str) -> None:
    for number in range(EVENTS):
        event = {"event_type": "message", "data": {"of": owner, "number": number}}
        assert (await http.post("/rooms/lobby/events", event, Authorization=credentials)).status == 201


@in_uvloop
async def test_rooms_of_the_same_name(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        until = has_all("offset", EVENTS - 1)
        path = "/rooms/{}/subscribe?from_offset=0"
        reads, whose = [], []
        for owner, credentials, room in (
            ("a", A, "lobby"),
            ("b", B, "lobby"),
            ("a", ADMIN, SCOPES["a"].full_name("lobby")),
            ("b", ADMIN, SCOPES["b"].full_name("lobby")),
        ):
            for read, where in (
                (socket_texts, path.format(room)),
                (command_texts, room),
                (sse_texts, path.format(room)),
                (line_texts, path.format(room)),
            ):
                begun = asyncio.Event()
                reads.append((begun, read(http, where, credentials, until, begun)))
                whose.append((owner, room))
        reading = await gather_begun(reads)
        await asyncio.gather(publish(http, "a", A), publish(http, "b", B))
        for (owner, room), texts in zip(whose, await reading, strict=True):
            events = events_in(texts, "offset")
            assert [one["offset"] for one in events] == list(range(EVENTS))
            assert [one["data"] for one in events] == [{"of": owner, "number": at} for at in range(EVENTS)]
            assert {one["room"] for one in events} == {room}
            if room == "lobby":
                assert "kws-" not in "".join(texts)
        for credentials in (A, B):
            described = (await http.get("/rooms/lobby", Authorization=credentials)).json
            assert (described["room"], described["topic"], described["event_count"]) == ("lobby", "lobby", EVENTS)


@if_served("/subscribe/all")
@in_uvloop
async def test_all_events_of_the_event_store(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        tenants = (("a", A), ("b", B))
        for _, credentials in tenants:
            topic = {"name": "orders-1", "schemas": [SCHEMA]}
            assert (await http.post("/topics", topic, Authorization=credentials)).status == 201
        reads = []
        for _, credentials in tenants:
            for read in (socket_texts, sse_texts, line_texts):
                begun = asyncio.Event()
                until = has_all("version", EVENTS - 1)
                reads.append((begun, read(http, "/subscribe/all?from=0", credentials, until, begun)))
        admin_begun = asyncio.Event()
        seen_by_admin = 0

        def admin_has_all(text: str) -> bool:
            nonlocal seen_by_admin
            seen_by_admin += len(events_in([text], "position"))
            return seen_by_admin == 2 * EVENTS

        reads.append((admin_begun, line_texts(http, "/subscribe/all?from=0", ADMIN, admin_has_all, admin_begun)))
        reading = await gather_begun(reads)

        async def commit(owner: str, credentials: str) -> None:
            for number in range(EVENTS):
                event = {"topic": "orders-1", "type": "made", "payload": {"of": owner, "number": number}}
                answer = await http.post("/events", event, Authorization=credentials)
                assert (answer.status, answer.json) == (201, {"eventIds": [f"orders-1-{number + 1}"]})

        await asyncio.gather(*(commit(*one) for one in tenants))
        *of_tenants, of_admin = await reading
        for at, texts in enumerate(of_tenants):
            owner, events = tenants[at // 3][0], events_in(texts, "version")
            assert [one["payload"] for one in events] == [{"of": owner, "number": at} for at in range(EVENTS)]
            assert [one["id"] for one in events] == [f"orders-1-{at + 1}" for at in range(EVENTS)]
            assert {one["topic"] for one in events} == {"orders-1"}
            positions = [one["position"] for one in events]
            assert positions == sorted(set(positions))
            assert "kws-" not in "".join(texts)
        seen = events_in(of_admin, "position")
        assert [one["position"] for one in seen] == list(range(2 * EVENTS))
        assert {one["topic"] for one in seen} == {SCOPES[owner].full_name("orders-1") for owner, _ in tenants}
        # The stream of one topic, resumed in the middle.
        begun = asyncio.Event()
        path = f"/subscribe/streams/orders-1?from={EVENTS // 2}"
        texts = await sse_texts(http, path, A, has_all("version", EVENTS - 1), begun)
        events = events_in(texts, "version")
        assert [one["version"] for one in events] == list(range(EVENTS // 2, EVENTS))
        assert {one["payload"]["of"] for one in events} == {"a"}
        assert "kws-" not in "".join(texts)


@if_served("/consumer-groups/{group}")
@in_uvloop
async def test_a_member_of_a_group(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        for owner, credentials in (("a", A), ("b", B)):
            answer = await http.post("/topics/jobs", {"num_partitions": 2}, Authorization=credentials)
            assert answer.json["topic"] == "jobs"
            events = [{"event_type": "made", "data": [owner, at], "key": str(at)} for at in range(10)]
            answer = await http.post("/topics/jobs/publish", events, Authorization=credentials)
            assert (answer.json["topic"], answer.json["count"]) == ("jobs", 10)
            answer = await http.post("/consumer-groups/workers", {"topic": "jobs"}, Authorization=credentials)
            assert (answer.json["group_id"], answer.json["topic"]) == ("workers", "jobs")
            joined = (await http.post("/consumer-groups/workers/join", {}, Authorization=credentials)).json
            path = f"/consumer-groups/workers/members/{joined['member_id']}/stream?limit=10"
            answer = await http.get(path, Authorization=credentials)
            got = [one for one in answer.lines if "control" not in one]
            assert sorted(one["data"][1] for one in got) == list(range(10))
            assert {(one["topic"], one["data"][0]) for one in got} == {("jobs", owner)}
            assignment, closed = answer.lines[0], answer.lines[-1]
            assert assignment["group_id"] == closed["group_id"] == "workers"
            assert b"kws-" not in answer.body
            report = await http.get("/api/v1/groups/workers", Authorization=credentials)
            assert {one["topic"] for one in report.json["offsets"]} == {"jobs"}
            assert b"kws-" not in report.body
        full = (await http.get("/consumer-groups", Authorization=ADMIN)).json["groups"]
        assert [one["group_id"] for one in full] == [SCOPES[owner].full_name("workers") for owner in "ab"]
        assert [one["topic"] for one in full] == [SCOPES[owner].full_name("jobs") for owner in "ab"]


@in_uvloop
async def test_a_ticket_keeps_the_scope(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        await publish(http, "b", B)
        await publish(http, "a", A)
        ticket = (await http.post("/tickets", Authorization=A)).json["ticket"]
        url = f"{http.url}/rooms/lobby/subscribe?from_offset=0&ticket={ticket}"
        async with asyncio.timeout(SECONDS), http.session.get(url) as answer:
            found = b""
            while b"caught_up" not in found:
                found += await answer.content.readany()
        events = events_in(found.decode().splitlines(), "offset")
        assert len(events) == EVENTS
        assert {one["data"]["of"] for one in events} == {"a"}
        assert b"kws-" not in found


@in_uvloop
async def test_messages_about_the_end_of_a_stream_have_plain_names(engine: Engine) -> None:
    async with tenant_http(engine) as http:
        await publish(http, "a", A)
        headers = {"Authorization": A}
        async with http.session.get(f"{http.url}/rooms/lobby/subscribe", headers=headers) as answer:
            await answer.content.readline()
            assert (await http.delete("/rooms/lobby", Authorization=A)).json == {"success": True, "room": "lobby"}
            async with asyncio.timeout(SECONDS):
                rest = (await answer.content.read()).decode()
        (closed,) = [one for line in rest.splitlines() if line and (one := json.loads(line))["control"] == "closed"]
        assert closed["room"] == "lobby"
        assert closed["reason"] == "'lobby' was deleted"
        assert "kws-" not in rest
        await publish(http, "a", A)
        async with http.session.ws_connect(f"{http.url}/rooms/lobby/subscribe", headers=headers) as socket:
            assert json.loads(await socket.receive_str())["result"]["room"] == "lobby"
            http.users.delete("a")
            async with asyncio.timeout(SECONDS):
                while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    assert "kws-" not in message.data
            assert "kws-" not in str(message.extra)
