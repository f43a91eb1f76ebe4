"""GET /overview and GET /overview/topics of a running node."""

import asyncio
from pathlib import Path

import pytest

from kwire.web.console import sampler, topic_list
from tests.support.http import Http, http_node
from tests.support.node import in_uvloop

WAIT_S = 20.0
RECORDS = "application/vnd.kafka.json.v2+json"
EVENT = {"event_type": "message", "data": 1}


async def until_sampled(http: Http) -> dict[str, object]:
    async with asyncio.timeout(WAIT_S):
        while (overview := (await http.get("/overview")).json)["now"] is None:
            await asyncio.sleep(0.02)
    found: dict[str, object] = overview
    return found


@in_uvloop
async def test_the_overview_counts_and_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "INTERVAL_MS", 50)
    async with http_node(tmp_path) as http:
        assert (await http.post("/topics/orders", {"num_partitions": 3})).status == 201
        assert (await http.post("/rooms/lobby/events", EVENT)).status == 201
        overview = await until_sampled(http)
        assert (overview["topics"], overview["partitions"], overview["rooms"]) == (2, 4, 1)
        assert overview["warnings"] == []
        assert overview["is_ready"] is True
        # The first request for a coordinator creates its topic, which `kwire topic list` does not show.
        coordinator = {"key_type": 0, "coordinator_keys": ["billing"]}
        assert (await http.post("/kafka/FindCoordinator", coordinator)).status == 200
        for path in ("/overview", "/admin/node"):
            counted = (await http.get(path)).json
            assert (counted["topics"], counted["partitions"], counted["internal_topics"]) == (2, 4, 1)
        # Records that are appended appear in a later sample.
        await http.post("/topics/orders", {"records": [{"value": number} for number in range(9)]}, Content_Type=RECORDS)
        appended = 0.0
        async with asyncio.timeout(WAIT_S):
            while not appended:
                samples = (await http.get("/overview")).json["samples"]
                appended = max(samples["appended_records"])
        assert min(samples["memory_bytes"]) > 0
        assert max(samples["http_requests"]) > 0
        newest = samples["time_ms"][-1]
        later = (await http.get(f"/overview?after={newest}")).json["samples"]["time_ms"]
        assert all(one > newest for one in later)
        assert (await http.get("/overview?before=1")).status == 400


@in_uvloop
async def test_disk_and_groups_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "INTERVAL_MS", 50)
    async with http_node(tmp_path) as http:
        async with asyncio.timeout(WAIT_S):
            while True:
                overview = (await http.get("/overview")).json
                if overview["now"] is not None and overview["now"]["lag_records"] is not None:
                    break
        assert overview["groups"] == 0
        assert overview["now"]["disk_free_bytes"] > 0
        assert overview["now"]["disk_used_bytes"] > 0


@in_uvloop
async def test_topics_are_listed_with_kind_size_and_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_list, "TOPICS_PER_CHUNK", 2)
    async with http_node(tmp_path) as http:
        for name, configs in (
            ("a", {"retention.ms": "-1"}),
            ("b", {"cleanup.policy": "compact"}),
            ("c", {"cleanup.policy": "compact,delete", "retention.ms": "1000000"}),
        ):
            assert (await http.post(f"/topics/{name}", {"num_partitions": 2, "configs": configs})).status == 201
        await http.post("/topics/a", {"records": [{"value": "x" * 100}]}, Content_Type=RECORDS)
        assert (await http.post("/rooms/lobby/events", EVENT)).status == 201
        schemas = [{"eventType": "made", "type": "object"}]
        assert (await http.post("/topics", {"name": "stored", "schemas": schemas})).status == 201
        answer = (await http.get("/overview/topics")).json
        found = {one["name"]: one for one in answer["topics"]}
        assert list(found) == sorted(found)
        assert answer["next"] is None
        assert {name: one["kind"] for name, one in found.items() if not name.startswith("__")} == {
            "a": "topic",
            "b": "topic",
            "c": "topic",
            "lobby": "room",
            "stored": "events",
        }
        assert {one["kind"] for name, one in found.items() if name.startswith("__")} <= {"internal"}
        assert (found["a"]["partitions"], found["a"]["retention_ms"]) == (2, -1)
        assert found["a"]["size_bytes"] > 100
        assert (found["b"]["cleanup_policy"], found["b"]["retention_ms"]) == ("compact", None)
        assert (found["c"]["cleanup_policy"], found["c"]["retention_ms"]) == ("compact,delete", 1000000)
        assert found["a"]["created_ms"] > 0

        # The pages together are the list.
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await http.get(f"/overview/topics?limit=2&after={after}")).json
            assert len(page["topics"]) <= 2
            names += [one["name"] for one in page["topics"]]
            after = page["next"]
        assert names == list(found)
