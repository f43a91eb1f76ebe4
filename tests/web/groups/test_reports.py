"""Groups and their lag over HTTP: the admin API, and the series for Prometheus."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from prometheus_client.parser import text_string_to_metric_families

from kwire.broker.admin.lag import Lags
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.coordinator import group_reports
from kwire.coordinator.group.commands import CommitOffsets, OffsetToCommit
from kwire.coordinator.group.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_metadata,
    encode_offset_commit,
)
from kwire.coordinator.group_reports import LocalGroupReports
from kwire.coordinator.internal_topic_log import InternalTopicLog
from kwire.errors import ErrorCode
from kwire.node import Node
from kwire.web.groups import groups
from kwire.web.groups import metrics as group_metrics
from kwire.web.groups.metrics import group_text, measure_groups
from kwire.web.monitoring import text_format
from kwire.web.requests.access import ACCESS, OPEN_ACCESS
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from storage.batch.record_batch import check_batch
from tests.server.frames import HOST
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop, in_uvloop, running_node

LOAD_TIMEOUT_S = 10.0
COMMITTED = {"metadata": "note", "leader_epoch": 0}
Series = dict[tuple[str, ...], float]


class Services:
    """What the resources use of a quiet node."""

    def __init__(self, node: QuietNode) -> None:
        self.reports = reports_of(node)


def reports_of(node: QuietNode) -> LocalGroupReports:
    lags = Lags(node.topics, node.store, node.files, node.cold_reads, node.clock)
    return LocalGroupReports(node.groups, lags, node.topics.catalogue.name_of)


async def load(node: QuietNode) -> None:
    """Have every shard loaded, as a start of the server does."""
    await node.topics.offsets_topic()
    node.groups.load()
    reports = reports_of(node)
    async with asyncio.timeout(LOAD_TIMEOUT_S):
        while reports.loading_count:
            await asyncio.sleep(0)


async def commit(node: QuietNode, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
    answered: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
    asked = []
    for (name, partition), offset in offsets.items():
        topic = node.topics.get(name)
        assert topic is not None
        asked.append(OffsetToCommit(name, partition, offset, 0, "note", topic.topic_id))
    node.groups.submit(CommitOffsets(group_id=group_id, offsets=asked), answered.set_result)
    assert set(await answered) == {ErrorCode.NONE}


async def store_group(node: QuietNode, group_id: str, members: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
    """Write down a stable group of consumers, as if it had been formed before the server's start."""
    await node.topics.offsets_topic()
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=next(iter(members), None),
        current_state_timestamp=node.clock.now_ms(),
        members=[_member(member_id, assigned) for member_id, assigned in members.items()],
    )
    record = encode_group_metadata(group_id, value)
    InternalTopicLog(node.topics, OFFSETS_TOPIC).append(node.groups.shard_of(group_id), [record], node.clock.now_ms())


def _member(member_id: str, assigned: Mapping[str, Sequence[int]]) -> MemberMetadata:
    partitions = [TopicPartition(topic=topic, partitions=list(indexes)) for topic, indexes in assigned.items()]
    assignment = b"\x00\x00" + encode_message(ConsumerProtocolAssignment(assigned_partitions=partitions), 0)
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=None,
        client_id=f"client of {member_id}",
        client_host="/192.0.2.7",
        rebalance_timeout=60_000,
        session_timeout=60_000,
        subscription=b"",
        assignment=assignment,
    )


async def put(node: QuietNode, topic: str, *ages_ms: int, partition: int = 0) -> None:
    found = node.topics.get(topic)
    assert found is not None
    for age_ms in ages_ms:
        batch = make_batch(timestamp_ms=node.clock.now_ms() - age_ms)
        found.partitions[partition].append(batch, check_batch(batch))


async def list_groups(node: QuietNode, query: str = "") -> tuple[int, Any]:
    request = make_mocked_request("GET", f"/api/v1/groups{query}")
    request[ACCESS] = OPEN_ACCESS
    answer = await groups.list_groups(Services(node), request)  # type: ignore[arg-type]
    assert answer.content_type == "application/json"
    return answer.status, json.loads(answer.text or "")


async def describe(node: QuietNode, group_id: str) -> tuple[int, Any]:
    request = make_mocked_request("GET", "/api/v1/groups/x", match_info={"group": group_id})
    request[ACCESS] = OPEN_ACCESS
    answer = await groups.describe_group(Services(node), request)  # type: ignore[arg-type]
    return answer.status, json.loads(answer.text or "")


async def series(reports: LocalGroupReports) -> dict[str, Series]:
    """Values by the name of the series and the values of its labels."""
    text = (await group_text(await measure_groups(reports))).decode()
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        assert family.name not in found
        found[family.name] = {tuple(sample.labels.values()): sample.value for sample in family.samples}
    return found


# --- one group


