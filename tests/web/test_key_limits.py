"""The limits of a key on every route that publishes or opens a stream of events."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from kwire.access.keys.key import IssuedKey
from kwire.web.rooms import lines
from tests.support.db_events import DbHttp, bearer, db_http, until
from tests.support.engines import Engine, for_each_engine, if_served, only_embedded
from tests.support.http import Answer
from tests.support.node import in_uvloop


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, (), "the limits are those of the same code")


EVENT = {"event_type": "message", "data": 1}
PLAIN = {"num_partitions": 2, "configs": {"max.message.bytes": "2000"}}
SCHEMA = {"type": "placed", "version": 1, "schema": {}}
STORED = {"topic": "orders", "type": "placed", "payload": 1}

Publish = Callable[[DbHttp, IssuedKey, int], Awaitable[Answer]]


async def to_room(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    return await db.post("/rooms/lobby/events", [EVENT] * count, Authorization=bearer(key))


async def by_command(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    assert count == 1
    body = {"command": "stream.publish", "payload": {"room": "lobby", **EVENT}}
    return await db.post("/api/v1/command", body, Authorization=bearer(key))


async def to_topic(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    return await db.post("/topics/plain/publish", [EVENT] * count, Authorization=bearer(key))


async def to_event_store(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    return await db.post("/events", [STORED] * count, Authorization=bearer(key))


async def by_proxy(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    headers = {"Authorization": bearer(key), "Content-Type": "application/vnd.kafka.json.v2+json"}
    body = json.dumps({"records": [{"value": 1}] * count})
    async with db.session.post(f"{db.url}/topics/plain", data=body, headers=headers) as answer:
        return Answer(answer.status, dict(answer.headers), await answer.read())


async def by_db_event(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    assert count == 1
    return await db.publish(key, "lobby", 1)


async def create_topics(engine: Engine, db: DbHttp, key: IssuedKey) -> None:
    bodies: dict[str, object] = {"/topics/plain": PLAIN}
    if engine.serves("/events"):
        bodies["/topics"] = {"name": "orders", "schemas": [SCHEMA]}
    for path, body in bodies.items():
        answer = await db.post(path, body, Authorization=bearer(key))
        assert answer.status in (200, 201), answer


ARRAYS = [to_room, to_topic, by_proxy]
SINGLE = [by_command, by_db_event]


async def check_daily_limit(engine: Engine, publish: Publish) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_events=5)
        await create_topics(engine, db, key)
        assert (await publish(db, key, 3)).status in (200, 201)
        refused = await publish(db, key, 3)
        assert refused.status == 429, refused
        assert (refused.headers["X-Current-Events"], refused.headers["X-Events-Limit"]) == ("3", "5")
        assert 0 < int(refused.headers["Retry-After"]) <= 24 * 3600
        assert db.usage.events.used(key.key.id) == 3
        assert (await publish(db, key, 2)).status in (200, 201)
        assert (await publish(db, key, 1)).status == 429
        # The count is that of the key, on whatever path: the next one is refused, too.
        assert (await by_db_event(db, key, 1)).code == "EventLimitReached"
        root = await db.key(None, is_root=True)
        assert await db.metric(root, 'kwire_key_limited_total{limit="max_events"}') == 3


@pytest.mark.proves("C-16", "S1-42")
@pytest.mark.parametrize("publish", ARRAYS, ids=lambda one: one.__name__)
@in_uvloop
async def test_the_daily_limit_of_a_key(engine: Engine, publish: Publish) -> None:
    await check_daily_limit(engine, publish)


@if_served("/events")
@in_uvloop
async def test_the_daily_limit_of_a_key_in_the_event_store(engine: Engine) -> None:
    await check_daily_limit(engine, to_event_store)


async def check_rate(engine: Engine, publish: Publish) -> None:
    async with db_http(engine) as db:
        key = await db.key(publish_rate=1)
        await create_topics(engine, db, key)
        assert (await publish(db, key, 1)).status in (200, 201)
        refused = await publish(db, key, 1)
        assert refused.status == (400 if publish is by_db_event else 429), refused
        assert refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize("publish", [*ARRAYS, *SINGLE], ids=lambda one: one.__name__)
@in_uvloop
async def test_the_rate_of_a_key(engine: Engine, publish: Publish) -> None:
    await check_rate(engine, publish)


@if_served("/events")
@in_uvloop
async def test_the_rate_of_a_key_in_the_event_store(engine: Engine) -> None:
    await check_rate(engine, to_event_store)


@if_served("/events")
@in_uvloop
async def test_events_that_are_not_stored_are_not_counted(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_events=100)
        await create_topics(engine, db, key)
        # One record is too large for the topic, and the others are stored.
        large = {"event_type": "message", "data": "x" * 1_800, "key": "k"}
        answer = await db.post("/topics/plain/publish", [EVENT, large, EVENT], Authorization=bearer(key))
        assert (answer.status, answer.json["count"]) == (207, 2)
        assert db.usage.events.used(key.key.id) == 2
        assert (await db.post("/topics/plain/publish", [large], Authorization=bearer(key))).status == 413
        before = db.usage.events.used(key.key.id)
        assert before == 2
        # The same request again is answered with the first one's ids, and is not counted again.
        for status in (201, 200):
            headers = {"Authorization": bearer(key), "Idempotency-Key": "once"}
            assert (await db.post("/events", [STORED] * 2, **headers)).status == status
        assert db.usage.events.used(key.key.id) == before + 2


@in_uvloop
async def test_publish_commands_of_a_websocket_are_counted(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_events=150)
        async with db.session.ws_connect(f"{db.url}/ws", headers={"Authorization": bearer(key)}) as socket:
            for number in range(160):
                command = {"command": "stream.publish", "payload": {"room": "lobby", **EVENT}, "request_id": number}
                await socket.send_json(command)
            answers = [await socket.receive_json(timeout=20) for _ in range(160)]
        # Refused commands are answered immediately, and stored ones when their event is durable.
        answers.sort(key=lambda one: one["request_id"])
        assert [one["request_id"] for one in answers] == list(range(160))
        offsets = [one["result"]["offset"] for one in answers if "result" in one]
        assert offsets == list(range(150))
        assert {one["error"]["code"] for one in answers[150:]} == {"EventLimitReached"}
        assert db.usage.events.used(key.key.id) == 150


async def send_lines(db: DbHttp, key: IssuedKey, count: int) -> Answer:
    body = (json.dumps(EVENT) + "\n").encode() * count
    headers = {"Authorization": bearer(key), "Content-Type": "application/x-ndjson"}
    async with db.session.post(f"{db.url}/rooms/lobby/events", data=body, headers=headers) as answer:
        return Answer(answer.status, dict(answer.headers), await answer.read())


@in_uvloop
async def test_lines_above_the_daily_limit_are_refused(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_events=2 * lines.BATCH_EVENTS_MAX)
        answer = await send_lines(db, key, 2 * lines.BATCH_EVENTS_MAX + 5)
        assert [one["offset"] for one in answer.lines if "offset" in one] == list(range(2 * lines.BATCH_EVENTS_MAX))
        assert [one["error"]["code"] for one in answer.lines if "error" in one] == ["EventLimitReached"] * 5


@only_embedded("a cluster takes longer than the rate")
@in_uvloop
async def test_a_stream_of_lines_waits_for_the_rate(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(publish_rate=400)
        began = asyncio.get_running_loop().time()
        answer = await send_lines(db, key, 3 * lines.BATCH_EVENTS_MAX)
        assert len([one for one in answer.lines if "offset" in one]) == 3 * lines.BATCH_EVENTS_MAX
        # 400 at once, and the next one 2.5 ms later: it takes the tokens of the last 200, and is not delayed.
        assert asyncio.get_running_loop().time() - began < 10
        assert (await to_room(db, key, 1)).status == 429


@in_uvloop
async def test_a_stream_of_lines_that_waits_notices_a_higher_rate(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "RATE_CHECK_SECONDS", 0.05)
    async with db_http(engine) as db, asyncio.timeout(20):
        key = await db.key(publish_rate=1)
        sending = asyncio.ensure_future(send_lines(db, key, 2 * lines.BATCH_EVENTS_MAX))
        await until(lambda: db.usage.rates.refused > 0)  # the second batch would wait for minutes
        await db.usage.keys.set_limits(key.key.id, {"publish_rate": None})
        answer = await sending
        assert len([one for one in answer.lines if "offset" in one]) == 2 * lines.BATCH_EVENTS_MAX


async def refused_stream(db: DbHttp, key: IssuedKey, path: str) -> Answer:
    return await db.get(path, Authorization=bearer(key))


STREAMS = ["/rooms/lobby/subscribe", "/subscribe/all", "/subscribe/streams/orders"]


@if_served("/subscribe/all")
@in_uvloop
async def test_every_stream_of_events_takes_a_subscription_of_the_key(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_subscriptions=2)
        await create_topics(engine, db, key)
        headers = {"Authorization": bearer(key)}
        async with db.session.get(f"{db.url}/rooms/lobby/subscribe", headers=headers) as first:
            await first.content.readline()
            async with db.session.ws_connect(f"{db.url}/subscribe/all", headers=headers) as second:
                await second.receive_json(timeout=20)
                for path in STREAMS:
                    refused = await refused_stream(db, key, path)
                    assert (refused.status, refused.code) == (429, "TooManySubscriptions"), path
                assert (await db.refused_socket(key)).status == 503
                async with db.session.ws_connect(f"{db.url}/ws", headers=headers) as commands:
                    await subscribe(commands, "other")
                    answer = await commands.receive_json(timeout=20)
                    assert answer["error"]["code"] == "TooManySubscriptions"
            await until(lambda: db.usage.slots.count(key.key.id) == 1)
            async with db.session.ws_connect(f"{db.url}/ws", headers=headers) as commands:
                await subscribe(commands, "other")
                assert "result" in await commands.receive_json(timeout=20)
                assert db.usage.slots.count(key.key.id) == 2
                await commands.send_json({"command": "stream.unsubscribe", "payload": {"room": "other"}})
                while "result" not in (answer := await commands.receive_json(timeout=20)):
                    assert answer["control"] == "caught_up"
                assert answer["result"] == {"success": True}
                assert db.usage.slots.count(key.key.id) == 1
                await subscribe(commands, "other")
                assert "result" in await commands.receive_json(timeout=20)
            await until(lambda: db.usage.slots.count(key.key.id) == 1)
        await until(lambda: db.usage.slots.count(key.key.id) == 0)


async def subscribe(socket: aiohttp.ClientWebSocketResponse, room: str) -> None:
    await socket.send_json({"command": "stream.subscribe", "payload": {"room": room}})


@in_uvloop
async def test_a_subscription_that_fails_takes_no_slot(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_subscriptions=1)
        headers = {"Authorization": bearer(key)}
        assert (await refused_stream(db, key, "/subscribe/streams/unknown")).status == 404
        async with db.session.ws_connect(f"{db.url}/ws", headers=headers) as commands:
            payload = {"room": "lobby", "from_offset": -1, "replay": 3}
            await commands.send_json({"command": "stream.subscribe", "payload": payload})
            assert "error" in await commands.receive_json(timeout=20)
            await subscribe(commands, "lobby")
            assert "result" in await commands.receive_json(timeout=20)
