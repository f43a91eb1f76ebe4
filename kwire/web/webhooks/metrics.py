"""What webhooks have to say, as Prometheus families; a part of GET /metrics. No label names a webhook."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.broker.webhooks.definition import State
from kwire.web.services import WebServices


def webhook_families(services: WebServices) -> Iterator[Metric]:
    webhooks = services.webhooks
    if webhooks is None:
        return
    consumers = webhooks.page("", len(webhooks))
    states = Counter(one.definition.state for one in consumers)
    family = GaugeMetricFamily("kwire_webhooks", "Webhooks, by state.", labels=["state"])
    for state in get_args(State):
        family.add_metric([state], states[state])
    yield family
    places = [place for one in consumers for place in webhooks.places(one).values()]
    yield GaugeMetricFamily(
        "kwire_webhooks_pending_events",
        "Events that lie behind the places of webhooks, wanted or not.",
        value=sum(place.pending for place in places),
    )
    yield GaugeMetricFamily(
        "kwire_webhooks_retrying_events",
        "Failed events that wait for another attempt.",
        value=sum(place.retrying for place in places),
    )
    yield GaugeMetricFamily(
        "kwire_webhooks_dead_letters",
        "Events that could not be delivered and were not given up.",
        value=sum(len(one.dead) for one in consumers),
    )
    counts = webhooks.counts
    yield GaugeMetricFamily("kwire_webhooks_in_flight", "Deliveries under way.", value=counts.in_flight)
    attempts = CounterMetricFamily("kwire_webhooks_attempts", "Deliveries tried, by outcome.", labels=["outcome"])
    attempts.add_metric(["delivered"], counts.delivered)
    attempts.add_metric(["failed"], counts.failed)
    yield attempts
    yield CounterMetricFamily("kwire_webhooks_died", "Events that became dead letters.", value=counts.dead)