@in_loop
async def test_a_group_is_described_with_members_offsets_and_lag(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 3)
        await put(node, "t", 30_000, 20_000, 10_000)
        await put(node, "t", 5_000, partition=1)
        await store_group(node, "g", {"a": {"t": [0, 2]}, "b": {"t": [1]}})
        await load(node)
        # A group with members takes commits from them only; what they once committed is in the log.
        for partition, offset in ((0, 1), (1, 1)):
            shard = next(one for one in node.groups.shards() if "g" in one.groups)
            shard.apply(*_commit_record(node, "g", partition, offset))
        status, found = await describe(node, "g")
        assert status == 200
        members, offsets = found.pop("members"), found.pop("offsets")
        assert found == {
            "group_id": "g",
            "type": "classic",
            "state": "Stable",
            "member_count": 2,
            "left_out_member_count": 0,
            "offset_count": 2,
            "left_out_offset_count": 0,
            "unknown_lag_count": 0,
            "lag_offsets": 2,
            "lag_seconds": 20.0,
        }
        common = {"client_host": "/192.0.2.7", "group_instance_id": None}
        assert members == [
            {
                "member_id": "a",
                "client_id": "client of a",
                "assignment": [{"topic": "t", "partitions": [0, 2]}],
                **common,
            },
            {"member_id": "b", "client_id": "client of b", "assignment": [{"topic": "t", "partitions": [1]}], **common},
        ]
        committed = {**COMMITTED, "topic": "t", "commit_timestamp_ms": node.clock.now_ms(), "log_start_offset": 0}
        assert offsets[:2] == [
            {
                **committed,
                "partition": 0,
                "member_id": "a",
                "committed_offset": 1,
                "high_watermark": 3,
                "lag_offsets": 2,
                "lag_seconds": 20.0,
            },
            {
                **committed,
                "partition": 1,
                "member_id": "b",
                "committed_offset": 1,
                "high_watermark": 1,
                "lag_offsets": 0,
                "lag_seconds": 0.0,
            },
        ]
        # Read by a member that has not committed anything there yet.
        assert offsets[2:] == [dict.fromkeys(offsets[0]) | {"topic": "t", "partition": 2, "member_id": "a"}]


def _commit_record(node: QuietNode, group_id: str, partition: int, offset: int) -> tuple[bytes, bytes | None]:
    topic = node.topics.get("t")
    assert topic is not None
    key = OffsetCommitKey(group=group_id, topic="t", partition=partition)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=0,
        metadata="note",
        commit_timestamp=node.clock.now_ms(),
        expire_timestamp=-1,
        topic_id=topic.topic_id,
    )
    return encode_offset_commit(key, value)


