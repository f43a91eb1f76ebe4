"""GET /metrics: all metrics of this node in Prometheus' text format. Each metric is declared in this module or in a
module that this module imports.

Each request creates the metric families again from plain counters, so the series of deleted topics disappear. The
number of series is bounded. API names are a fixed set. If there are more than TOPIC_SERIES_MAX topics, only topics that
were used since the start have their own series, at most TOPIC_SERIES_MAX. One further series has the sum of all other
topics.
"""

import os
import resource
from collections.abc import Iterator, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from kwire.metrics import LATENCY_BOUNDS
from kwire.web.db_events.metrics import db_event_families
from kwire.web.events.file_metrics import event_file_families
from kwire.web.groups.metrics import group_text
from kwire.web.monitoring.audit_metrics import audit_families
from kwire.web.monitoring.former_names import with_former_names
from kwire.web.monitoring.http_metrics import http_families
from kwire.web.monitoring.quota_metrics import quota_families
from kwire.web.monitoring.storage_metrics import storage_families
from kwire.web.monitoring.tls_metrics import tls_families
from kwire.web.monitoring.transaction_metrics import transaction_families
from kwire.web.needs import DESCRIBE_CLUSTER
from kwire.web.rooms.metrics import room_families
from kwire.web.route import TEXT, Answer, Route
from kwire.web.services import MonitoringServices
from kwire.web.webhooks.metrics import webhook_families

TOPIC_SERIES_MAX = 1000


async def scrape(services: MonitoringServices, request: web.Request) -> web.Response:
    await services.storage.stored_sizes.measure()
    sizes, others = await services.storage.stored_sizes.by_topic(TOPIC_SERIES_MAX)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(services, sizes, others))
    body = generate_latest(registry) + await group_text(services.reports)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class NodeCollector(Collector):
    """Collects all metrics except those of groups. `sizes` has the size of each topic with its own series.
    `other_bytes` is the total size of all other topics."""

    def __init__(self, services: MonitoringServices, sizes: Mapping[str, int], other_bytes: int) -> None:
        self._services = services
        self._sizes = sizes
        self._other_bytes = other_bytes

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from with_former_names(self._families())

    def _families(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from http_families(self._services.port)
        yield from tls_families(self._services.tls)
        if self._services.quotas is not None:
            yield from quota_families(self._services.quotas, self._services.port.clock.monotonic())
        yield from self._fetch_sessions()
        yield from storage_families(self._services.storage, self._sizes, self._other_bytes)
        yield from room_families(self._services.rooms)
        yield from db_event_families(self._services.db_events)
        if self._services.webhook_statistics is not None:
            yield from webhook_families(self._services.webhook_statistics())
        if self._services.event_files is not None:
            yield from event_file_families(self._services.event_files, self._services.port.clock)
        yield from audit_families(self._services.audit)
        yield from transaction_families(self._services.transactions, self._services.port.clock)
        yield from self._loop()
        yield from self._process()

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
            buckets, total = [], 0
            for bound, count in zip((*map(str, LATENCY_BOUNDS), "+Inf"), latency.counts, strict=True):
                total += count
                buckets.append((bound, total))
            seconds.add_metric([name], buckets, latency.seconds)
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

    def _loop(self) -> Iterator[Metric]:
        metrics = self._services.loop_metrics
        yield GaugeMetricFamily(
            "kwire_loop_stall_seconds_max",
            "The longest time the event loop was blocked by its own work since the start.",
            value=metrics.stall_seconds_max,
        )
        yield CounterMetricFamily("kwire_loop_stalls", "Stalls of the event loop above 50 ms.", value=metrics.stalls)
        yield GaugeMetricFamily(
            "kwire_loop_run_queue_wait_seconds_max",
            "The longest time the event loop waited for a processor between two probes.",
            value=metrics.run_queue_wait_seconds_max,
        )
        yield CounterMetricFamily(
            "kwire_loop_run_queue_wait_seconds",
            "Time the event loop was runnable but had no processor.",
            value=metrics.run_queue_wait_seconds,
        )

    def _open_descriptors(self) -> int:
        try:
            return len(os.listdir("/proc/self/fd"))
        except OSError:  # no file descriptor is free to read the directory
            return self._services.descriptors.limit

    def _descriptors(self) -> Iterator[Metric]:
        descriptors = self._services.descriptors
        yield GaugeMetricFamily("process_max_fds", "File descriptors that may be open.", value=descriptors.limit)
        yield GaugeMetricFamily(
            "kwire_process_reserved_fds",
            "File descriptors reserved for the log; connections cannot use them.",
            value=descriptors.reserved_count,
        )
        refused = CounterMetricFamily(
            "kwire_server_descriptor_refusals",
            "Connections refused because the remaining descriptors are reserved for the log.",
            labels=["kind"],
        )
        for kind, count in descriptors.refused.items():
            refused.add_metric([kind], count)
        yield refused

    def _process(self) -> Iterator[Metric]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield CounterMetricFamily(
            "process_cpu_seconds", "Processor time, user and system.", value=usage.ru_utime + usage.ru_stime
        )
        yield GaugeMetricFamily("process_open_fds", "Open file descriptors.", value=self._open_descriptors())
        yield from self._descriptors()
        try:
            with open("/proc/self/status") as status:
                memory = {one.split(":")[0]: one.split()[1] for one in status if one.startswith(("VmRSS", "RssAnon"))}
        except OSError:  # no file descriptor is free to read the file
            return
        yield GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Memory in use, mapped log pages included.",
            value=int(memory["VmRSS"]) * 1024,
        )
        yield GaugeMetricFamily(
            "kwire_process_anonymous_memory_bytes",
            "Memory in use without mapped files.",
            value=int(memory["RssAnon"]) * 1024,
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
