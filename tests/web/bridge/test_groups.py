"""Reports on the groups of a cluster over HTTP: state, members, lag in records and seconds, metrics; who sees them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kwire.access.acl import Operation, ResourceType
from kwire.bridge import groups as bridge_groups
from kwire.bridge.process import Bridge
from kwire.clock import SystemClock
from kwire.errors import ErrorCode
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.offsets import GroupOffsets
from kwire.streams.remote_groups import lag
from storage.batch.record_batch import Record
from tests.support.bridge_access import bridge_with_users
from tests.support.engines import (
    OVER_APACHE_PARAM,
    OVER_KWIRE,
    Engine,
    append_batch,
    delete_all_groups,
    stream_topic,
)
from tests.support.http import Http
from tests.support.http_access import ADMIN, BOB
from tests.support.node import TEST_TIMEOUT_S, in_uvloop

over_clusters = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)
POLL_S = 0.02


@asynccontextmanager
async def bridge_http(engine: Engine, *settings: str) -> AsyncIterator[Http]:
    assert engine.upstream is not None
    # Other tests of this cluster may have left groups.
    await delete_all_groups(engine.upstream)
    try:
        async with engine.http(*settings) as http:
            yield http
    finally:
        await delete_all_groups(engine.upstream)


def bridge_of(http: Http) -> Bridge:
    server = http.server
    assert isinstance(server, Bridge)
    return server


async def commit(bridge: Bridge, group: str, topic: str, *offsets: tuple[int, int]) -> None:
    """Commit offsets as a Kafka client does, as soon as the coordinator knows the topic."""
    groups = GroupOffsets(Coordinators(bridge._cluster))
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while refused := await groups.commit(group, topic, offsets):
            assert set(refused.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await asyncio.sleep(POLL_S)


async def append(bridge: Bridge, topic: str, partition: int, timestamps_ms: Sequence[int]) -> None:
    stream = (await stream_topic(bridge, topic)).stream(partition)
    await stream.ready()
    for timestamp_ms in timestamps_ms:
        await append_batch(stream, [Record(b"k", b"v", timestamp_ms)])


async def group_in(http: Http, name: str) -> Any:
    answer = await http.get(f"/api/v1/groups/{name}")
    assert answer.status == 200, answer
    return answer.json


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == name
    }


@over_clusters
@in_uvloop
async def test_lag_is_measured_in_records_and_seconds(engine: Engine) -> None:
    async with bridge_http(engine) as http:
        bridge = bridge_of(http)
        await engine.create_topic(bridge, "orders", 4)
        old_ms = SystemClock().now_ms() - 60_000
        await append(bridge, "orders", 0, [old_ms, old_ms + 30_000, old_ms + 50_000])
        await append(bridge, "orders", 1, [old_ms])
        await commit(bridge, "behind", "orders", (0, 1), (1, 1), (2, 0))
        await commit(bridge, "current", "orders", (0, 3))
        found = await group_in(http, "behind")
        assert (found["type"], found["state"], found["member_count"]) == ("classic", "Empty", 0)
        by_partition = {one["partition"]: one for one in found["offsets"]}
        assert [by_partition[index]["lag_offsets"] for index in range(3)] == [2, 0, 0]
        assert [by_partition[index]["high_watermark"] for index in range(3)] == [3, 1, 0]
        assert [by_partition[index]["lag_seconds"] for index in (1, 2)] == [0, 0]
        # The second record is the first unread one.
        assert 29 <= by_partition[0]["lag_seconds"] <= 30 + TEST_TIMEOUT_S
        assert by_partition[0]["commit_timestamp_ms"] is None
        assert (found["lag_offsets"], found["unknown_lag_count"]) == (2, 0)
        listed = (await http.get("/api/v1/groups")).json["groups"]
        assert [(one["group_id"], one["lag_offsets"]) for one in listed] == [("behind", 2), ("current", 0)]
        page = (await http.get("/api/v1/groups?limit=1")).json
        assert (page["next"], len(page["groups"])) == ("behind", 1)
        assert (await http.get("/api/v1/groups/nobody")).status == 404


@over_clusters
@in_uvloop
async def test_a_lag_that_cannot_be_known_is_null(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bridge_http(engine) as http:
        bridge = bridge_of(http)
        await engine.create_topic(bridge, "orders", 2)
        for partition in range(2):
            await append(bridge, "orders", partition, [1_000])
        await commit(bridge, "g", "orders", (0, 0), (1, 0))
        # Only one record is fetched for each report.
        monkeypatch.setattr(lag, "TIMES_PER_ROUND", 1)
        found = await group_in(http, "g")
        assert (found["lag_offsets"], found["unknown_lag_count"]) == (2, 1)
        assert (await group_in(http, "g"))["unknown_lag_count"] == 0
        await bridge._rooms._admin.delete_topic("orders")
        async with asyncio.timeout(TEST_TIMEOUT_S):
            # A cluster may delete the offsets with the topic.
            while any(one["lag_offsets"] is not None for one in (await group_in_or_none(http, "g"))["offsets"]):
                await asyncio.sleep(POLL_S)


async def group_in_or_none(http: Http, name: str) -> Any:
    answer = await http.get(f"/api/v1/groups/{name}")
    return answer.json if answer.status == 200 else {"offsets": []}


@over_clusters
@in_uvloop
async def test_members_and_metrics_of_a_group_with_http_members(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge_http(engine) as http:
        bridge = bridge_of(http)
        assert samples(await metrics(http), "kwire_group_members") == {}
        await engine.create_topic(bridge, "orders", 2)
        await append(bridge, "orders", 1, [1_000, 1_000])
        assert (await http.post("/consumer-groups/billing", {"topic": "orders"})).status == 201
        member = (await http.post("/consumer-groups/billing/join", {})).json["member_id"]
        assignment = f"/consumer-groups/billing/members/{member}/assignment"
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while (await http.get(assignment)).json["partitions"] != [0, 1]:
                await asyncio.sleep(POLL_S)
        commit_body = {"partition_id": 1, "offset": 1, "member_id": member}
        assert (await http.post("/consumer-groups/billing/offsets/commit", commit_body)).status == 200
        # Other groups of the cluster have no series on a bridge.
        await commit(bridge, "others", "orders", (0, 0))
        found = await group_in(http, "billing")
        assert (found["state"], found["member_count"]) == ("Stable", 1)
        (shown,) = found["members"]
        assert shown["member_id"] == member
        assert shown["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
        assert {one["partition"]: one["member_id"] for one in found["offsets"]} == {0: member, 1: member}
        text = await metrics(http)
        assert samples(text, "kwire_bridge_group_members") == {(): 1}
        assert samples(text, "kwire_group_members") == {("billing",): 1}
        assert samples(text, "kwire_group_lag_offsets") == {("billing", "orders", "1"): 1}
        (seconds,) = samples(text, "kwire_group_lag_seconds").values()
        assert seconds > 0
        assert samples(text, "kwire_group_left_out_groups") == {(): 0}
        # Metrics do not wait for a cluster that does not answer.
        monkeypatch.setattr(bridge_groups, "SERIES_SECONDS", 0)
        text = await metrics(http)
        assert samples(text, "kwire_group_lag_offsets") == {}
        assert samples(text, "kwire_group_left_out_groups") == {(): 1}
        text = await metrics(http)
        assert samples(text, "kwire_bridge_group_failures_total")[()] >= 1


async def metrics(http: Http) -> str:
    answer = await http.get("/metrics")
    assert answer.status == 200
    return answer.body.decode()


@over_clusters
@in_uvloop
async def test_groups_are_shown_to_those_who_may_describe_them(engine: Engine, tmp_path: Path) -> None:
    assert engine.upstream is not None
    await delete_all_groups(engine.upstream)
    try:
        async with bridge_with_users(tmp_path / "bridge", engine.upstream) as http:
            bridge = bridge_of(http)
            await engine.create_topic(bridge, "orders", 1)
            for group in ("a", "b", "c"):
                await commit(bridge, group, "orders", (0, 0))
            everything = (await http.get("/api/v1/groups", Authorization=ADMIN)).json["groups"]
            assert [one["group_id"] for one in everything] == ["a", "b", "c"]
            await http.allow([(Operation.DESCRIBE, ResourceType.GROUP, "b")])
            seen = await http.get("/api/v1/groups", Authorization=BOB)
            assert [one["group_id"] for one in seen.json["groups"]] == ["b"]
            assert (await http.get("/api/v1/groups/a", Authorization=BOB)).status == 403
            # The offsets of topics that the client may not describe are left out.
            shown = await http.get("/api/v1/groups/b", Authorization=BOB)
            assert (shown.status, shown.json["offsets"]) == (200, [])
            new_group = {"topic": "orders"}
            assert (await http.post("/consumer-groups/b", new_group, Authorization=BOB)).status == 403
            reads = [(Operation.READ, ResourceType.GROUP, "b"), (Operation.READ, ResourceType.TOPIC, "orders")]
            await http.allow(reads)
            assert (await http.post("/consumer-groups/b", new_group, Authorization=BOB)).status == 201
            assert (await http.post("/consumer-groups/b/join", {}, Authorization=BOB)).status == 200
            assert (await http.post("/consumer-groups/a", new_group, Authorization=BOB)).status == 403
    finally:
        await delete_all_groups(engine.upstream)
