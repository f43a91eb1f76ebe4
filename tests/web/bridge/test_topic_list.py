"""GET /overview/topics of a bridge: the topics of its cluster that the client may describe."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.kafka_client.topic_names import NAMES_SECONDS, ListedTopic
from kwire.web.bridge import topic_list
from tests.support.bridge_access import bridge_with_users
from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine
from tests.support.http_access import ADMIN, BOB, basic
from tests.support.kafka_request_cases import NEW_TOPIC
from tests.support.node import in_uvloop

EVENT = {"event_type": "message", "data": 1}
over_clusters = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)


@over_clusters
@in_uvloop
async def test_topics_are_listed_with_kind_and_retention(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_list, "TOPICS_PER_CHUNK", 3)
    async with engine.http() as http:
        for name, configs in (
            ("a", {"retention.ms": "-1"}),
            ("b", {"cleanup.policy": "compact"}),
            ("c", {"cleanup.policy": "compact,delete", "retention.ms": "1000000"}),
        ):
            assert (await http.post(f"/topics/{name}", {"num_partitions": 2, "configs": configs})).status == 201
        assert (await http.post("/rooms/lobby/events", EVENT)).status == 201
        await engine.create_topic(http.server, "other", 1)
        answer = (await http.get("/overview/topics")).json
        assert answer["next"] is None
        found = {one["name"]: one for one in answer["topics"]}
        assert list(found) == ["a", "b", "c", "lobby", "other"]
        assert [one["kind"] for one in found.values()] == ["topic", "topic", "topic", "room", "topic"]
        assert [one["partitions"] for one in found.values()] == [2, 2, 2, 1, 1]
        assert found["a"]["retention_ms"] == -1
        assert (found["b"]["cleanup_policy"], found["b"]["retention_ms"]) == ("compact", None)
        assert (found["c"]["cleanup_policy"], found["c"]["retention_ms"]) == ("compact,delete", 1000000)
        assert {one["size_bytes"] for one in found.values()} == {None}
        assert found["lobby"]["created_ms"] > 0
        assert (found["a"]["created_ms"], found["other"]["created_ms"]) == (None, None)

        # The pages together are the list.
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await http.get(f"/overview/topics?limit=2&after={after}")).json
            assert len(page["topics"]) <= 2
            names += [one["name"] for one in page["topics"]]
            after = page["next"]
        assert names == list(found)


@pytest.mark.parametrize("engine", [OVER_KWIRE], indirect=True)
@in_uvloop
async def test_chunks_without_a_topic_that_the_client_sees_yield_to_the_event_loop(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_list, "TOPICS_PER_CHUNK", 1)
    async with bridge_with_users(tmp_path / "bridge", engine.upstream or "") as http:
        for name in ("a", "b", "c", "d"):
            await engine.create_topic(http.server, name, 1)
        await http.allow([(Operation.DESCRIBE, ResourceType.TOPIC, "other")])
        topics = http.server._topics  # type: ignore[union-attr]
        topics_from, loop = topics.topics_from, asyncio.get_running_loop()
        iterations, seen = 0, []

        def count() -> None:
            nonlocal iterations
            iterations += 1
            counting[0] = loop.call_soon(count)

        async def recorded(start: str, limit: int) -> Sequence[ListedTopic]:
            seen.append(iterations)
            return await topics_from(start, limit)

        monkeypatch.setattr(topics, "topics_from", recorded)
        counting = [loop.call_soon(count)]
        answer = await http.get("/overview/topics", Authorization=BOB)
        counting[0].cancel()
        assert answer.json == {"topics": [], "next": None}
        assert len(seen) > 4
        assert len(set(seen)) == len(seen), seen


@pytest.mark.parametrize("engine", [OVER_KWIRE], indirect=True)
@in_uvloop
async def test_a_client_sees_the_topics_that_it_may_describe(engine: Engine, tmp_path: Path) -> None:
    assert engine.upstream is not None
    async with engine.http() as http:
        for name in ("a", "b", "c"):
            assert (await http.post(f"/topics/{name}", {})).status == 201
    async with bridge_with_users(tmp_path / "users", engine.upstream) as secured:
        await secured.allow([(Operation.DESCRIBE, ResourceType.TOPIC, "b")])
        listed = (await secured.get("/overview/topics", Authorization=BOB)).json
        assert [one["name"] for one in listed["topics"]] == ["b"]


@pytest.mark.parametrize("engine", [OVER_KWIRE], indirect=True)
@in_uvloop
async def test_a_tenant_sees_the_topics_of_its_scope(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_list, "TOPICS_PER_CHUNK", 2)
    assert engine.upstream is not None
    async with bridge_with_users(tmp_path / "users", engine.upstream, "kwire.http.authentication=basic,key") as http:
        clients = {}
        for scope, names in {"acme": ("a", "b", "c"), "bolt": ("b", "d")}.items():
            key = (await http.post("/keys", {"scope": scope}, Authorization=ADMIN)).json
            clients[scope] = basic(key["id"], key["secret"])
            for name in names:
                assert (await http.post(f"/topics/{name}", {}, Authorization=clients[scope])).status == 201
        assert (await http.post("/topics/unscoped", {}, Authorization=ADMIN)).status == 201
        for scope, shown in (("acme", ["a", "b", "c"]), ("bolt", ["b", "d"])):
            answer = await http.get("/overview/topics", Authorization=clients[scope])
            assert [one["name"] for one in answer.json["topics"]] == shown
            assert b"kws-" not in answer.body
        page = (await http.get("/overview/topics?limit=1&after=a", Authorization=clients["acme"])).json
        assert ([one["name"] for one in page["topics"]], page["next"]) == (["b"], "b")
        listed = [one["name"] for one in (await http.get("/overview/topics", Authorization=ADMIN)).json["topics"]]
        # The cluster may have topics of other tests.
        assert (sum(name.startswith("kws-") for name in listed), "unscoped" in listed) == (5, True)


@over_clusters
@in_uvloop
async def test_changes_that_a_bridge_makes_are_listed_at_once(engine: Engine) -> None:
    async with engine.http() as http:

        async def listed() -> list[str]:
            return [one["name"] for one in (await http.get("/overview/topics")).json["topics"]]

        async def until_listed(*names: str) -> None:
            # A broker may learn of a change a moment later. An old list would be kept for longer.
            async with asyncio.timeout(NAMES_SECONDS - 1):
                while await listed() != list(names):
                    await asyncio.sleep(0.02)

        assert await listed() == []
        assert (await http.put("/rooms/lobby", {})).status == 201
        await until_listed("lobby")
        created = {"topics": [{**NEW_TOPIC, "name": "orders"}], "timeout_ms": 30_000, "validate_only": False}
        assert (await http.post("/kafka/CreateTopics", created)).json["topics"][0]["error_code"] == 0
        await until_listed("lobby", "orders")
        assert (await http.delete("/rooms/lobby")).status == 200
        await until_listed("orders")
        deleted = {"topics": [{"name": "orders"}], "timeout_ms": 30_000}
        assert (await http.post("/kafka/DeleteTopics", deleted)).json["responses"][0]["error_code"] == 0
        await until_listed()
