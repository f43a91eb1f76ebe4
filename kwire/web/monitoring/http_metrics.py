"""Memory and connections of the HTTP port, as Prometheus families; a part of GET /metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import WebServices


def http_families(services: WebServices) -> Iterator[Metric]:
    memory, metrics = services.memory, services.http_metrics
    yield GaugeMetricFamily(
        "kwire_http_memory_used_bytes",
        "Memory that bodies and large answers of the HTTP port hold.",
        value=memory.used_bytes,
    )
    yield GaugeMetricFamily("kwire_http_memory_waiting", "HTTP requests that wait for memory.", value=memory.waiting)
    yield CounterMetricFamily(
        "kwire_http_memory_refused", "HTTP requests refused because memory was exhausted.", value=memory.refused
    )
    yield CounterMetricFamily(
        "kwire_http_connections_refused",
        "HTTP connections refused because there were too many, in all or from one address.",
        value=metrics.connections_refused,
    )
    closed = CounterMetricFamily(
        "kwire_http_connections_closed", "HTTP connections this node ended, by reason.", labels=["reason"]
    )
    closed.add_metric(["stuck"], metrics.closed_stuck)
    yield closed
