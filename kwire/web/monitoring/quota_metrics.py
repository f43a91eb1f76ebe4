"""Metrics of quotas: rate, limit and throttle time of the clients that used a quota last; a part of GET /metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.access.quotas.quotas import Quotas

# The maximum number of clients in the metrics. Client ids are chosen by clients, so there may be many.
SHOWN_MAX = 100
LABEL_LENGTH_MAX = 200

_LABELS = ["quota", "user", "client_id", "ip"]


def quota_families(quotas: Quotas, now: float) -> Iterator[Metric]:
    meters = GaugeMetricFamily("kwire_quota_meters", "Users, client ids and addresses whose use of a quota is counted.")
    meters.add_metric([], len(quotas.meters))
    entities = GaugeMetricFamily("kwire_quota_entities", "Users, client ids and addresses for which quotas are set.")
    entities.add_metric([], len(quotas))
    yield from (meters, entities)
    rates = GaugeMetricFamily(
        "kwire_quota_rate", f"Use of a quota per second, of the {SHOWN_MAX} used last.", labels=_LABELS
    )
    limits = GaugeMetricFamily("kwire_quota_limit", "The quota: the use per second that is allowed.", labels=_LABELS)
    waits = CounterMetricFamily(
        "kwire_quota_throttle_seconds", "Sum of the throttle times in responses.", labels=_LABELS
    )
    throttled = CounterMetricFamily("kwire_quota_throttled", "Requests with a throttle time.", labels=_LABELS)
    shown = list(quotas.meters.recent(SHOWN_MAX))
    if not shown:
        return
    for meter in shown:
        labels = [part[:LABEL_LENGTH_MAX] for part in meter.key]
        rates.add_metric(labels, meter.window.rate(now))
        limits.add_metric(labels, meter.limit)
        waits.add_metric(labels, meter.throttled_ms / 1000)
        throttled.add_metric(labels, meter.throttle_count)
    yield from (rates, limits, waits, throttled)
