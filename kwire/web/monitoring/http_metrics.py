"""Metrics of the HTTP port's memory and connections; a part of GET /metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import PortServices


def http_families(port: PortServices) -> Iterator[Metric]:
    memory, metrics = port.memory, port.http_metrics
    yield GaugeMetricFamily(
        "kwire_http_memory_used_bytes",
        "Memory used by request bodies and large answers of the HTTP port.",
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
        "kwire_http_connections_closed", "HTTP connections closed by this node, by reason.", labels=["reason"]
    )
    closed.add_metric(["stuck"], metrics.closed_stuck)
    yield closed
