"""Reads the event-loop metrics of kwire (/metrics), before and after a work."""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from benchmark.servers import RunningServer

SCRAPE_TIMEOUT_SECONDS = 10
LONGEST = "kwire_loop_stall_seconds_max"
COUNT = "kwire_loop_stalls_total"
QUEUE_WAIT = "kwire_loop_run_queue_wait_seconds_max"


@dataclass(frozen=True)
class LoopHealth:
    """Event-loop figures since the start of the server. A figure is None if the server does not report it."""

    longest_seconds: float | None = None
    count: float | None = None
    queue_wait_seconds: float | None = None

    def figures_since(self, before: "LoopHealth") -> dict[str, float]:
        figures = {}
        if self.longest_seconds is not None:
            figures["stall_ms_max"] = self.longest_seconds * 1000
        if self.queue_wait_seconds is not None:
            figures["queue_wait_ms_max"] = self.queue_wait_seconds * 1000
        if self.count is not None:
            figures["stalls"] = self.count - (before.count or 0)
        return figures


def loop_health(server: RunningServer) -> LoopHealth:
    return loop_health_at(server.metrics_url, server.product.metrics_headers)


def loop_health_at(metrics_url: str | None, headers: Mapping[str, str] | None = None) -> LoopHealth:
    if not metrics_url:
        return LoopHealth()
    try:
        values = metrics_at(metrics_url, headers)
    except OSError:
        return LoopHealth()  # The work is measured without these figures. The table shows a dash.
    return LoopHealth(values.get(LONGEST), values.get(COUNT), values.get(QUEUE_WAIT))


def metrics_at(metrics_url: str, headers: Mapping[str, str] | None = None) -> dict[str, float]:
    """Return all metrics by name. Of a metric with labels, only one value is returned."""
    request = urllib.request.Request(metrics_url, headers=dict(headers or {}))
    with urllib.request.urlopen(request, timeout=SCRAPE_TIMEOUT_SECONDS) as answer:
        text = answer.read().decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
