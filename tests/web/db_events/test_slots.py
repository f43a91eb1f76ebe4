"""The endpoints with which other nodes take, renew and release slots."""

import pytest

from tests.support.db_events import RELEASE_SLOT, REQUEST_SLOT, bearer, db_http
from tests.support.engines import Engine
from tests.support.node import in_uvloop


@in_uvloop
@pytest.mark.proves("S1-4", "S1-9", "S1-10", "S1-23", "S1-25", "S1-29")
async def test_slots_for_sessions_on_other_nodes(engine: Engine) -> None:
    async with db_http(engine) as db:
        root, key = await db.key(None, is_root=True), await db.key(max_subscriptions=2)
        alias = await db.key(None, alias_of=key.key.id)
        asked = {"key_uuid": key.key.id}
        first = await db.post(REQUEST_SLOT, asked, Authorization=bearer(root))
        assert first.status == 200
        assert first.json["expires_in_secs"] == 30
        assert (first.json["current_subscriptions"], first.json["subscriptions_limit"]) == (1, 2)
        second = await db.post(REQUEST_SLOT, {"key_uuid": alias.key.id, "node": "2"}, Authorization=bearer(root))
        assert second.json["current_subscriptions"] == 2
        denied = await db.post(REQUEST_SLOT, asked, Authorization=bearer(root))
        assert (denied.status, denied.code) == (503, "TooManySubscriptions")
        assert (await db.refused_socket(key)).status == 503
        renewed = await db.post(REQUEST_SLOT, {**asked, "slot_id": first.json["slot_id"]}, Authorization=bearer(root))
        assert (renewed.status, renewed.json["current_subscriptions"]) == (200, 2)
        release = {**asked, "slot_id": first.json["slot_id"]}
        for expected in (True, False, False):
            answer = await db.post(RELEASE_SLOT, release, Authorization=bearer(root))
            assert answer.json == {"released": expected, "current_subscriptions": 1}
        # Without a slot id, any slot of the node is released, and nothing if there is none.
        for node, expected in (("3", False), ("2", True), ("2", False)):
            answer = await db.post(RELEASE_SLOT, {**asked, "node": node}, Authorization=bearer(root))
            assert answer.json["released"] is expected
        async with db.socket(key, "t"):
            assert db.usage.slots.count(key.key.id) == 1


@in_uvloop
@pytest.mark.proves("S1-11", "S1-41")
async def test_only_root_keys_may_use_them(engine: Engine) -> None:
    async with db_http(engine) as db:
        root, key = await db.key(None, is_root=True), await db.key()
        asked = {"key_uuid": key.key.id}
        for path in (REQUEST_SLOT, RELEASE_SLOT):
            assert (await db.post(path, asked)).status == 401
            assert (await db.post(path, asked, Authorization=bearer(key))).status == 403
            assert (await db.get(path, Authorization=bearer(root))).status == 405
            for body in (b"{", {}, {"key_uuid": ""}, {"key_uuid": 1}, {**asked, "other": 1}):
                answer = await db.post(path, body, Authorization=bearer(root), Content_Type="application/json")
                assert answer.status == 400, (path, body)
        unknown = await db.post(REQUEST_SLOT, {"key_uuid": "kwk_nobody"}, Authorization=bearer(root))
        assert (unknown.status, unknown.code) == (400, "KeyNotFound")
        assert db.usage.slots.total == 0
