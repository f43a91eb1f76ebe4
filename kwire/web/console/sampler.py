"""The sampler reads the node's counters every INTERVAL_MS, for GET /overview.

A reading takes about a tenth of a millisecond. The values that take longer, or that wait for the disk (groups, lag,
space), are measured by a task of their own, every SLOW_INTERVALS intervals. There is no thread.
"""

import asyncio
import logging
import resource
from contextlib import suppress
from operator import add

from kwire.broker.topics.topic_traffic import TrafficRounds
from kwire.metrics import LATENCY_BOUNDS
from kwire.web.console.samples import INTERVAL_MS, Gauges, Reading, SampleRing, sample_between
from kwire.web.services import MonitoringServices

log = logging.getLogger("kwire.web")

# Groups, lag and space are measured once in this many intervals.
SLOW_INTERVALS = 5
# The maximum number of committed offsets whose lag is measured.
LAG_OFFSETS_MAX = 5000
# The traffic of at most this many partitions is added in one interval. Each takes about half a microsecond. With more
# open partitions, the rates of records are averages over several intervals.
PARTITIONS_PER_INTERVAL = 2000
# Requests of these APIs wait for records or for other members, so their duration says nothing about the server.
WAITING_APIS = frozenset({"Fetch", "ShareFetch", "JoinGroup", "SyncGroup"})
PAGE_BYTES = resource.getpagesize()


class SlowValues:
    """The values that are not measured in every interval. None if a value is not known yet."""

    def __init__(self) -> None:
        self.group_count: int | None = None
        self.lag_records: int | None = None
        self.disk_used_bytes: int | None = None
        self.disk_free_bytes: int | None = None


class Sampler:
    """Fills a ring with samples. `close` stops it."""

    def __init__(self, services: MonitoringServices) -> None:
        self.ring = SampleRing()
        self.slow = SlowValues()
        self._services = services
        self._task: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._topics = services.storage.topics
        self._traffic = TrafficRounds(self._topics.open_partitions, self._topics.traffic)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        for task in (self._task, self._measuring):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._task = self._measuring = None

    async def _run(self) -> None:
        before = self._reading()
        number = 0
        while True:
            if number % SLOW_INTERVALS == 0 and (self._measuring is None or self._measuring.done()):
                self._measuring = asyncio.get_running_loop().create_task(self._measure())
            number += 1
            await asyncio.sleep(INTERVAL_MS / 1000)
            now = self._reading()
            self.ring.add(sample_between(before, now, self._gauges()))
            before = now

    def _reading(self) -> Reading:
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
        return Reading(
            time_ms=services.port.clock.now_ms(),
            received_bytes=server.received_bytes + streams.received_bytes,
            sent_bytes=server.sent_bytes + streams.sent_bytes,
            appended_records=traffic.appended_records,
            fetched_records=traffic.fetched_records,
            kafka_requests=request_count,
            http_requests=sum(sum(one.statuses.values()) for one in services.port.http_metrics.used_routes()),
            latency_counts=counts,
        )

    def _gauges(self) -> Gauges:
        services, slow = self._services, self.slow
        resident, anonymous = _memory_bytes()
        return Gauges(
            kafka_connections=services.server_metrics.connections,
            streams=services.port.stream_metrics.open_count,
            lag_records=slow.lag_records,
            disk_used_bytes=slow.disk_used_bytes,
            disk_free_bytes=slow.disk_free_bytes,
            memory_bytes=resident,
            anonymous_memory_bytes=anonymous,
            stall_seconds=services.loop_metrics.take_recent_stall(),
        )

    async def _measure(self) -> None:
        """Measure the slow values. The log reports an error, and the values stay as they were."""
        try:
            spaces = await self._services.storage.disk_space.measure()
            # Directories on the same volume have the same space.
            volumes = set(spaces.values())
            self.slow.disk_used_bytes = sum(one.used_bytes for one in volumes) if volumes else None
            self.slow.disk_free_bytes = sum(one.free_bytes for one in volumes) if volumes else None
            total = await self._services.reports.total_lag(LAG_OFFSETS_MAX)
            self.slow.group_count, self.slow.lag_records = total.group_count, total.lag_records
        except Exception:
            log.exception("the overview cannot measure groups and disks")


def _memory_bytes() -> tuple[int | None, int | None]:
    """Return the resident memory of the process, with and without mapped files."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):  # this is not Linux, or no file descriptor is free
        return None, None
    return resident * PAGE_BYTES, (resident - shared) * PAGE_BYTES
