"""Metrics of the HTTP port: requests by route, memory and connections; a part of GET /metrics.

A route is the template of its path, such as /rooms/{room}/events, never the path of a request. So the number of series
does not depend on clients.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kwire.metrics import HttpMetrics
from kwire.web.monitoring.text_format import add_latency
from kwire.web.services import PortServices


def http_families(port: PortServices) -> Iterator[Metric]:
    memory, metrics = port.memory, port.http_metrics
    yield from _requests(metrics)
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


def _requests(metrics: HttpMetrics) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "kwire_http_requests",
        "HTTP requests answered, by route and status. A stream is counted when it ends.",
        labels=["method", "route", "status"],
    )
    seconds = HistogramMetricFamily(
        "kwire_http_request_seconds",
        "Time from the headers of an HTTP request to its answer, by route. Streams are not included.",
        labels=["method", "route"],
    )
    used = metrics.used_routes()
    if not used:
        return
    for one in used:
        for status, count in one.statuses.items():
            requests.add_metric([one.method, one.path, str(status)], count)
        if one.latency is not None:
            add_latency(seconds, [one.method, one.path], one.latency)
    yield from (requests, seconds)
