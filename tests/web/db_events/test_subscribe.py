"""GET /db/api/v1/events/subscribe: limits, slots, the end of sessions, and metrics."""

import asyncio
import logging

import aiohttp
import pytest

from kwire.access.usage.slot_leader import SLOTS_PREFIX
from kwire.web.db_events import event_session
from tests.support.db_events import SUBSCRIBE, bearer, db_http, next_event, until
from tests.support.engines import Engine
from tests.support.node import in_uvloop


@in_uvloop
@pytest.mark.proves("S1-22", "S1-25", "S1-43", "S1-47", "S1-55", "S1-57")
async def test_both_limits_of_connections_answer_503(engine: Engine) -> None:
    async with db_http(engine, "kwire.sessions.max.connections=3") as db:
        key, other = await db.key(max_subscriptions=2), await db.key()
        alias = await db.key(None, alias_of=key.key.id)
        async with db.socket(key, "t"), db.socket(alias, "other"):
            answer = await db.refused_socket(key)
            assert (answer.status, answer.code) == (503, "TooManySubscriptions")
            assert db.usage.slots.count(key.key.id) == 2
            async with db.socket(other, "t"):
                answer = await db.refused_socket(other)
                assert (answer.status, answer.code) == (503, "TooManyConnections")
                # The limit of the node is checked before that of the key.
                assert (await db.refused_socket(key)).code == "TooManyConnections"
        await until(lambda: db.usage.slots.total == 0)
        assert db.sessions.connection_count == 0
        async with db.socket(key, "t"), db.socket(key, "t"):
            assert (await db.refused_socket(key)).status == 503


@in_uvloop
@pytest.mark.proves("C-19")
async def test_nothing_is_taken_by_a_request_that_is_not_valid(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_subscriptions=1)
        for topic in ("", "__x", "x" * 250):
            assert (await db.refused_socket(key, topic)).status == 400, topic
        for path in ("", "?topic=", "?topic=t&other=1", "?topic=t"):
            assert (await db.get(SUBSCRIBE + path, Authorization=bearer(key))).status == 400, path
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Authorization": bearer(key)}
        sample = "dGhlIHNhbXBsZSBub25jZQ=="
        for version, secret, status in (("13", "short", 400), ("12", sample, 426)):
            more = {"Sec-WebSocket-Version": version, "Sec-WebSocket-Key": secret}
            async with db.session.get(f"{db.url}{SUBSCRIBE}?topic=t", headers={**upgrade, **more}) as refused:
                assert refused.status == status
        assert (await db.get(SUBSCRIBE + "?topic=t")).status == 401
        assert db.usage.slots.total == db.sessions.connection_count == 0
        async with db.socket(key, "t"):
            assert db.usage.slots.total == 1


@in_uvloop
@pytest.mark.proves("S1-3", "S1-20", "S1-26", "S1-27", "S1-28", "S1-58", "S1-59", "C-52")
async def test_a_session_is_registered_and_unregistered_and_an_event_is_received_once(engine: Engine) -> None:
    async with db_http(engine) as db:
        key, root = await db.key(), await db.key(None, is_root=True)
        sessions = db.sessions
        await db.publish(key, "t", "before")
        async with db.socket(key, "t") as first, db.socket(key, "t") as second, db.socket(key, "u"):
            assert (sessions.connection_count, sessions.topic_count) == (3, 2)
            (topic,) = [one for one in sessions._topics.values() if len(one.sessions) == 2]
            assert {(one.topic, one.key_id) for one in topic.sessions} == {("t", key.key.id)}
            for number in range(5):
                await db.publish(key, "t", number)
            await db.publish(key, "nobody listens", 1)
            for socket in (first, second):
                assert [(await next_event(socket))["data"] for _ in range(5)] == [0, 1, 2, 3, 4]
            assert await db.metric(root, "kwire_db_received_total") == 5
            await first.close()
            await until(lambda: sessions.connection_count == 2)
            assert sessions.topic_count == 2
            # The connection breaks without a close frame.
            assert second._response.connection is not None
            assert second._response.connection.transport is not None
            second._response.connection.transport.abort()
            await until(lambda: sessions.connection_count == 1)
            assert sessions.topic_count == 1
            assert db.usage.slots.count(key.key.id) == 1
        await until(lambda: db.usage.slots.total == 0 and not sessions.topic_count)
        assert await db.metric(root, "kwire_db_published_total") == 7


