"""Streams that are open when a right is taken away or the user is deleted: they end within five seconds."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.server.http import server as http_server
from kwire.server.http import stream_connections
from kwire.web.rooms import rooms
from kwire.web.rooms import subscribe as room_subscribe
from tests.support.engines import Engine, if_served
from tests.support.http_access import ADMIN, BASIC_SETTING, BOB, AccessHttp, access_http
from tests.support.node import in_uvloop
from tests.support.room_sockets import http_stream

SECONDS_MAX = 5.0
SCHEMA = {"eventType": "made", "type": "object"}
READ = (Operation.READ, ResourceType.TOPIC, "lobby")
WRITE = (Operation.WRITE, ResourceType.TOPIC, "lobby")
REAL_INTERVAL = {"test_a_socket_loses_one_room_and_keeps_the_others"}
TakeAway = Callable[[AccessHttp], Awaitable[None]]


@pytest.fixture(autouse=True)
def _frequent_checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every connection ten times as often, except in some tests."""
    assert max(http_server.ACCESS_CHECK_SECONDS, stream_connections.SWEEP_SECONDS) <= 2.0
    if request.node.originalname not in REAL_INTERVAL:
        monkeypatch.setattr(http_server, "ACCESS_CHECK_SECONDS", 0.1)
        monkeypatch.setattr(stream_connections, "SWEEP_SECONDS", 0.1)


async def take_acls(http: AccessHttp) -> None:
    await http.take_away()


async def deny(http: AccessHttp) -> None:
    await http.allow(READ, WRITE, (Operation.READ, ResourceType.GROUP, "g"), is_denied=True)


async def delete_user(http: AccessHttp) -> None:
    http.users.delete("bob")


async def change_password(http: AccessHttp) -> None:
    http.users.passwords["bob"] = "another"
    http.users.changed("bob")


EVERY_WAY = pytest.mark.parametrize("take_away", [take_acls, deny, delete_user, change_password])


async def stored(http: AccessHttp, topic: str, *, is_new: bool = True) -> None:
    if is_new:
        await http.post("/topics", {"name": topic, "schemas": [SCHEMA]}, Authorization=ADMIN)
    answer = await http.post("/events", {"topic": topic, "type": "made", "payload": {}}, Authorization=ADMIN)
    assert answer.status == 201


ROOM_PATH, TOPIC_PATH = "/rooms/lobby/subscribe", "/subscribe/streams/lobby"


async def make_lobby(engine: Engine, http: AccessHttp) -> Sequence[str]:
    """Create a room. Return the paths of its streams; it is a topic of the event store if there is one."""
    if engine.serves("/events"):
        await stored(http, "lobby")
        return ROOM_PATH, TOPIC_PATH
    await http.put("/rooms/lobby", {}, Authorization=ADMIN)
    return (ROOM_PATH,)


ACCEPTS = ("application/x-ndjson", "text/event-stream")


@EVERY_WAY
@in_uvloop
async def test_subscriptions_over_http_end(engine: Engine, take_away: TakeAway) -> None:
    async with access_http(engine) as http, AsyncExitStack() as opened:
        paths = await make_lobby(engine, http)
        await http.allow(READ)
        streams = [
            await opened.enter_async_context(http_stream(http.port, path, Accept=accept, Authorization=BOB))
            for path in paths
            for accept in ACCEPTS
        ]
        for stream in streams:
            assert b"subscribed" in (await stream.line() or b"")
        started = time.monotonic()
        await take_away(http)
        for stream in streams:
            lines = []
            while (line := await stream.line()) is not None:
                lines.append(line)
            assert time.monotonic() - started < SECONDS_MAX
            assert stream.is_whole
            (closed,) = [json.loads(one.removeprefix(b"data: ")) for one in lines if b'"closed"' in one]
            assert (closed["control"], closed["code"]) == ("closed", "Forbidden")
            reasons = ("User:bob is not allowed to READ topic lobby", "the user was deleted or changed")
            assert closed["reason"] in reasons
        assert (await http.get(ROOM_PATH, Authorization=BOB)).status in (401, 403)


@EVERY_WAY
@in_uvloop
async def test_the_websockets_of_subscriptions_are_closed(engine: Engine, take_away: TakeAway) -> None:
    async with access_http(engine) as http, AsyncExitStack() as opened:
        paths = await make_lobby(engine, http)
        await http.allow(READ)
        sockets = [
            await opened.enter_async_context(http.session.ws_connect(http.url + path, headers={"Authorization": BOB}))
            for path in paths
        ]
        for socket in sockets:
            await socket.receive_json(timeout=10)
        await take_away(http)
        for socket in sockets:
            async with asyncio.timeout(SECONDS_MAX):
                messages = [one.json() async for one in socket]
            assert messages[-1]["code"] == "Forbidden"
            assert socket.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION


