"""The load of a server, for the samples of its overview: traffic, requests, lag, connections, disk and memory."""

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from kwire.broker.topics.topic_traffic import TrafficRounds
from kwire.metrics import LATENCY_BOUNDS
from kwire.web.console.sampler import memory_bytes
from kwire.web.console.samples import LoadSample, PerSecond
from kwire.web.services import MonitoringServices

# The maximum number of committed offsets whose lag is measured.
LAG_OFFSETS_MAX = 5000
# The traffic of at most this many partitions is added in one interval. Each takes about half a microsecond. With more
# open partitions, the rates of records are averages over several intervals.
PARTITIONS_PER_INTERVAL = 2000
# Requests of these APIs wait for records or for other members, so their duration says nothing about the server.
WAITING_APIS = frozenset({"Fetch", "ShareFetch", "JoinGroup", "SyncGroup"})


class NodeReading(NamedTuple):
    """The counters of a server at one time."""

    time_ms: int
    received_bytes: int
    sent_bytes: int
    appended_records: int
    fetched_records: int
    kafka_requests: int
    http_requests: int
    latency_counts: Sequence[int]


class NodeGauges(NamedTuple):
    """Values of a server that rise and fall."""

    kafka_connections: int
    streams: int
    lag_records: int | None
    disk_used_bytes: int | None
    disk_free_bytes: int | None
    memory_bytes: int | None
    anonymous_memory_bytes: int | None
    stall_seconds: float


class Sample(LoadSample, kw_only=True, frozen=True):
    """The load of a server in one interval."""

    received_bytes: PerSecond
    sent_bytes: PerSecond
    appended_records: PerSecond
    fetched_records: PerSecond
    kafka_requests: PerSecond
    kafka_connections: int
    lag_records: int | None
    disk_used_bytes: int | None
    disk_free_bytes: int | None


class NodeLoad:
    """Reads the load of a server. `group_count` is None until the groups were counted."""

    def __init__(self, services: MonitoringServices) -> None:
        self.group_count: int | None = None
        self._lag_records: int | None = None
        self._disk_used_bytes: int | None = None
        self._disk_free_bytes: int | None = None
        self._services = services
        self._topics = services.storage.topics
        self._traffic = TrafficRounds(self._topics.open_partitions, self._topics.traffic)

    def reading(self) -> NodeReading:
        services = self._services
        server, streams = services.server_metrics, services.port.stream_metrics
        self._traffic.add(PARTITIONS_PER_INTERVAL)
        traffic = self._topics.traffic.total()
        counts = [0] * (len(LATENCY_BOUNDS) + 1)
        request_count = 0
        for key, latency in server.requests.items():
            request_count += latency.count
            if server.api_names[key] not in WAITING_APIS:
                counts = list(map(add, counts, latency.counts))
        return NodeReading(
            time_ms=services.port.clock.now_ms(),
            received_bytes=server.received_bytes + streams.received_bytes,
            sent_bytes=server.sent_bytes + streams.sent_bytes,
            appended_records=traffic.appended_records,
            fetched_records=traffic.fetched_records,
            kafka_requests=request_count,
            http_requests=services.port.http_metrics.request_count,
            latency_counts=counts,
        )

    def gauges(self) -> NodeGauges:
        services = self._services
        resident, anonymous = memory_bytes()
        return NodeGauges(
            kafka_connections=services.server_metrics.connections,
            streams=services.port.stream_metrics.open_count,
            lag_records=self._lag_records,
            disk_used_bytes=self._disk_used_bytes,
            disk_free_bytes=self._disk_free_bytes,
            memory_bytes=resident,
            anonymous_memory_bytes=anonymous,
            stall_seconds=services.loop_metrics.take_recent_stall(),
        )

    async def measure(self) -> None:
        """Measure groups, lag and space."""
        spaces = await self._services.storage.disk_space.measure()
        # Directories on the same volume have the same space.
        volumes = set(spaces.values())
        self._disk_used_bytes = sum(one.used_bytes for one in volumes) if volumes else None
        self._disk_free_bytes = sum(one.free_bytes for one in volumes) if volumes else None
        total = await self._services.reports.total_lag(LAG_OFFSETS_MAX)
        self.group_count, self._lag_records = total.group_count, total.lag_records
