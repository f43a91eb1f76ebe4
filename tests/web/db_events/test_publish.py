"""POST /db/api/v1/events: scopes, limits, headers, and the order of the checks."""

from typing import Any

import pytest

from kwire.access.quotas.entities import entity_of
from kwire.access.quotas.quotas import Alteration
from kwire.metastore import Change
from kwire.streams.events.publishing import Publisher
from storage.errors import DiskFailure
from tests.support.db_events import EVENTS, bearer, db_http, next_event
from tests.support.engines import Engine
from tests.support.node import in_uvloop

EVENT = {"topic": "user:updates", "data": {"name": "Ada"}}


@in_uvloop
@pytest.mark.proves("S1-1", "S1-2", "S1-5", "S1-6", "S1-7", "S1-8", "S1-18", "C-50")
async def test_subscribers_get_the_events_of_their_own_scope_with_plain_names(engine: Engine) -> None:
    async with db_http(engine) as db:
        acme, bolt, root = await db.key("acme"), await db.key("bolt"), await db.key(None, is_root=True)
        second = await db.key("acme")
        async with db.socket(second, "user:updates") as of_acme, db.socket(bolt, "user:updates") as of_bolt:
            values: list[object] = [{"a": [1, None, "ü"]}, None, "text", 1.5, [], False]
            for number, data in enumerate(values):
                answer = await db.publish(acme, "user:updates", data)
                assert answer.status == 200, answer
                assert answer.json["offset"] == number
                assert await next_event(of_acme) == {"topic": "user:updates", "data": data}
            await db.publish(bolt, "user:updates", "of bolt")
            assert await next_event(of_bolt) == {"topic": "user:updates", "data": "of bolt"}
            await db.publish(acme, "user:updates", "last")
            assert await next_event(of_acme) == {"topic": "user:updates", "data": "last"}
        # The same topic is a room in the scope of the key, and its full name begins with the prefix of the scope.
        history = (await db.get("/rooms/user%3Aupdates/events", Authorization=bearer(bolt))).json["events"]
        assert [(one["room"], one["data"]) for one in history] == [("user:updates", "of bolt")]
        assert acme.key.scope is not None
        full = acme.key.scope.full_name("user_x3A_updates")
        assert full in (await db.get("/topics", Authorization=bearer(root))).body.decode()


@in_uvloop
async def test_a_root_key_without_a_scope_uses_rooms_without_a_scope(engine: Engine) -> None:
    async with db_http(engine) as db:
        root = await db.key(None, is_root=True)
        async with db.socket(root, "plain") as socket:
            body = {"event_type": "message", "data": 5}
            assert (await db.post("/rooms/plain/events", body, Authorization=bearer(root))).status == 201
            assert await next_event(socket) == {"topic": "plain", "data": 5}


