"""What webhooks have to say, as Prometheus families; a part of GET /metrics. No label names a webhook."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.broker.webhooks.definition import State
from kwire.web.services import WebServices


def webhook_families(services: WebServices) -> Iterator[Metric]:
    if services.webhook_statistics is None:
        return
    statistics = services.webhook_statistics()
    family = GaugeMetricFamily("kwire_webhooks", "Webhooks, by state.", labels=["state"])
    for state in get_args(State):
        family.add_metric([state], statistics.states.get(state, 0))
    yield family
    yield GaugeMetricFamily(
        "kwire_webhooks_pending_events",
        "Events that lie behind the places of webhooks, wanted or not.",
        value=statistics.pending,
    )
    yield GaugeMetricFamily(
        "kwire_webhooks_retrying_events",
        "Failed events that wait for another attempt.",
        value=statistics.retrying,
    )
    yield GaugeMetricFamily(
        "kwire_webhooks_dead_letters",
        "Events that could not be delivered and were not given up.",
        value=statistics.dead_letters,
    )
    yield GaugeMetricFamily("kwire_webhooks_in_flight", "Deliveries under way.", value=statistics.in_flight)
    attempts = CounterMetricFamily("kwire_webhooks_attempts", "Deliveries tried, by outcome.", labels=["outcome"])
    attempts.add_metric(["delivered"], statistics.delivered)
    attempts.add_metric(["failed"], statistics.failed)
    yield attempts
    yield CounterMetricFamily("kwire_webhooks_died", "Events that became dead letters.", value=statistics.died)