@in_loop
async def test_a_group_of_offsets_only_is_empty(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await load(node)
        await commit(node, "g", {("t", 0): 0})
        _, found = await describe(node, "g")
        assert (found["type"], found["state"], found["members"]) == ("classic", "Empty", [])
        assert [one["member_id"] for one in found["offsets"]] == [None]


@in_loop
async def test_an_unknown_group_is_not_found(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await load(node)
        status, found = await describe(node, "nobody")
        assert status == 404
        assert found["error"] == {"code": "GROUP_ID_NOT_FOUND", "message": "group nobody does not exist"}


@in_loop
async def test_until_all_groups_are_loaded_nobody_says_which_there_are(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        status, found = await list_groups(node)
        assert status == 503
        assert found["error"]["code"] == "COORDINATOR_LOAD_IN_PROGRESS"


@in_loop
async def test_one_group_is_described_as_soon_as_its_shard_is_loaded(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await store_group(node, "g", {"a": {"t": [0]}})
        status, found = await describe(node, "g")
        assert (status, found["state"], found["member_count"]) == (200, "Stable", 1)
        assert (await describe(node, "nobody"))[0] == 404


@in_loop
async def test_a_coordinator_that_has_stopped_knows_nothing(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await load(node)
        node.groups.close()
        status, found = await describe(node, "g")
        assert status == 503
        assert found["error"]["code"] == "NOT_COORDINATOR"


@in_loop
async def test_offsets_in_a_topic_that_is_gone_have_no_lag(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        await put(node, "t", 1_000)
        await load(node)
        await commit(node, "g", {("t", 0): 0})
        await node.topics.delete(topic)
        _, found = await describe(node, "g")
        for one in found["offsets"]:
            assert (one["high_watermark"], one["lag_offsets"], one["lag_seconds"]) == (None, None, None)
        reports = reports_of(node)
        assert "kwire_group_lag_offsets" not in await series(reports)


@in_loop
async def test_an_answer_has_so_many_offsets_at_most_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "OFFSETS_MAX", 3)
    monkeypatch.setattr(groups, "ELEMENTS_PER_CHUNK", 2)
    with QuietNode(tmp_path) as node:
        await node.create("t", 5)
        await load(node)
        await commit(node, "g", {("t", index): 0 for index in range(5)})
        _, found = await describe(node, "g")
        assert [one["partition"] for one in found["offsets"]] == [0, 1, 2]
        assert (found["offset_count"], found["left_out_offset_count"]) == (5, 2)


# --- all groups


@in_loop
async def test_all_groups_are_listed_in_the_order_of_their_ids(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await put(node, "t", 9_000, 4_000)
        await store_group(node, "members", {"a": {"t": [0]}})
        await load(node)
        await commit(node, "late", {("t", 0): 0})
        await commit(node, "done", {("t", 0): 2})
        status, found = await list_groups(node)
        assert status == 200
        assert found["next"] is None
        shown = ("group_id", "type", "state", "member_count", "offset_count", "lag_offsets", "lag_seconds")
        assert [tuple(group[key] for key in shown) for group in found["groups"]] == [
            ("done", "classic", "Empty", 0, 1, 0, 0.0),
            ("late", "classic", "Empty", 0, 1, 2, 9.0),
            ("members", "classic", "Stable", 1, 0, 0, None),
        ]


@in_loop
async def test_a_node_without_groups_has_an_empty_list(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await load(node)
        assert await list_groups(node) == (200, {"next": None, "groups": []})


@in_loop
async def test_pages_follow_each_other_without_gap_or_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_reports, "GROUPS_PER_CHUNK", 2)
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await load(node)
        names = [f"g{number:02}" for number in range(11)]
        for name in reversed(names):
            await commit(node, name, {("t", 0): 0})
        for limit in (1, 4, 11, 12):
            seen: list[str] = []
            after: str | None = None
            while True:
                query = f"?limit={limit}" + (f"&after={after}" if after is not None else "")
                _, page = await list_groups(node, query)
                assert 1 <= len(page["groups"]) <= limit
                seen += [group["group_id"] for group in page["groups"]]
                after = page["next"]
                if after is None:
                    break
            assert seen == names


@in_loop
async def test_a_page_ends_early_when_its_groups_have_many_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "OFFSETS_MAX", 5)
    with QuietNode(tmp_path) as node:
        await node.create("t", 9)
        await load(node)
        for name, count in (("a", 3), ("b", 3), ("c", 9), ("d", 1)):
            await commit(node, name, {("t", index): 0 for index in range(count)})
        pages = []
        after: str | None = ""
        while after is not None:
            _, page = await list_groups(node, f"?after={after}")
            pages.append([(group["group_id"], group["left_out_offset_count"]) for group in page["groups"]])
            after = page["next"]
        assert pages == [[("a", 0)], [("b", 0)], [("c", 4)], [("d", 0)]]


@in_loop
async def test_a_limit_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await load(node)
        for limit in ("0", "-1", "many", str(groups.PAGE_GROUPS_MAX + 1)):
            status, found = await list_groups(node, f"?limit={limit}")
            assert status == 400
            assert found["error"]["code"] == "INVALID_REQUEST"


# --- Prometheus


@in_loop
async def test_lag_has_series_by_group_topic_and_partition(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t", 2)
        await put(node, "t", 9_000, 4_000)
        await store_group(node, "members", {"a": {"t": [0]}, "b": {"t": [1]}})
        await load(node)
        await commit(node, "g", {("t", 0): 1, ("t", 1): 0})
        found = await series(reports_of(node))
        assert found == {
            "kwire_coordinator_groups": {("classic", "Empty"): 1, ("classic", "Stable"): 1},
            "kwire_coordinator_loading_shards": {(): 0},
            "kwire_group_members": {("members",): 2, ("g",): 0},
            "kwire_group_lag_offsets": {("g", "t", "0"): 1, ("g", "t", "1"): 0},
            "kwire_group_lag_seconds": {("g", "t", "0"): 4.0, ("g", "t", "1"): 0},
            "kwire_group_left_out_groups": {(): 0},
            "kwire_group_lag_left_out_offsets": {(): 0},
            "kwire_group_lag_unknown_offsets": {(): 0},
        }


@in_loop
async def test_series_vanish_with_the_group(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await load(node)
        for group_id in ("kept", "doomed"):
            await commit(node, group_id, {("t", 0): 0})
        reports = reports_of(node)
        assert (await series(reports))["kwire_group_members"].keys() == {("kept",), ("doomed",)}
        shard = next(one for one in node.groups.shards() if one.offsets.has_any("doomed"))
        shard.apply(*encode_offset_commit(OffsetCommitKey(group="doomed", topic="t", partition=0), None))
        found = await series(reports)
        assert found["kwire_group_members"].keys() == {("kept",)}
        assert (
            found["kwire_group_lag_offsets"].keys() == found["kwire_group_lag_seconds"].keys() == {("kept", "t", "0")}
        )
        assert reports.with_series.keys() == {"kept"}


@in_loop
async def test_group_names_are_escaped(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await load(node)
        name = 'a "quoted"\\ name\nof two lines {x="y"} é'
        await commit(node, name, {("t", 0): 0})
        found = await series(reports_of(node))
        assert found["kwire_group_lag_offsets"] == {(name, "t", "0"): 0}


@in_loop
async def test_groups_beyond_the_bound_are_counted_and_series_stay_with_those_that_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_metrics, "GROUP_SERIES_MAX", 2)
    monkeypatch.setattr(text_format, "SAMPLES_PER_CHUNK", 1)
    with QuietNode(tmp_path) as node:
        await node.create("t", 2)
        await load(node)
        reports = reports_of(node)
        for number in range(4):
            await commit(node, f"g{number}", {("t", 0): 0, ("t", 1): 0})
            found = await series(reports)
            if number == 1:
                first = found["kwire_group_members"].keys()
        assert found["kwire_group_members"].keys() == first == {("g0",), ("g1",)}
        assert found["kwire_group_left_out_groups"] == {(): 2}
        assert found["kwire_group_lag_left_out_offsets"] == {(): 4}
        assert len(found["kwire_group_lag_offsets"]) == 4


@in_loop
async def test_groups_with_members_have_series_before_idle_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_metrics, "GROUP_SERIES_MAX", 1)
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await load(node)
        reports = reports_of(node)
        await commit(node, "idle", {("t", 0): 0})
        assert (await series(reports))["kwire_group_members"].keys() == {("idle",)}
        await store_group(node, "active", {"a": {"t": [0]}})
        node.restart()
        await load(node)
        again = reports_of(node)
        again.with_series = reports.with_series
        assert (await series(again))["kwire_group_members"].keys() == {("active",)}


@in_loop
async def test_partitions_beyond_the_bound_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metrics, "LAG_SERIES_MAX", 3)
    with QuietNode(tmp_path) as node:
        await node.create("t", 5)
        await load(node)
        await commit(node, "g", {("t", index): 0 for index in range(5)})
        found = await series(reports_of(node))
        assert len(found["kwire_group_lag_offsets"]) == len(found["kwire_group_lag_seconds"]) == 3
        assert found["kwire_group_lag_left_out_offsets"] == {(): 2}


@in_loop
async def test_a_name_that_is_too_long_for_a_label_is_left_out(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await load(node)
        await commit(node, "g" * (group_metrics.GROUP_NAME_CHARS_MAX + 1), {("t", 0): 0})
        found = await series(reports_of(node))
        assert "kwire_group_members" not in found
        assert found["kwire_group_left_out_groups"] == found["kwire_group_lag_left_out_offsets"] == {(): 1}


@in_loop
async def test_what_is_not_known_is_counted(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        partition = await node.create_partition("t")
        batch = make_batch(timestamp_ms=-1)
        partition.append(batch, check_batch(batch))
        await load(node)
        await commit(node, "g", {("t", 0): 0})
        found = await series(reports_of(node))
        assert found["kwire_group_lag_offsets"] == {("g", "t", "0"): 1}
        assert "kwire_group_lag_seconds" not in found
        assert found["kwire_group_lag_unknown_offsets"] == {(): 1}


@in_loop
async def test_lag_is_known_again_after_a_restart(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await put(node, "t", 9_000, 4_000)
        await load(node)
        await commit(node, "g", {("t", 0): 1})
        node.restart()
        await load(node)
        found = await series(reports_of(node))
        assert found["kwire_group_lag_offsets"] == {("g", "t", "0"): 1}
        assert found["kwire_group_lag_seconds"] == {("g", "t", "0"): 4.0}


# --- through the door


async def get(node: Node, path: str) -> tuple[int, Any]:
    assert node.http is not None
    url = f"http://{HOST}:{node.http.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, json.loads(await answer.text())


@in_uvloop
async def test_groups_are_loaded_and_found_by_any_name(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        services = node._shared.services
        await services.topics.offsets_topic()
        topic = await services.topics.get_or_create("t")
        answered: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        offset = OffsetToCommit("t", 0, 0, topic_id=topic.topic_id)
        services.groups.submit(CommitOffsets(group_id="a/b c?é", offsets=[offset]), answered.set_result)
        assert await answered == [ErrorCode.NONE]
    async with running_node(tmp_path) as node:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            while (await get(node, "/api/v1/groups"))[0] == 503:
                pass
        status, found = await get(node, "/api/v1/groups")
        assert (status, [group["group_id"] for group in found["groups"]]) == (200, ["a/b c?é"])
        status, found = await get(node, "/api/v1/groups/a%2Fb%20c%3F%C3%A9")
        assert (status, found["group_id"]) == (200, "a/b c?é")