@in_uvloop
@pytest.mark.proves("S1-12", "S1-41", "S1-45", "S1-46", "S1-49")
async def test_the_status_of_requests_that_are_not_valid(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = bearer(await db.key())
        for wrong in (None, "Bearer nonsense", f"{key[:-1]}x", "Basic YTpi"):
            headers = {} if wrong is None else {"Authorization": wrong}
            for method, body in (("POST", EVENT), ("POST", b"{"), ("GET", None), ("PUT", EVENT)):
                answer = await db.ask(method, EVENTS, body, **headers)
                assert (answer.status, answer.code) == (401, "Unauthorized"), (wrong, method)
                assert "Bearer" in answer.headers["WWW-Authenticate"]
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            answer = await db.ask(method, EVENTS, Authorization=key)
            assert answer.status == 405, method
            assert answer.headers["Allow"] == "POST"
        wrong_bodies: list[object] = [
            b"", b"{", b"[]", b"null", {}, {"topic": "t"}, {"data": 1}, {"topic": "", "data": 1},
            {"topic": 1, "data": 1}, {"topic": None, "data": 1}, {"topic": "__x", "data": 1},
            {"topic": "x" * 250, "data": 1}, b'{"topic": "t", "data": }', b'{"topic": "t", "data": 1} x',
        ]  # fmt: skip
        for wrong_body in wrong_bodies:
            answer = await db.post(EVENTS, wrong_body, Authorization=key, Content_Type="application/json")
            assert answer.status == 400, (wrong_body, answer)
            assert "kws-" not in answer.body.decode()


@in_uvloop
@pytest.mark.proves("S1-15", "S1-17", "S1-19", "S1-56", "C-16")
async def test_the_limit_of_events(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_events=3)
        alias = await db.key(None, alias_of=key.key.id)
        for number in (1, 2):
            answer = await db.publish(key, "t", number)
            assert answer.status == 200
            assert (answer.headers["X-Current-Events"], answer.headers["X-Events-Limit"]) == (str(number), "3")
        # A request that is refused, and one that fails, do not count.
        assert (await db.post(EVENTS, b"{", Authorization=bearer(key))).status == 400

        async def fail(*_: object) -> None:
            raise DiskFailure("the disk refuses")

        with monkeypatch.context() as patched:
            patched.setattr(Publisher, "publish_and_wait", fail)
            assert (await db.publish(key, "t", "lost")).status == 500
        assert db.usage.events.used(key.key.id) == 2
        assert (await db.publish(alias, "t", 3)).status == 200
        for one in (key, alias, key):
            answer = await db.publish(one, "t", 4)
            assert (answer.status, answer.code) == (400, "EventLimitReached")
            assert (answer.headers["X-Current-Events"], answer.headers["X-Events-Limit"]) == ("3", "3")
            assert answer.json["error"]["resets_at"] > "2020"
            assert "Retry-After" not in answer.headers
        # Administrators change the limit.
        root = await db.key(None, is_root=True)
        changed = await db.ask("PATCH", f"/keys/{key.key.id}", {"max_events": 4}, Authorization=bearer(root))
        assert changed.status == 200
        assert (await db.publish(key, "t", 4)).status == 200
        assert (await db.publish(key, "t", 5)).status == 400
        for one in (key, alias):
            usage = await db.ask("GET", f"/keys/{one.key.id}/usage", Authorization=bearer(root))
            assert (usage.json["events"], usage.json["subscriptions"]) == (4, 0)
            assert usage.json["last_used_at"] > "2020"
        assert (await db.ask("GET", "/keys/kwk_unknown/usage", Authorization=bearer(root))).code == "KeyNotFound"


@in_uvloop
@pytest.mark.proves("S1-14", "S1-21", "S1-42")
async def test_the_publish_rate_comes_before_everything_else(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key(publish_rate=2, max_events=0)
        alias = await db.key(None, alias_of=key.key.id)
        assert (await db.publish(key, "t", 1)).code == "EventLimitReached"
        assert (await db.post(EVENTS, b"{", Authorization=bearer(alias))).code == "InvalidJson"
        answer = await db.post(EVENTS, b"{", Authorization=bearer(key))
        assert (answer.status, answer.code) == (400, "RateLimited")
        assert answer.headers["Retry-After"] == "1"
        answer = await db.refused_socket(key, "")
        assert (answer.status, answer.code) == (400, "RateLimited")


@in_uvloop
@pytest.mark.proves("S1-48")
async def test_failures_of_the_storage_have_the_status_500(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with db_http(engine) as db:
        key = await db.key(max_events=5, max_subscriptions=5)
        assert (await db.publish(await db.key(), "t", "makes the room")).status == 200

        async def refuse(changes: list[Change], conditions: Any = ()) -> int:
            raise DiskFailure("the disk refuses")

        with monkeypatch.context() as patched:
            patched.setattr(db.server._metastore, "commit", refuse)
            assert (await db.publish(key, "t", 1)).status == 500
            assert (await db.refused_socket(key)).status == 500
        assert db.usage.events.used(key.key.id) == 0
        assert db.usage.slots.count(key.key.id) == 0
        assert (await db.publish(key, "t", 1)).status == 200


@in_uvloop
async def test_without_keys_the_api_answers_401(engine: Engine) -> None:
    async with db_http(engine, "kwire.http.authentication=") as db:
        assert (await db.post(EVENTS, EVENT)).status == 401
        assert not db.usage.slots.is_leading


@in_uvloop
@pytest.mark.proves("C-16")
async def test_a_quota_that_is_exceeded_has_the_status_400(engine: Engine) -> None:
    async with db_http(engine) as db:
        key = await db.key()
        quotas = db.quotas
        await quotas.alter([Alteration(entity_of([("user", key.key.id)]), {"producer_byte_rate": 10})])
        assert (await db.publish(key, "t", "x" * 1000)).status == 200
        answer = await db.publish(key, "t", "x")
        assert (answer.status, answer.code) == (400, "THROTTLING_QUOTA_EXCEEDED")
        assert int(answer.headers["Retry-After"]) >= 1
