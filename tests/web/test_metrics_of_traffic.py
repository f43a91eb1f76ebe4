"""Metrics of what clients do: traffic of topics, requests of routes, logins and refusals."""

import asyncio
from base64 import b64encode
from pathlib import Path

import aiohttp
import pytest

import kwire
from kwire.broker.admin import disk_space
from kwire.broker.admin.disk_space import DiskSpace
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.record_batch import check_batch
from tests.server.frames import HOST, Client
from tests.support.batches import make_batch
from tests.support.http import Http, http_node
from tests.support.node import QuietNode, in_loop, in_uvloop
from tests.support.quotas import alteration, entry
from tests.support.scraping import Scrape, scrape

WAIT_S = 20.0
FETCH_VERSION = 17


def fetch(topic_id: bytes, offset: int = 0, *, min_bytes: int = 1, max_wait_ms: int = 0) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)]
    return FetchRequest(
        topics=[FetchTopic(topic_id=topic_id, partitions=partitions)],
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        session_epoch=-1,
    )


@in_uvloop
async def test_bytes_and_records_in_and_out_are_counted_by_topic(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, await Client.connect(http.node.kafka_listeners[0].port) as client:
        topic = await http.node._shared.services.topics.get_or_create("t")
        batch = bytes(make_batch(3, timestamp_ms=0))
        sent = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        for _ in range(2):
            await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[sent]), 9)
        for offset in (0, 3, 6):
            await client.ask(fetch(topic.topic_id, offset), FETCH_VERSION)
        first = await scrape(http.node)
        assert first.value("kwire_topic_appended_bytes_total", topic="t") == 2 * len(batch)
        assert first.value("kwire_topic_appended_records_total", topic="t") == 6
        assert first.value("kwire_topic_fetched_bytes_total", topic="t") == 3 * len(batch)
        assert first.value("kwire_topic_fetched_records_total", topic="t") == 9
        assert first.families["kwire_topic_fetched_bytes"].type == "counter"


async def counted_fetches(node: QuietNode) -> tuple[int, int]:
    node.topics.traffic.add_from(node.topics.open_partitions)
    traffic = node.topics.traffic.by_topic["t"]
    return traffic.fetched_bytes, traffic.fetched_records


