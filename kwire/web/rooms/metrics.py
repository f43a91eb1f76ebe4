"""What rooms, their readers and the sockets have to say, as Prometheus families; a part of GET /metrics.

No label names a room: there may be a hundred thousand.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import WebServices


def room_families(services: WebServices) -> Iterator[Metric]:
    yield GaugeMetricFamily("kwire_rooms", "Rooms.", value=services.rooms.count)
    yield from _readers(services)
    yield from _streams(services)


def _readers(services: WebServices) -> Iterator[Metric]:
    subscriptions = services.subscriptions
    counts = subscriptions.counts
    yield GaugeMetricFamily("kwire_rooms_subscribers", "Subscriptions of all rooms.", value=len(subscriptions))
    yield GaugeMetricFamily(
        "kwire_rooms_with_subscribers", "Rooms that somebody is subscribed to.", value=subscriptions.tail_count
    )
    yield GaugeMetricFamily(
        "kwire_rooms_blocked_subscribers",
        "Live subscribers that are behind because their connections take nothing.",
        value=subscriptions.blocked_count,
    )
    yield GaugeMetricFamily(
        "kwire_rooms_recent_bytes", "Memory for the newest events, kept decoded.", value=subscriptions.recent_bytes
    )
    yield CounterMetricFamily("kwire_rooms_deliveries", "Events handed to subscribers.", value=counts.events)
    yield CounterMetricFamily("kwire_rooms_portions", "Portions they came in.", value=counts.portions)
    yield CounterMetricFamily("kwire_rooms_checkpoints", "Places told to subscribers.", value=counts.checkpoints)
    yield CounterMetricFamily("kwire_rooms_gaps", "Gaps told to subscribers.", value=counts.gaps)
    yield CounterMetricFamily("kwire_rooms_lag_notices", "Subscribers told that they lag.", value=counts.lag_notices)
    yield CounterMetricFamily(
        "kwire_rooms_lag_cuts", "Times that a rule for slow subscribers acted.", value=counts.lag_cuts
    )


def _streams(services: WebServices) -> Iterator[Metric]:
    metrics = services.stream_metrics
    yield GaugeMetricFamily("kwire_streams", "WebSockets and HTTP streams that are open.", value=metrics.open_count)
    yield CounterMetricFamily("kwire_streams_opened", "Those opened since the start.", value=metrics.opened)
    yield CounterMetricFamily("kwire_streams_received_bytes", "Bytes they sent.", value=metrics.received_bytes)
    yield CounterMetricFamily("kwire_streams_sent_bytes", "Bytes sent to them.", value=metrics.sent_bytes)
    yield CounterMetricFamily("kwire_streams_commands", "Commands they sent.", value=metrics.commands)
    closed = CounterMetricFamily("kwire_streams_closed", "Streams this node ended, by reason.", labels=["reason"])
    closed.add_metric(["stuck"], metrics.closed_stuck)
    closed.add_metric(["idle"], metrics.closed_idle)
    closed.add_metric(["violation"], metrics.closed_violating)
    closed.add_metric(["failed"], metrics.closed_failed)
    yield closed