async def answer_of(socket: aiohttp.ClientWebSocketResponse, command: str, **payload: object) -> dict[str, Any]:
    await socket.send_json({"command": command, "payload": payload, "request_id": 1})
    while "request_id" not in (message := await socket.receive_json(timeout=10)):
        pass
    found: dict[str, Any] = message
    return found


@in_uvloop
async def test_a_socket_loses_one_room_and_keeps_the_others(engine: Engine) -> None:
    async with access_http(engine) as http:
        for room in ("lobby", "other"):
            await http.put(f"/rooms/{room}", {}, Authorization=ADMIN)
        await http.allow(READ, WRITE)
        await http.allow((Operation.READ, ResourceType.TOPIC, "other"))
        async with http.session.ws_connect(f"{http.url}/ws", headers={"Authorization": BOB}) as socket:
            for room in ("lobby", "other"):
                assert "result" in await answer_of(socket, "stream.subscribe", room=room)
            await http.allow(READ, is_denied=True)
            async with asyncio.timeout(SECONDS_MAX):
                while (message := await socket.receive_json()).get("control") != "closed":
                    pass
            assert (message["room"], message["code"]) == ("lobby", "Forbidden")
            refused = await answer_of(socket, "stream.subscribe", room="lobby")
            assert refused["error"]["code"] == "TOPIC_AUTHORIZATION_FAILED"
            # Each command is authorized when it runs, not only once a second.
            event = {"room": "lobby", "event_type": "t", "data": 1}
            assert "result" in await answer_of(socket, "stream.publish", **event)
            await http.allow(WRITE, is_denied=True)
            assert "error" in await answer_of(socket, "stream.publish", **event)
            await http.post("/rooms/other/events", {"event_type": "t", "data": 2}, Authorization=ADMIN)
            async with asyncio.timeout(SECONDS_MAX):
                while (message := await socket.receive_json()).get("room") != "other" or "control" in message:
                    pass
            assert message["data"] == 2


@in_uvloop
async def test_the_socket_of_a_deleted_user_is_closed_and_runs_no_command_meanwhile(engine: Engine) -> None:
    async with access_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        await http.allow(READ, WRITE)
        async with http.session.ws_connect(f"{http.url}/ws", headers={"Authorization": BOB}) as socket:
            assert "result" in await answer_of(socket, "stream.subscribe", room="lobby")
            http.users.delete("bob")
            refused = await answer_of(socket, "stream.publish", room="lobby", event_type="t", data=1)
            assert refused["error"]["code"] == "Unauthorized"
            async with asyncio.timeout(SECONDS_MAX):
                async for _ in socket:
                    pass
            assert socket.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert (await http.get("/rooms/lobby", Authorization=ADMIN)).json["event_count"] == 0


@if_served("/consumer-groups/{group}")
@EVERY_WAY
@in_uvloop
async def test_the_stream_of_a_group_member_ends_without_a_commit(engine: Engine, take_away: TakeAway) -> None:
    async with access_http(engine) as http:
        await http.post("/topics/lobby", {"num_partitions": 1}, Authorization=ADMIN)
        await http.post("/consumer-groups/g", {"topic": "lobby"}, Authorization=ADMIN)
        await http.allow(READ, (Operation.READ, ResourceType.GROUP, "g"))
        member = (await http.post("/consumer-groups/g/join", {}, Authorization=BOB)).json["member_id"]
        path = f"/consumer-groups/g/members/{member}/stream"
        async with http_stream(http.port, path, Authorization=BOB) as stream:
            assert (await stream.message())["control"] == "assignment"
            await take_away(http)
            async with asyncio.timeout(SECONDS_MAX):
                while (message := await stream.message())["control"] != "closed":
                    pass
            assert message["code"] == "Forbidden"


@EVERY_WAY
@pytest.mark.parametrize("is_idle", [True, False])
@in_uvloop
async def test_a_stream_of_lines_ends_with_an_error(engine: Engine, take_away: TakeAway, is_idle: bool) -> None:
    async with access_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        await http.allow(WRITE)
        line = b'{"event_type":"t","data":1}\n'
        is_taken, is_over = asyncio.Event(), asyncio.Event()

        async def lines() -> Any:
            yield line
            await is_taken.wait()
            while not is_over.is_set():
                if is_idle:
                    await is_over.wait()
                else:
                    yield line
                    await asyncio.sleep(0.05)

        headers = {"Content-Type": "application/x-ndjson", "Authorization": BOB}
        async with asyncio.timeout(2 * SECONDS_MAX):
            async with http.session.post(f"{http.url}/rooms/lobby/events", data=lines(), headers=headers) as answer:
                assert json.loads(await answer.content.readline())["offset"] == 0
                started = time.monotonic()
                await take_away(http)
                is_taken.set()
                while "error" not in (found := json.loads(await answer.content.readline())):
                    pass
                assert time.monotonic() - started < SECONDS_MAX
                is_over.set()
        assert found["error"]["code"] in ("TOPIC_AUTHORIZATION_FAILED", "Unauthorized")