@in_loop
async def test_a_fetch_that_waits_counts_its_records_once(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        batch = make_batch(2, timestamp_ms=0)
        topic.partitions[0].append(batch, check_batch(batch))
        # The first attempt finds one batch, which is not enough.
        request = fetch(topic.topic_id, min_bytes=len(batch) + 1, max_wait_ms=60_000)
        waiting = asyncio.ensure_future(node.ask(request, FETCH_VERSION))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert await counted_fetches(node) == (0, 0)
        more = make_batch(5, timestamp_ms=0)
        topic.partitions[0].append(more, check_batch(more))
        async with asyncio.timeout(WAIT_S):
            await waiting
        assert await counted_fetches(node) == (len(batch) + len(more), 7)


@in_uvloop
async def test_records_that_a_quota_holds_back_are_not_counted(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, await Client.connect(http.node.kafka_listeners[0].port) as client:
        topic = await http.node._shared.services.topics.get_or_create("t")
        batch = make_batch(2, timestamp_ms=0)
        topic.partitions[0].append(batch, check_batch(batch))
        await client.ask(alteration(entry({"user": None}, {"consumer_byte_rate": 1.0})), 1)
        sent = 0
        async with asyncio.timeout(WAIT_S):  # the first responses have no records, because they are not synced yet
            while not (answer := await client.ask(fetch(topic.topic_id), FETCH_VERSION)).throttle_time_ms:
                sent += bool(answer.responses[0].partitions[0].records)
        assert not answer.responses
        shown = await scrape(http.node)
        assert shown.value("kwire_topic_fetched_bytes_total", topic="t") == sent * len(batch) > 0
        assert shown.value("kwire_topic_fetched_records_total", topic="t") == sent * 2


@in_uvloop
async def test_requests_are_counted_by_the_template_of_their_path(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        for name in ("a", "b"):
            assert (await http.post(f"/rooms/{name}/events", {"event_type": "x", "data": 1})).status == 201
        assert (await http.post("/rooms/a/events", b"{")).status == 400
        for path in ("/no/such/path", "/another"):
            assert (await http.get(path)).status == 404
        shown = await scrape(http.node)
        route = {"method": "POST", "route": "/rooms/{room}/events"}
        assert shown.value("kwire_http_requests_total", **route, status="201") == 2
        assert shown.value("kwire_http_requests_total", **route, status="400") == 1
        assert shown.value("kwire_http_request_seconds_count", **route) == 3
        assert shown.value("kwire_http_requests_total", route="(unknown)", status="404") == 2
        assert shown.labels("kwire_http_requests_total", "method") == {"POST", ""}


@in_uvloop
async def test_a_stream_is_counted_when_it_ends_and_has_no_latency(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await http.post("/rooms/a/events", {"event_type": "x", "data": 1})
        async with http.session.ws_connect(f"{http.url}/rooms/a/subscribe") as socket:
            await socket.receive(timeout=WAIT_S)
            assert "/rooms/{room}/subscribe" not in (await scrape(http.node)).labels(
                "kwire_http_requests_total", "route"
            )
        shown = await _until_route(http, "/rooms/{room}/subscribe")
        assert shown.value("kwire_http_requests_total", route="/rooms/{room}/subscribe", status="101") == 1
        assert "/rooms/{room}/subscribe" not in shown.labels("kwire_http_request_seconds_count", "route")


async def _until_route(http: Http, route: str) -> Scrape:
    async with asyncio.timeout(WAIT_S):
        while route not in (shown := await scrape(http.node)).labels("kwire_http_requests_total", "route"):
            await asyncio.sleep(0)
    return shown


@in_uvloop
async def test_logins_and_refusals_are_counted_by_port(tmp_path: Path) -> None:
    settings = ("kwire.http.authentication=basic", "kwire.http.monitoring.listener=127.0.0.1:0", "kwire.audit=none")
    async with http_node(tmp_path, *settings) as http:
        assert http.node.http is not None
        wrong = "Basic " + b64encode(b"nobody:wrong").decode()
        assert (await http.get("/rooms", Authorization=wrong)).status == 401
        url = f"http://{HOST}:{http.node.http.monitoring_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            shown = Scrape(await answer.text())
        assert shown.value("kwire_access_logins_total", port="http", outcome="failure") == 1
        assert shown.value("kwire_access_logins_total", port="http", outcome="success") == 0
        assert shown.value("kwire_access_logins_total", port="kafka", outcome="failure") == 0
        assert shown.value("kwire_access_denials_total", port="http") == 0
        assert shown.value("kwire_access_users") == 0


@in_uvloop
async def test_the_build_and_the_disk_are_described(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        topic = await http.node._shared.services.topics.get_or_create("t")
        batch = make_batch(timestamp_ms=0)
        topic.partitions[0].append(batch, check_batch(batch))
        shown = await _until_synced(http)
        assert shown.value("kwire_build_info", version=kwire.__version__) == 1
        assert 0 < shown.value("process_start_time_seconds") <= http.node._shared.services.clock.now_ms() / 1000
        (directory,) = shown.labels("kwire_disk_free_bytes", "directory")
        assert directory == str(http.node.config.log.data_dirs[0])
        free, used = shown.value("kwire_disk_free_bytes"), shown.value("kwire_disk_used_bytes")
        assert free + used == shown.value("kwire_disk_size_bytes") > free > 0
        assert shown.value("kwire_storage_sync_round_seconds_sum") > 0


async def _until_synced(http: Http) -> Scrape:
    async with asyncio.timeout(WAIT_S):
        while not (shown := await scrape(http.node)).value("kwire_storage_sync_round_seconds_count"):
            await asyncio.sleep(0)
    return shown


@in_loop
async def test_a_disk_that_does_not_answer_delays_a_scrape_only_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QuietNode(tmp_path) as node:
        space = DiskSpace(node.store, node.lanes.survey)
        known = await space.measure()
        assert [one.free_bytes > 0 for one in known.values()] == [True]
        monkeypatch.setattr(disk_space, "WAIT_SECONDS", 0.01)
        blocked = asyncio.Event()
        loop = asyncio.get_running_loop()
        hanging = asyncio.ensure_future(
            node.lanes.survey.run(lambda: asyncio.run_coroutine_threadsafe(blocked.wait(), loop).result(WAIT_S))
        )
        assert await space.measure() == known
        blocked.set()
        await hanging
