"""Metrics of rooms, their subscribers and streams; a part of GET /metrics.

No metric has a label with the room's name, because there may be a hundred thousand rooms.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import RoomServices


def room_families(rooms: RoomServices) -> Iterator[Metric]:
    yield GaugeMetricFamily("kwire_rooms", "Number of rooms.", value=rooms.rooms.count)
    yield from _readers(rooms)
    yield from _streams(rooms)


def _readers(rooms: RoomServices) -> Iterator[Metric]:
    subscriptions = rooms.subscriptions
    counts = subscriptions.counts
    yield GaugeMetricFamily("kwire_rooms_subscribers", "Subscriptions of all rooms.", value=len(subscriptions))
    yield GaugeMetricFamily(
        "kwire_rooms_with_subscribers", "Rooms with at least one subscriber.", value=subscriptions.feed_count
    )
    yield GaugeMetricFamily(
        "kwire_rooms_blocked_subscribers",
        "Live subscribers that are behind because their connections are not writable.",
        value=subscriptions.blocked_count,
    )
    yield GaugeMetricFamily(
        "kwire_rooms_recent_bytes",
        "Memory of the newest events, which are kept decoded.",
        value=subscriptions.recent_bytes,
    )
    yield CounterMetricFamily("kwire_rooms_deliveries", "Events delivered to subscribers.", value=counts.events)
    yield CounterMetricFamily(
        "kwire_rooms_delivered_batches", "Batches of events delivered to subscribers.", value=counts.batches
    )
    yield CounterMetricFamily("kwire_rooms_checkpoints", "Checkpoints sent to subscribers.", value=counts.checkpoints)
    yield CounterMetricFamily("kwire_rooms_gaps", "Gaps reported to subscribers.", value=counts.gaps)
    yield CounterMetricFamily("kwire_rooms_lag_notices", "Lag warnings sent to subscribers.", value=counts.lag_notices)
    yield CounterMetricFamily(
        "kwire_rooms_lag_actions", "Times that on_lag was applied to a slow subscriber.", value=counts.lag_actions
    )


def _streams(rooms: RoomServices) -> Iterator[Metric]:
    metrics = rooms.port.stream_metrics
    yield GaugeMetricFamily("kwire_streams", "Open WebSockets and HTTP streams.", value=metrics.open_count)
    yield CounterMetricFamily(
        "kwire_streams_opened", "WebSockets and HTTP streams opened since the start.", value=metrics.opened
    )
    yield CounterMetricFamily(
        "kwire_streams_received_bytes", "Bytes received from streams.", value=metrics.received_bytes
    )
    yield CounterMetricFamily("kwire_streams_sent_bytes", "Bytes sent to streams.", value=metrics.sent_bytes)
    yield CounterMetricFamily("kwire_streams_commands", "Commands received from WebSockets.", value=metrics.commands)
    closed = CounterMetricFamily("kwire_streams_closed", "Streams closed by this node, by reason.", labels=["reason"])
    closed.add_metric(["stuck"], metrics.closed_stuck)
    closed.add_metric(["idle"], metrics.closed_idle)
    closed.add_metric(["violation"], metrics.closed_violating)
    closed.add_metric(["failed"], metrics.closed_failed)
    yield closed