@if_served("/subscribe/all")
@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/event-stream", "websocket"])
@in_uvloop
async def test_a_subscription_to_all_events_has_only_readable_topics(engine: Engine, kind: str) -> None:
    async with access_http(engine) as http:
        for topic in ("mine", "theirs", "mine", "theirs-mine", "mine"):
            await stored(http, topic)
        await http.allow((Operation.READ, ResourceType.TOPIC, "mine"))
        path = "/subscribe/all?from=oldest"
        found: list[str] = []

        async def take(texts: Callable[[], Awaitable[Any]]) -> None:
            async with asyncio.timeout(2 * SECONDS_MAX):
                while "done" not in found:
                    message = await texts()
                    if message.get("control") == "caught_up":
                        for topic in ("theirs", "mine"):
                            await stored(http, topic, is_new=False)
                        await http.allow((Operation.READ, ResourceType.TOPIC, "theirs"))
                        await stored(http, "theirs", is_new=False)
                        await http.take_away()
                    elif message.get("control") == "closed":
                        assert message["code"] == "Forbidden"
                        found.append("done")
                    elif "control" not in message:
                        found.append(message["topic"])

        if kind == "websocket":
            async with http.session.ws_connect(http.url + path, headers={"Authorization": BOB}) as socket:
                await take(socket.receive_json)
        else:
            async with http_stream(http.port, path, Accept=kind, Authorization=BOB) as stream:

                async def next_event() -> Any:
                    return json.loads((await stream.sent_event())["data"])

                await take(stream.message if kind == "application/x-ndjson" else next_event)
        assert found[:4] == ["mine"] * 4
        assert set(found[4:]) <= {"theirs", "done"}
        assert "theirs-mine" not in found


@in_uvloop
async def test_rights_that_stay_keep_streams_open_and_changes_of_others_do_not_matter(engine: Engine) -> None:
    async with access_http(engine) as http:
        await http.put("/rooms/lobby", {}, Authorization=ADMIN)
        await http.allow(READ)
        async with http_stream(http.port, "/rooms/lobby/subscribe", Authorization=BOB) as stream:
            assert (await stream.message())["control"] == "subscribed"
            assert (await stream.message())["control"] == "caught_up"
            await http.allow(READ, user="eve", is_denied=True)
            http.users.changed("eve")
            connection = next(iter(http.server.http._stream_connections._connections))  # type: ignore[union-attr]
            async with asyncio.timeout(SECONDS_MAX):
                while connection._access_revision != connection._access.revision:
                    await asyncio.sleep(0.02)
            await http.post("/rooms/lobby/events", {"event_type": "t", "data": 7}, Authorization=ADMIN)
            assert (await stream.message())["data"] == 7


@in_uvloop
async def test_without_acls_the_streams_of_a_deleted_user_end_too(engine: Engine) -> None:
    async with (
        access_http(engine, BASIC_SETTING) as http,
        http_stream(http.port, "/rooms/lobby/subscribe", Authorization=BOB) as stream,
    ):
        assert (await stream.message())["control"] == "subscribed"
        http.users.delete("bob")
        async with asyncio.timeout(SECONDS_MAX):
            while (message := await stream.message())["control"] != "closed":
                pass
        assert (message["code"], message["reason"]) == ("Forbidden", "the user was deleted or changed")


@EVERY_WAY
@in_uvloop
async def test_a_request_whose_body_arrives_after_the_change_is_refused(engine: Engine, take_away: TakeAway) -> None:
    """A client can delay the end of a body, and so keep a request that was admitted before."""
    async with access_http(engine) as http:
        event = {"event_type": "made", "data": {}}
        assert (await http.post("/rooms/lobby/events", event, Authorization=ADMIN)).status == 201
        await http.allow(WRITE)
        body = json.dumps(event).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(
            b"POST /rooms/lobby/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            + f"Authorization: {BOB}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body[:-1]
        )
        await asyncio.sleep(0.3)
        await take_away(http)
        writer.write(body[-1:])
        async with asyncio.timeout(SECONDS_MAX):
            status = await reader.readline()
        writer.close()
        assert int(status.split()[1]) in (401, 403)


@in_uvloop
async def test_a_subscription_that_begins_during_the_change_ends(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with access_http(engine) as http:
        await make_lobby(engine, http)
        await http.allow(READ)

        async def room_to_use(*args: Any) -> Any:
            found = await rooms.room_to_use(*args)
            await delete_user(http)
            return found

        monkeypatch.setattr(room_subscribe, "room_to_use", room_to_use)
        async with http_stream(http.port, ROOM_PATH, Accept=ACCEPTS[0], Authorization=BOB) as stream:
            async with asyncio.timeout(SECONDS_MAX):
                while await stream.line() is not None:
                    pass