@in_uvloop
@pytest.mark.proves("S1-35", "S1-37", "S1-53", "C-14")
async def test_ends_are_logged_as_expected_or_unexpected(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kwire.web")
    async with db_http(engine) as db:
        key = await db.key()
        async with db.socket(key, "t") as socket:
            await socket.send_str("x" * event_session.MESSAGE_BYTES_MAX)
            await db.publish(key, "t", 1)
            assert (await next_event(socket))["data"] == 1
            await socket.send_str("x" * (event_session.MESSAGE_BYTES_MAX + 1))
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1009
        async with db.socket(key, "t") as socket:
            await socket.close()
        await until(lambda: not db.sessions.connection_count)
        ends = [(one.levelname, one.getMessage()) for one in caplog.records if "has ended" in one.getMessage()]
        assert [level for level, _ in ends] == ["WARNING", "DEBUG"]
        assert "at most 512 bytes" in ends[0][1]
        assert all(key.key.id in text for _, text in ends)


@in_uvloop
async def test_a_revoked_key_loses_its_sessions_within_five_seconds(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_subscriptions=1)
        async with db.socket(key, "t") as socket, asyncio.timeout(5):
            await db.usage.keys.revoke(key.key.id)
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1008
        await until(lambda: db.usage.slots.total == 0)
        assert (await db.refused_socket(key)).status == 401


@in_uvloop
@pytest.mark.proves("S1-34")
async def test_stopping_the_server_ends_the_sessions_and_frees_their_slots(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_subscriptions=2)
        async with db.socket(key, "t") as one, db.socket(key, "t") as two:
            stopping = asyncio.create_task(db.server.stop())
            for socket in (one, two):
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
                assert socket.close_code == 1001
            metastore = db.server._metastore
            await stopping
        assert db.usage.slots.total == 0
        assert metastore.get(SLOTS_PREFIX + key.key.id) is None


@in_uvloop
@pytest.mark.proves("S1-36", "S1-54", "C-12")
async def test_a_client_that_does_not_read_is_disconnected_with_a_reason(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.server.http.stream_connections.UNSENT_BYTES_MAX", 16 * 1024)
    async with db_http(engine) as db:
        key = await db.key(max_subscriptions=2)
        async with db.socket(key, "t") as slow, db.socket(key, "t") as fast:
            assert slow._response.connection is not None
            transport = slow._response.connection.transport
            assert transport is not None
            transport.pause_reading()
            sessions, count = db.sessions, 0
            body = {"event_type": "event", "data": "x" * 20_000}
            while sessions.metrics.closed_unexpected == 0 and count < 4000 and db.usage.slots.total == 2:
                answer = await db.post("/rooms/t/events", [body] * 20, Authorization=bearer(key))
                assert answer.status == 201
                for _ in range(20):
                    await next_event(fast)
                count += 20
                if any(one._is_closing for topic in sessions._topics.values() for one in topic.sessions):
                    break
            transport.resume_reading()
            received = 0
            async with asyncio.timeout(20):
                while (await slow.receive()).type is aiohttp.WSMsgType.TEXT:
                    received += 1
            # It got a prefix without a gap, and the reason and the last offset are in the close frame.
            assert slow.close_code == 1013
            assert count > event_session.SEND_BUFFER_EVENTS
            assert received < count
            await until(lambda: db.usage.slots.total == 1)
            await db.publish(key, "t", "the fast one goes on")
            assert (await next_event(fast))["data"] == "the fast one goes on"
