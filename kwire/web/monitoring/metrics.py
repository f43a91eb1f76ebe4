"""GET /metrics: all metrics of this node in Prometheus' text format. Each metric is declared in this module or in a
module that this module imports.

Each request creates the metrics again from plain counters, so the series of deleted topics disappear. The number of
series is bounded: names of APIs and routes are fixed sets, topics and groups have maxima.
"""

from collections.abc import Iterator, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from kwire.broker.admin.disk_space import VolumeSpace
from kwire.web.db_events.metrics import db_event_families
from kwire.web.events.file_metrics import event_file_families
from kwire.web.groups.metrics import group_text, measure_groups
from kwire.web.monitoring.access_metrics import access_families
from kwire.web.monitoring.former_names import with_former_names
from kwire.web.monitoring.http_metrics import http_families
from kwire.web.monitoring.kafka_exporter import BrokerFacts, kafka_exporter_text
from kwire.web.monitoring.process_metrics import build_families, loop_families, process_families
from kwire.web.monitoring.quota_metrics import quota_families
from kwire.web.monitoring.storage_metrics import storage_families
from kwire.web.monitoring.text_format import add_latency
from kwire.web.monitoring.tls_metrics import tls_families
from kwire.web.monitoring.topic_metrics import topic_text
from kwire.web.monitoring.transaction_metrics import transaction_families
from kwire.web.needs import DESCRIBE_CLUSTER
from kwire.web.rooms.metrics import room_families
from kwire.web.route import TEXT, Answer, Route
from kwire.web.services import MonitoringServices
from kwire.web.webhooks.metrics import webhook_families


async def scrape(services: MonitoringServices, request: web.Request) -> web.Response:
    config, storage = services.port.config, services.storage
    await storage.stored_sizes.measure()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(services, await storage.disk_space.measure()))
    sizes, other_bytes = await storage.stored_sizes.by_topic(config.metrics.topics_max)
    groups = await measure_groups(services.reports)
    parts = [generate_latest(registry), await topic_text(storage.topics, sizes, other_bytes), await group_text(groups)]
    if config.metrics.has_kafka_exporter_names:
        broker = BrokerFacts(config.node_id, services.kafka_address())
        parts.append(await kafka_exporter_text(broker, storage.topics.catalogue, sizes, services.lags, groups))
    return web.Response(body=b"".join(parts), headers={"Content-Type": CONTENT_TYPE_LATEST})


class NodeCollector(Collector):
    """Collects all metrics except those of topics and groups. `spaces` is the space of each data directory's volume."""

    def __init__(self, services: MonitoringServices, spaces: Mapping[str, VolumeSpace]) -> None:
        self._services = services
        self._spaces = spaces

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from with_former_names(self._families())

    def _families(self) -> Iterator[Metric]:
        yield from build_families()
        yield from self._requests()
        yield from self._connections()
        yield from http_families(self._services.port)
        yield from tls_families(self._services.tls)
        if self._services.quotas is not None:
            yield from quota_families(self._services.quotas, self._services.port.clock.monotonic())
        yield from self._fetch_sessions()
        yield from storage_families(self._services.storage, self._spaces)
        yield from room_families(self._services.rooms)
        yield from db_event_families(self._services.db_events)
        if self._services.webhook_statistics is not None:
            yield from webhook_families(self._services.webhook_statistics())
        if self._services.event_files is not None:
            yield from event_file_families(self._services.event_files, self._services.port.clock)
        yield from access_families(self._services.audit, self._services.access_counts)
        yield from transaction_families(self._services.transactions, self._services.port.clock)
        yield from loop_families(self._services.loop_metrics)
        yield from process_families(self._services.descriptors)

    def _requests(self) -> Iterator[Metric]:
        metrics = self._services.server_metrics
        requests = CounterMetricFamily("kwire_server_requests", "Requests answered, by API.", labels=["api"])
        seconds = HistogramMetricFamily(
            "kwire_server_request_seconds",
            "Time from the last byte of a request to its answer, waits included.",
            labels=["api"],
        )
        for key, latency in metrics.requests.items():
            if not latency.count:
                continue
            name = metrics.api_names[key]
            requests.add_metric([name], latency.count)
            add_latency(seconds, [name], latency)
        yield requests
        yield seconds
        yield CounterMetricFamily(
            "kwire_server_received_bytes", "Bytes read from Kafka clients.", value=metrics.received_bytes
        )
        yield CounterMetricFamily("kwire_server_sent_bytes", "Bytes sent to Kafka clients.", value=metrics.sent_bytes)

    def _connections(self) -> Iterator[Metric]:
        metrics = self._services.server_metrics
        yield GaugeMetricFamily("kwire_server_connections", "Open Kafka connections.", value=metrics.connections)
        accepted = CounterMetricFamily(
            "kwire_server_connections_opened", "Kafka connections, accepted or refused.", labels=["fate"]
        )
        accepted.add_metric(["accepted"], metrics.connections_accepted)
        accepted.add_metric(["refused"], metrics.connections_refused)
        yield accepted
        closed = CounterMetricFamily(
            "kwire_server_connections_closed", "Kafka connections closed by this node, by reason.", labels=["reason"]
        )
        closed.add_metric(["idle"], metrics.connections_idled)
        closed.add_metric(["failed"], metrics.connections_failed)
        yield closed
        logins = CounterMetricFamily(
            "kwire_server_authentications", "Authentications of Kafka clients with SASL.", labels=["outcome"]
        )
        logins.add_metric(["successful"], metrics.logins)
        logins.add_metric(["failed"], metrics.logins_failed)
        yield logins

    def _fetch_sessions(self) -> Iterator[Metric]:
        sessions = self._services.fetch_sessions
        yield GaugeMetricFamily("kwire_broker_fetch_sessions", "Open fetch sessions.", value=len(sessions))
        yield GaugeMetricFamily(
            "kwire_broker_fetch_session_partitions", "Partitions of all fetch sessions.", value=sessions.partition_count
        )
        yield CounterMetricFamily(
            "kwire_broker_fetch_session_evictions",
            "Fetch sessions evicted to make room for others.",
            value=sessions.eviction_count,
        )


ROUTES: tuple[Route[MonitoringServices], ...] = (
    Route(
        "GET",
        "/metrics",
        scrape,
        summary="All metrics of this node, for Prometheus",
        answers={200: Answer("Prometheus' text format.", {TEXT: str})},
        needs=(DESCRIBE_CLUSTER,),
    ),
)
