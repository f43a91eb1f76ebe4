"""Metrics of the limits of keys and of the event API of tenants, for GET /metrics. No label is a key or a topic."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import DbEventServices


def db_event_families(services: DbEventServices) -> Iterator[Metric]:
    metrics, slots = services.sessions.metrics, services.usage.slots
    yield GaugeMetricFamily(
        "kwire_db_sessions", "Open WebSockets of /db/api/v1/events.", value=services.sessions.connection_count
    )
    yield GaugeMetricFamily(
        "kwire_db_topics", "Topics with at least one of these WebSockets.", value=services.sessions.topic_count
    )
    yield GaugeMetricFamily("kwire_db_slots", "Subscription slots in use, of all nodes.", value=slots.total)
    yield GaugeMetricFamily(
        "kwire_db_slots_leader", "1 if this node decides about subscription slots.", value=int(slots.is_leading)
    )
    yield CounterMetricFamily("kwire_db_slots_expired", "Slots that were not renewed in time.", value=slots.expired)
    yield CounterMetricFamily("kwire_db_published", "Events published to /db/api/v1/events.", value=metrics.published)
    yield CounterMetricFamily(
        "kwire_db_received",
        "Events that this node has received for topics with WebSockets, each counted once.",
        value=metrics.received,
    )
    limited = CounterMetricFamily(
        "kwire_key_limited", "Requests refused or delayed by a limit of a key, on all ports.", labels=["limit"]
    )
    limited.add_metric(["max_events"], services.usage.events.refused)
    limited.add_metric(["publish_rate"], services.usage.rates.refused)
    limited.add_metric(["max_subscriptions"], slots.denied)
    yield limited
    refused = CounterMetricFamily("kwire_db_refused", "Requests refused by a limit.", labels=["limit"])
    refused.add_metric(["max_events"], metrics.refused_events)
    refused.add_metric(["publish_rate"], metrics.refused_rate)
    refused.add_metric(["max_subscriptions"], metrics.refused_slots)
    refused.add_metric(["node"], metrics.refused_connections)
    yield refused
    yield CounterMetricFamily("kwire_db_sessions_opened", "WebSockets opened since the start.", value=metrics.opened)
    closed = CounterMetricFamily("kwire_db_sessions_closed", "WebSockets closed, by reason.", labels=["reason"])
    closed.add_metric(["expected"], metrics.closed_expected)
    closed.add_metric(["unexpected"], metrics.closed_unexpected)
    yield closed
