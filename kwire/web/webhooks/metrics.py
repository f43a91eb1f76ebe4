"""Metrics of webhooks; a part of GET /metrics. No metric has a label with the webhook's id."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.streams.webhooks.definition import State
from kwire.streams.webhooks.statistics import WebhookStatistics


def webhook_families(statistics: WebhookStatistics) -> Iterator[Metric]:
    family = GaugeMetricFamily("kwire_webhooks", "Webhooks, by state.", labels=["state"])
    for state in get_args(State):
        family.add_metric([state], statistics.states.get(state, 0))
    yield family
    yield GaugeMetricFamily(
        "kwire_webhooks_pending_events",
        "Events that webhooks have not reached yet, including those that filters exclude.",
        value=statistics.pending,
    )
    yield GaugeMetricFamily(
        "kwire_webhooks_retrying_events",
        "Failed events waiting for another attempt.",
        value=statistics.retrying,
    )
    yield GaugeMetricFamily(
        "kwire_webhooks_dead_letters",
        "Events that could not be delivered and are kept as dead letters.",
        value=statistics.dead_letters,
    )
    yield GaugeMetricFamily("kwire_webhooks_in_flight", "Deliveries in progress.", value=statistics.in_flight)
    attempts = CounterMetricFamily("kwire_webhooks_attempts", "Delivery attempts, by outcome.", labels=["outcome"])
    attempts.add_metric(["delivered"], statistics.delivered)
    attempts.add_metric(["failed"], statistics.failed)
    yield attempts
    yield CounterMetricFamily("kwire_webhooks_died", "Events that became dead letters.", value=statistics.died)
