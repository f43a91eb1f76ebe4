"""GET /metrics: every number of this node in Prometheus' text format. Each metric is declared once, here, in
`storage_metrics.py` or in `group_metrics.py`.

Families are built when asked for, from plain counters, so series of deleted topics vanish by themselves. Labels are
bounded: API names are a fixed set; with more topics than a bound, those in use since the start have series of their
own, up to that bound, and all others are summed up under one name.
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
from kwire.web.events.file_metrics import event_file_families
from kwire.web.groups.metrics import group_text
from kwire.web.http_metrics import http_families
from kwire.web.rooms.metrics import room_families
from kwire.web.route import TEXT, Answer, Route
from kwire.web.services import WebServices
from kwire.web.storage_metrics import storage_families
from kwire.web.transaction_metrics import transaction_families
from kwire.web.webhooks.metrics import webhook_families

TOPIC_SERIES_MAX = 1000


async def scrape(services: WebServices, request: web.Request) -> web.Response:
    await services.stored_sizes.measure()
    sizes, others = await services.stored_sizes.by_topic(TOPIC_SERIES_MAX)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(services, sizes, others))
    body = generate_latest(registry) + await group_text(services.groups)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class NodeCollector(Collector):
    """`sizes` are the bytes of each topic that has a series of its own, `other_bytes` those of all others."""

    def __init__(self, services: WebServices, sizes: Mapping[str, int], other_bytes: int) -> None:
        self._services = services
        self._sizes = sizes
        self._other_bytes = other_bytes

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from http_families(self._services)
        yield from self._fetch_sessions()
        yield from storage_families(self._services, self._sizes, self._other_bytes)
        yield from room_families(self._services)
        yield from webhook_families(self._services)
        yield from event_file_families(self._services)
        yield from transaction_families(self._services)
        yield from self._loop()
        yield from self._process()

    def _requests(self) -> Iterator[Metric]:
        metrics = self._services.server_metrics
        requests = CounterMetricFamily("kwire_server_requests", "Requests answered, by API.", labels=["api"])
        seconds = HistogramMetricFamily(
            "kwire_server_request_seconds", "From a request's last byte to its answer, waits included.", labels=["api"]
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
            "kwire_server_connections_opened", "Kafka connections by what became of them at the door.", labels=["fate"]
        )
        accepted.add_metric(["accepted"], metrics.connections_accepted)
        accepted.add_metric(["refused"], metrics.connections_refused)
        yield accepted
        closed = CounterMetricFamily(
            "kwire_server_connections_closed", "Connections this node ended.", labels=["reason"]
        )
        closed.add_metric(["idle"], metrics.connections_idled)
        closed.add_metric(["failed"], metrics.connections_failed)
        yield closed

    def _fetch_sessions(self) -> Iterator[Metric]:
        sessions = self._services.fetch_sessions
        yield GaugeMetricFamily(
            "kwire_broker_fetch_sessions", "Readers that are remembered between two fetches.", value=len(sessions)
        )
        yield GaugeMetricFamily(
            "kwire_broker_fetch_session_partitions", "Partitions of all fetch sessions.", value=sessions.partition_count
        )
        yield CounterMetricFamily(
            "kwire_broker_fetch_session_evictions",
            "Fetch sessions that gave way to others.",
            value=sessions.eviction_count,
        )

    def _loop(self) -> Iterator[Metric]:
        metrics = self._services.loop_metrics
        yield GaugeMetricFamily(
            "kwire_loop_stall_seconds_max",
            "The longest the event loop was held up by its own work since the start.",
            value=metrics.stall_seconds_max,
        )
        yield CounterMetricFamily("kwire_loop_stalls", "Stalls of the event loop above 50 ms.", value=metrics.stalls)
        yield GaugeMetricFamily(
            "kwire_loop_run_queue_wait_seconds_max",
            "The longest the event loop waited for a processor between two looks of its watch.",
            value=metrics.run_queue_wait_seconds_max,
        )
        yield CounterMetricFamily(
            "kwire_loop_run_queue_wait_seconds",
            "Time the event loop was ready but had no processor.",
            value=metrics.run_queue_wait_seconds,
        )

    def _open_descriptors(self) -> int:
        try:
            return len(os.listdir("/proc/self/fd"))
        except OSError:  # no descriptor is left to read it with
            return self._services.descriptors.limit

    def _descriptors(self) -> Iterator[Metric]:
        descriptors = self._services.descriptors
        yield GaugeMetricFamily("process_max_fds", "File descriptors that may be open.", value=descriptors.limit)
        yield GaugeMetricFamily(
            "kwire_process_reserved_fds",
            "File descriptors that connections leave to the log.",
            value=descriptors.reserved_count,
        )
        refused = CounterMetricFamily(
            "kwire_server_descriptor_refusals",
            "Connections that were refused because the descriptors left are kept for the log.",
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
        except OSError:  # no descriptor is left to read it with
            return
        yield GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Memory in use, mapped log pages included.",
            value=int(memory["VmRSS"]) * 1024,
        )
        yield GaugeMetricFamily(
            "kwire_process_anonymous_memory_bytes",
            "Memory in use without mapped files: what the process itself needs.",
            value=int(memory["RssAnon"]) * 1024,
        )


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/metrics",
        scrape,
        summary="Every number of this node, for Prometheus",
        answers={200: Answer("Prometheus' text format.", {TEXT: str})},
    ),
)
