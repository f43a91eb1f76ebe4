"""The load of a bridge, for its overview: traffic with the cluster and with streams, requests, latency, memory."""

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from kwire.metrics import LATENCY_BOUNDS
from kwire.web.bridge.services import BridgeMonitoring
from kwire.web.console.sampler import memory_bytes
from kwire.web.console.samples import LoadSample, PerSecond


class BridgeReading(NamedTuple):
    """The counters of a bridge at one time."""

    time_ms: int
    upstream_received_bytes: int
    upstream_sent_bytes: int
    stream_received_bytes: int
    stream_sent_bytes: int
    http_requests: int
    latency_counts: Sequence[int]


class BridgeGauges(NamedTuple):
    """Values of a bridge that rise and fall."""

    upstream_connections: int
    upstream_waiting_bytes: int
    cache_bytes: int
    streams: int
    subscribers: int
    memory_bytes: int | None
    anonymous_memory_bytes: int | None
    stall_seconds: float


class BridgeSample(LoadSample, kw_only=True, frozen=True):
    """The load of a bridge in one interval. The latency is that of HTTP requests, without streams."""

    upstream_received_bytes: PerSecond
    upstream_sent_bytes: PerSecond
    stream_received_bytes: PerSecond
    stream_sent_bytes: PerSecond
    upstream_connections: int
    upstream_waiting_bytes: int
    cache_bytes: int
    subscribers: int


class BridgeLoad:
    """Reads the load of a bridge."""

    def __init__(self, services: BridgeMonitoring) -> None:
        self._services = services

    def reading(self) -> BridgeReading:
        services = self._services
        port, upstream = services.port, services.upstream()
        counts = [0] * (len(LATENCY_BOUNDS) + 1)
        for route in port.http_metrics.used_routes():
            if route.latency is not None:
                counts = list(map(add, counts, route.latency.counts))
        return BridgeReading(
            time_ms=port.clock.now_ms(),
            upstream_received_bytes=upstream.received_bytes,
            upstream_sent_bytes=upstream.sent_bytes,
            stream_received_bytes=port.stream_metrics.received_bytes,
            stream_sent_bytes=port.stream_metrics.sent_bytes,
            http_requests=port.http_metrics.request_count,
            latency_counts=counts,
        )

    def gauges(self) -> BridgeGauges:
        services = self._services
        upstream = services.upstream()
        resident, anonymous = memory_bytes()
        return BridgeGauges(
            upstream_connections=upstream.connections,
            upstream_waiting_bytes=upstream.waiting_bytes,
            cache_bytes=upstream.cache_bytes,
            streams=services.port.stream_metrics.open_count,
            subscribers=len(services.rooms.subscriptions),
            memory_bytes=resident,
            anonymous_memory_bytes=anonymous,
            stall_seconds=services.loop_metrics.take_recent_stall(),
        )

    async def measure(self) -> None:
        """Nothing takes long: the values of the cluster are those that its connections have counted."""
