"""GET /metrics of a bridge: rooms, HTTP, logins and process as on a server, and the connections to the cluster."""

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from kwire.streams.event_store.interface import EventStoreFacts
from kwire.web.bridge.services import BridgeMonitoring, UpstreamFacts
from kwire.web.db_events.metrics import db_event_families
from kwire.web.groups.metrics import series_text
from kwire.web.monitoring.access_metrics import access_families
from kwire.web.monitoring.http_metrics import http_families
from kwire.web.monitoring.process_metrics import build_families, loop_families, process_families
from kwire.web.monitoring.quota_metrics import quota_families
from kwire.web.needs import DESCRIBE_CLUSTER
from kwire.web.rooms.metrics import room_families
from kwire.web.route import TEXT, Answer, Route
from kwire.web.webhooks.metrics import webhook_families


async def scrape(services: BridgeMonitoring, request: web.Request) -> web.Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BridgeCollector(services))
    groups = await series_text(*await services.group_series())
    return web.Response(body=generate_latest(registry) + groups, headers={"Content-Type": CONTENT_TYPE_LATEST})


class BridgeCollector(Collector):
    def __init__(self, services: BridgeMonitoring) -> None:
        self._services = services

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        services = self._services
        yield from build_families()
        yield from upstream_families(services.upstream())
        yield from http_families(services.port)
        yield from quota_families(services.port.quotas, services.port.clock.monotonic())
        yield from room_families(services.rooms)
        yield from db_event_families(services.db_events)
        yield from webhooks_of_bridge(services)
        yield from event_store_families(services.event_store())
        yield from access_families(services.audit, services.access_counts)
        yield from loop_families(services.loop_metrics)
        yield from process_families(services.descriptors)


def webhooks_of_bridge(services: BridgeMonitoring) -> Iterator[Metric]:
    statistics = services.webhook_statistics()
    yield GaugeMetricFamily(
        "kwire_bridge_webhooks_delivering",
        "1 while this bridge delivers webhooks. 0 if another bridge does, or if their state cannot be used.",
        value=statistics is not None,
    )
    if statistics is not None:
        yield from webhook_families(statistics)


def event_store_families(facts: EventStoreFacts) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kwire_bridge_event_store_open",
        "1 while this bridge serves the event store. 0 if it has no event topics, if another bridge has taken it over, "
        "or if its journal cannot be used.",
        value=facts.is_open,
    )
    yield GaugeMetricFamily("kwire_bridge_event_topics", "Event topics.", value=facts.topics)
    yield CounterMetricFamily("kwire_bridge_event_commits", "Publish requests that were stored.", value=facts.commits)
    yield CounterMetricFamily("kwire_bridge_event_commit_events", "Events that were stored.", value=facts.events)
    yield CounterMetricFamily(
        "kwire_bridge_event_transactions",
        "Transactions of the event store. Publish requests that arrive together share one.",
        value=facts.transactions,
    )
    yield GaugeMetricFamily(
        "kwire_bridge_event_commits_waiting",
        "Publish requests that wait for the next transaction.",
        value=facts.waiting_commits,
    )


def upstream_families(facts: UpstreamFacts) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kwire_bridge_connections", "Open connections to brokers of the cluster.", value=facts.connections
    )
    yield CounterMetricFamily(
        "kwire_bridge_connections_opened",
        "Connections to brokers opened since the start. More than there are open ones: connections were lost.",
        value=facts.connections_opened,
    )
    yield CounterMetricFamily(
        "kwire_bridge_connections_failed",
        "Attempts to connect or to log in to a broker that failed.",
        value=facts.connections_failed,
    )
    yield CounterMetricFamily("kwire_bridge_sent_bytes", "Bytes sent to brokers.", value=facts.sent_bytes)
    yield CounterMetricFamily("kwire_bridge_received_bytes", "Bytes received from brokers.", value=facts.received_bytes)
    yield GaugeMetricFamily(
        "kwire_bridge_waiting_bytes",
        "Bytes of events that the cluster has not stored or refused yet.",
        value=facts.waiting_bytes,
    )
    yield GaugeMetricFamily(
        "kwire_bridge_cache_bytes", "Record batches that are kept for readers.", value=facts.cache_bytes
    )
    yield GaugeMetricFamily("kwire_bridge_logs", "Topics that the bridge has used.", value=facts.open_logs)
    yield CounterMetricFamily(
        "kwire_bridge_trimmed_events", "Events deleted by retention by count.", value=facts.trimmed_events
    )
    yield CounterMetricFamily(
        "kwire_bridge_trim_failures", "Failed requests of retention by count.", value=facts.trim_failures
    )
    yield CounterMetricFamily("kwire_bridge_rooms_removed", "Unused rooms deleted.", value=facts.rooms_removed)
    yield CounterMetricFamily(
        "kwire_bridge_cleanup_failures", "Failed rounds of the clean-up of rooms.", value=facts.cleanup_failures
    )
    yield GaugeMetricFamily(
        "kwire_bridge_group_members", "HTTP members of groups on this bridge.", value=facts.group_members
    )
    yield CounterMetricFamily(
        "kwire_bridge_group_failures",
        "Requests for metrics without the lag of groups, because the cluster did not answer in time.",
        value=facts.group_failures,
    )


ROUTES: tuple[Route[BridgeMonitoring], ...] = (
    Route(
        "GET",
        "/metrics",
        scrape,
        summary="All metrics of this bridge, for Prometheus",
        answers={200: Answer("Prometheus' text format.", {TEXT: str})},
        needs=(DESCRIBE_CLUSTER,),
    ),
)
