"""The numbers of a node, read the way Prometheus reads them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kwire.access.audit.queue import AuditQueue
from kwire.access.usage.key_usage import KeyUsage
from kwire.broker.admin.disk_space import DiskSpace
from kwire.broker.admin.lag import Lags
from kwire.broker.fetch.sessions import EVICTION_MS_MIN
from kwire.broker.maintenance.compaction import LogCleaner
from kwire.broker.maintenance.idle_logs import IdleLogs
from kwire.broker.maintenance.retention import Retention
from kwire.broker.maintenance.scrub import Scrub
from kwire.broker.maintenance.services import MaintenanceServices
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.broker.topics.stored_sizes import StoredSizes
from kwire.broker.topics.topics import Topics
from kwire.concurrency.worker_process import WorkerProcess
from kwire.coordinator.group_reports import LocalGroupReports
from kwire.descriptors import Descriptors, current_limit
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.metrics import LATENCY_BOUNDS, HttpMetrics, LoopMetrics, ServerMetrics, StreamMetrics
from kwire.node import Node
from kwire.server.http.stream_connections import StreamConnections
from kwire.streams.events.publishing import Publisher
from kwire.streams.local_commands import LocalRooms
from kwire.streams.rooms.rooms import Rooms
from kwire.streams.subscriptions import Subscriptions
from kwire.web.answers.page_scheduler import PageScheduler
from kwire.web.db_events.event_sessions import EventSessions
from kwire.web.monitoring.former_names import FORMER_NAMES
from kwire.web.monitoring.metrics import NodeCollector
from kwire.web.monitoring.topic_metrics import OTHER_TOPICS, topic_text
from kwire.web.requests.body_checks import BodyChecks
from kwire.web.requests.memory import HttpMemory
from kwire.web.services import (
    AccessCounts,
    DbEventServices,
    MonitoringServices,
    PortServices,
    RoomServices,
    StorageServices,
)
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.delete_topics import DeleteTopicsRequest
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from storage.batch.record_batch import check_batch
from tests.server.frames import Client
from tests.support.batches import make_batch, run_now
from tests.support.node import QuietNode, in_loop, in_uvloop, running_node
from tests.support.scraping import scrape
from tests.support.transactional_requests import sent, started

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@asynccontextmanager
async def node_and_client(directory: Path) -> AsyncIterator[tuple[Node, Client]]:
    async with running_node(directory) as node, await Client.connect(node.kafka_listeners[0].port) as client:
        yield node, client


def topics_of(node: Node) -> Topics:
    return node._shared.services.topics


@in_uvloop
async def test_every_family_has_a_type_and_a_sentence(tmp_path: Path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        await client.ask(API_VERSIONS, 3)
        await topics_of(node).get_or_create("t")
        answer = await scrape(node)
        for family in answer.families.values():
            assert family.type in ("counter", "gauge", "histogram"), family.name
            assert family.documentation.endswith("."), family.name
            assert family.samples, family.name
            assert family.name.startswith(("kwire_", "process_"))


@in_uvloop
async def test_renamed_metrics_are_exported_under_their_former_names_too(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        told = await scrape(node)
    for former, name in FORMER_NAMES.items():
        ours, old = told.families[name], told.families[former]
        assert old.type == ours.type
        assert name in old.documentation
        assert [one.value for one in old.samples] == [one.value for one in ours.samples]
        assert [one.name for one in old.samples] == [one.name.replace(name, former) for one in ours.samples]
    assert told.value("kwire_relocations_finished_total") == told.value("kwire_moves_finished_total") == 0
    assert told.value("kwire_relocations_pending") == told.value("kwire_moves_pending") == 0
    assert told.value("kwire_rooms_delivered_batches_total") == told.value("kwire_rooms_portions_total")
    assert told.value("kwire_rooms_lag_actions_total") == told.value("kwire_rooms_lag_cuts_total")


@in_uvloop
async def test_requests_are_counted_by_api(tmp_path: Path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        for _ in range(3):
            await client.ask(API_VERSIONS, 3)
        answer = await scrape(node)
        assert answer.value("kwire_server_requests_total", api="ApiVersions") == 3
        assert answer.labels("kwire_server_requests_total", "api") == {"ApiVersions"}
        assert answer.value("kwire_server_request_seconds_count", api="ApiVersions") == 3
        assert answer.value("kwire_server_request_seconds_bucket", api="ApiVersions", le="+Inf") == 3
        assert answer.value("kwire_server_request_seconds_sum", api="ApiVersions") > 0
        assert answer.value("kwire_server_received_bytes_total") > 0
        assert answer.value("kwire_server_sent_bytes_total") > 0


@in_uvloop
async def test_connections_are_counted(tmp_path: Path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        await client.ask(API_VERSIONS, 3)
        async with await Client.connect(node.kafka_listeners[0].port) as rude:
            rude.writer.write(b"\xff\xff\xff\xff")
            await rude.ended()
        answer = await scrape(node)
        assert answer.value("kwire_server_connections") == 1
        assert answer.value("kwire_server_connections_opened_total", fate="accepted") == 2
        assert answer.value("kwire_server_connections_opened_total", fate="refused") == 0
        assert answer.value("kwire_server_connections_closed_total", reason="failed") == 1
        assert answer.value("kwire_server_connections_closed_total", reason="idle") == 0


@in_uvloop
async def test_series_of_a_deleted_topic_vanish(tmp_path: Path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        for name in ("kept", "doomed"):
            topic = await topics_of(node).get_or_create(name)
            batch = make_batch(timestamp_ms=0)
            size = len(batch)
            topic.partitions[0].append(batch, check_batch(batch))
        before = await scrape(node)
        assert before.labels("kwire_storage_log_size_bytes", "topic") == {"kept", "doomed"}
        assert before.value("kwire_storage_log_size_bytes", topic="doomed") == size
        assert before.value("kwire_broker_topics") == 2
        assert before.value("kwire_storage_segments") == 2
        answer = await client.ask(DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == 0
        after = await scrape(node)
        assert after.labels("kwire_storage_log_size_bytes", "topic") == {"kept"}
        assert after.value("kwire_broker_topics") == 1
        assert after.value("kwire_broker_partitions") == 1
        assert after.value("kwire_storage_segments") == 1


@in_uvloop
async def test_machine_and_loop_are_described(tmp_path: Path) -> None:
    async with node_and_client(tmp_path) as (node, _):
        answer = await scrape(node)
        assert answer.value("process_resident_memory_bytes") > 1_000_000
        anonymous = answer.value("kwire_process_anonymous_memory_bytes")
        assert 1_000_000 < anonymous <= answer.value("process_resident_memory_bytes")
        assert answer.value("process_open_fds") > 3
        assert answer.value("process_cpu_seconds_total") > 0
        assert answer.value("kwire_loop_stalls_total") >= 0
        assert answer.value("kwire_loop_run_queue_wait_seconds_total") >= 0
        assert answer.value("kwire_storage_cold_reads_total") == 0


@in_uvloop
async def test_sizes_are_known_after_a_restart_before_anybody_opened_a_log(tmp_path: Path) -> None:
    sizes = []
    async with running_node(tmp_path) as node:
        topic = await topics_of(node).get_or_create("t")
        await topics_of(node).create_partitions(topic, 3)
        for partition in topic.partitions[:2]:
            batch = make_batch(timestamp_ms=0)
            sizes.append(len(batch))
            partition.append(batch, check_batch(batch))
    async with running_node(tmp_path) as node:
        again = topics_of(node).get("t")
        assert again is not None
        for _ in range(2):
            answer = await scrape(node)
            assert answer.value("kwire_storage_log_size_bytes", topic="t") == sum(sizes)
        assert not any(partition.is_open for partition in again.partitions)
        batch = make_batch(timestamp_ms=0)
        sizes.append(len(batch))
        again.partitions[0].append(batch, check_batch(batch))
        assert (await scrape(node)).value("kwire_storage_log_size_bytes", topic="t") == sum(sizes)


def sizes_of(node: QuietNode) -> StoredSizes:
    return StoredSizes(node.topics, node.store, node.files)


async def collected(node: QuietNode, server_metrics: ServerMetrics | None = None) -> dict[str, Metric]:
    server_metrics = server_metrics or ServerMetrics({key: handler.api.name for key, handler in HANDLERS.items()})
    stored = sizes_of(node)
    maintenance, disk_space = maintenance_of(node), DiskSpace(node.store, node.lanes.survey)
    sessions = node.services.fetch_sessions
    lags = Lags(node.topics, node.store, node.files, node.cold_reads, node.clock)
    loop, stream_metrics = asyncio.get_running_loop(), StreamMetrics()
    subscriptions = Subscriptions(node.clock, loop.call_soon, loop.call_later, node.config.rooms)
    rooms = Rooms(node.topics, node.config.rooms, subscriptions)
    web, network = node.config.web, node.config.network
    streams = StreamConnections(stream_metrics, network.send_timeout_ms, web.socket_idle_timeout_ms)
    port = PortServices(
        config=node.config,
        clock=node.clock,
        quotas=node.services.quotas,
        memory=HttpMemory(web.memory_bytes_max, web.memory_wait_ms),
        page_scheduler=PageScheduler(),
        body_checks=BodyChecks(),
        serve_stream=streams,
        stream_metrics=stream_metrics,
        http_metrics=HttpMetrics(),
    )
    room_services = RoomServices(
        port, rooms, LocalRooms(rooms), Publisher(node.clock, loop.call_soon), subscriptions=subscriptions
    )
    usage = KeyUsage(node.metastore, node.clock, node.services.keys, 1)
    services = MonitoringServices(
        port=port,
        storage=StorageServices(
            topics=node.topics,
            stored_sizes=stored,
            maintenance=maintenance,
            disk_space=disk_space,
            cold_reads=lambda: 0,
            offline_directories=lambda: 0,
        ),
        rooms=room_services,
        db_events=DbEventServices(port, room_services, usage, usage.slots, EventSessions(1)),
        reports=LocalGroupReports(node.groups, lags, node.topics.catalogue.name_of),
        lags=lags,
        kafka_address=lambda: "localhost:9092",
        is_ready=lambda: True,
        server_metrics=server_metrics,
        loop_metrics=LoopMetrics(),
        fetch_sessions=sessions,
        transactions=node.transactions,
        descriptors=Descriptors(current_limit(), node.config.log.open_max),
        audit=AuditQueue(node.config.audit, node.clock),
        access_counts=AccessCounts.of((), node.services.keys, node.services.authorizer),
        webhook_statistics=None,
        event_files=None,
    )
    try:
        collector = NodeCollector(services, await disk_space.measure())
        text = await topic_text(node.topics, *await stored.by_topic(node.config.metrics.topics_max))
        families = (*collector.collect(), *text_string_to_metric_families(text.decode()))
        return {family.name: family for family in families}
    finally:
        await maintenance.close()


def maintenance_of(node: QuietNode) -> MaintenanceServices:
    config, worker = node.config.log, WorkerProcess()
    return MaintenanceServices(
        syncs=SyncRounds(node.files, node.store.data_dirs, node.lanes.sync),
        idle_logs=IdleLogs(node.topics, node.clock, config.producer_id_expiration_ms, config.open_max),
        retention=Retention(
            node.topics, node.clock, run_now, config.retention_check_interval_ms, node.store, node.files
        ),
        log_cleaner=LogCleaner(node.topics, node.clock, worker, config, node.files),
        scrub=Scrub(node.topics, node.clock, worker, config),
        relocations=node.relocations,
        worker=worker,
    )


@in_loop
async def test_fetch_sessions_are_counted(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "max.incremental.fetch.session.cache.slots=1") as node:
        topic = await node.create("t", 3)
        partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(3)]
        asked = FetchTopic(topic_id=topic.topic_id, partitions=partitions)
        request = FetchRequest(topics=[asked], max_wait_ms=0, min_bytes=1, session_epoch=0)
        assert (await node.ask(request, 17)).session_id > 0
        node.clock.advance(EVICTION_MS_MIN + 1)
        asked.partitions.pop()
        assert (await node.ask(request, 17)).session_id > 0
        families = await collected(node)
        values = [
            families[f"kwire_broker_fetch_session{name}"].samples[0].value
            for name in ("s", "_partitions", "_evictions")
        ]
        assert values == [1, 2, 1]


@in_loop
async def test_disk_lanes_are_counted_each_by_its_name(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        await node.create("t")
        await node.lanes.survey.run(lambda: None)
        async with asyncio.timeout(20):  # a lane counts a job after it has reported the outcome
            while not node.lanes.metadata.jobs:
                await asyncio.sleep(0)
        families = await collected(node)
        values = {
            name: {sample.labels["lane"]: sample.value for sample in families[f"kwire_storage_lane_{name}"].samples}
            for name in ("queue_length", "jobs", "refusals", "seconds_max")
        }
        assert all(list(lanes) == [lane.name for lane in node.lanes.all] for lanes in values.values())
        assert (values["jobs"]["metadata"], values["jobs"]["read"]) == (1, 0)
        assert values["seconds_max"]["metadata"] > 0
        assert sum(values["queue_length"].values()) == sum(values["refusals"].values()) == 0


@in_loop
async def test_topics_beyond_the_bound_are_summed_up(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "kwire.metrics.topics.max=2") as node:
        sizes = []
        await node.create("idle")
        for number in range(5):
            partition = await node.create_partition(f"t{number}")
            batch = make_batch(number + 1, timestamp_ms=0)
            sizes.append(len(batch))
            partition.append(batch, check_batch(batch))
        family = (await collected(node))["kwire_storage_log_size_bytes"]
        assert {sample.labels["topic"]: sample.value for sample in family.samples} == {
            "t0": sizes[0],
            "t1": sizes[1],
            OTHER_TOPICS: sum(sizes[2:]),
        }


@in_loop
async def test_scrape_opens_no_log(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 3)
        family = (await collected(node))["kwire_storage_log_size_bytes"]
        assert [sample.value for sample in family.samples] == [0]
        assert not any(partition.is_open for partition in topic.partitions)


@in_loop
async def test_buckets_of_a_histogram_add_up(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        server_metrics = ServerMetrics({0: "Produce"})
        latency = server_metrics.requests[0]
        for seconds in (0.0, LATENCY_BOUNDS[0], 0.00003, 0.4, 100.0):
            latency.observe(seconds)
        family = (await collected(node, server_metrics))["kwire_server_request_seconds"]
        buckets = {
            float(sample.labels["le"]): sample.value for sample in family.samples if sample.name.endswith("_bucket")
        }
        assert list(buckets) == [*LATENCY_BOUNDS, float("inf")]
        assert buckets[LATENCY_BOUNDS[0]] == 2
        assert buckets[LATENCY_BOUNDS[1]] == 3
        assert buckets[0.25] == 3
        assert buckets[0.5] == buckets[LATENCY_BOUNDS[-1]] == 4
        assert buckets[float("inf")] == latency.count == 5


@in_loop
async def test_open_transactions_and_the_age_of_the_oldest_are_told(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        for name in ("first", "second"):
            producer = await started(node, name)
            assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
            node.clock.advance(1000)
        await started(node, "idle")
        families = await collected(node)
    told = {
        name.removeprefix("kwire_coordinator_"): families[name].samples[0].value
        for name in (
            "kwire_coordinator_transactional_ids",
            "kwire_coordinator_open_transactions",
            "kwire_coordinator_oldest_transaction_seconds",
        )
    }
    assert told == {"transactional_ids": 3, "open_transactions": 2, "oldest_transaction_seconds": 2.0}
