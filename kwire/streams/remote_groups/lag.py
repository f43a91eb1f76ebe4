"""RemoteLags: measures the lag of groups in offsets and in seconds, for topics of a cluster.

The ends of partitions are asked for each time, in few requests. The time of the first unread record has to be fetched
with its batch, so the number of such fetches is limited, and times are remembered.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kwire.broker.admin.lag import Lag, Reader, time_of
from kwire.clock import Clock
from kwire.errors import KafkaError, StreamError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.link import Purpose
from kwire.streams.log import NotReady, StreamLog, StreamRead
from kwire.streams.remote.leader_requests import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from kwire.streams.remote_groups.topic_leaders import TopicLeaders
from kwire.streams.topic_directory import TopicDirectory
from kwire.wire.messages.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from storage.batch.record_batch import parse_header

log = logging.getLogger("kwire.streams.remote")

# Partitions of one ListOffsets request.
PARTITIONS_PER_REQUEST: Final = 2_000
# Records that are fetched for their times in one round, how many of them at the same time, and how long it may take.
TIMES_PER_ROUND: Final = 50
TIMES_AT_ONCE: Final = 10
TIMES_SECONDS: Final = 5.0
# Times that are remembered. Those that were not used for the longest time are forgotten first.
TIMES_MAX: Final = 10_000

_Partition = tuple[str, int]


class _Extent(NamedTuple):
    """The offsets at which a partition begins and ends."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


class RemoteLags:
    """The LagMeter of a cluster. Use it in the event loop's thread."""

    def __init__(self, cluster: Cluster, topics: TopicDirectory, clock: Clock) -> None:
        self._cluster = cluster
        self._leaders = TopicLeaders(cluster)
        self._topics = topics
        self._clock = clock
        self._times: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self._measuring = asyncio.Lock()

    async def measure(self, readers: Sequence[Reader]) -> list[Lag | None]:
        """Return the lag of each reader, in order. None if the partition does not exist or its leader is away."""
        async with self._measuring:
            extents = await self._extents(readers)
            await self._find_times(readers, extents)
        now_ms = self._clock.now_ms()
        return [self._lag(one, extents.get((one.topic, one.partition)), now_ms) for one in readers]

    async def offsets_behind(self, readers: Sequence[Reader]) -> list[int | None]:
        extents = await self._extents(readers)
        found = [extents.get((one.topic, one.partition)) for one in readers]
        return [
            None if extent is None else max(0, extent.last_stable_offset - one.offset)
            for one, extent in zip(readers, found, strict=True)
        ]

    def _lag(self, reader: Reader, extent: _Extent | None, now_ms: int) -> Lag | None:
        if extent is None:
            return None
        start, end, high_watermark = extent
        behind = max(0, end - reader.offset)
        first_unread = max(reader.offset, start)
        if first_unread >= end:
            return Lag(start, high_watermark, behind, 0.0)
        time_ms = self._times.get((reader.topic, reader.partition, first_unread))
        # The producer's clock may be ahead of this one.
        seconds = None if time_ms is None else max(0, now_ms - time_ms) / 1000
        return Lag(start, high_watermark, behind, seconds)

    # --- the ends of partitions

    async def _extents(self, readers: Iterable[Reader]) -> dict[_Partition, _Extent]:
        wanted = sorted({(one.topic, one.partition) for one in readers})
        if not wanted:
            return {}
        leaders = await self._leaders.of({topic for topic, _ in wanted})
        by_node: dict[int, list[_Partition]] = {}
        for topic, partition in wanted:
            node = leaders.get(topic, {}).get(partition)
            if node is not None:
                by_node.setdefault(node, []).append((topic, partition))
        chunks = [
            (node, some[first : first + PARTITIONS_PER_REQUEST])
            for node, some in by_node.items()
            for first in range(0, len(some), PARTITIONS_PER_REQUEST)
        ]
        extents: dict[_Partition, _Extent] = {}
        for found in await asyncio.gather(*(self._extents_on(node, some) for node, some in chunks)):
            extents |= found
        return extents

    async def _extents_on(self, node: int, some: Sequence[_Partition]) -> dict[_Partition, _Extent]:
        try:
            starts, stable, ends = await asyncio.gather(
                self._offsets_on(node, some, EARLIEST, READ_UNCOMMITTED),
                self._offsets_on(node, some, LATEST, READ_COMMITTED),
                self._offsets_on(node, some, LATEST, READ_UNCOMMITTED),
            )
        except KafkaError as error:
            log.info("the ends of %d partitions on broker %d are not known: %s", len(some), node, error)
            return {}
        known = starts.keys() & stable.keys() & ends.keys()
        return {one: _Extent(starts[one], stable[one], ends[one]) for one in known}

    async def _offsets_on(
        self, node: int, some: Sequence[_Partition], timestamp: int, isolation: int
    ) -> Mapping[_Partition, int]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in some:
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
            timeout_ms=int(self._cluster.settings.request_seconds * 1000),
        )
        response = await self._cluster.link(node, Purpose.CONTROL).request(LIST_OFFSETS, request)
        return {
            (topic.name, one.partition_index): one.offset
            for topic in response.topics
            for one in topic.partitions
            if not one.error_code
        }

    # --- times of records

    async def _find_times(self, readers: Sequence[Reader], extents: Mapping[_Partition, _Extent]) -> None:
        wanted: dict[tuple[str, int, int], None] = {}
        for one in readers:
            extent = extents.get((one.topic, one.partition))
            if extent is not None and (first := max(one.offset, extent.log_start_offset)) < extent.last_stable_offset:
                key = one.topic, one.partition, first
                if key in self._times:
                    self._times.move_to_end(key)
                elif len(wanted) < TIMES_PER_ROUND:
                    wanted[key] = None
        slots = asyncio.Semaphore(TIMES_AT_ONCE)

        async def find(key: tuple[str, int, int]) -> None:
            async with slots:
                await self._find_time(*key)

        try:
            async with asyncio.timeout(TIMES_SECONDS):
                await asyncio.gather(*map(find, wanted))
        except TimeoutError:
            log.info("the times of some of %d records were not found within %g s", len(wanted), TIMES_SECONDS)
        while len(self._times) > TIMES_MAX:
            self._times.popitem(last=False)

    async def _find_time(self, topic_name: str, partition: int, offset: int) -> None:
        """Remember the time of a record. It stays unknown if the record cannot be read now."""
        try:
            topic = await self._topics.find(topic_name)
            if topic is None or partition >= topic.partition_count:
                return
            stream = topic.stream(partition)
            await stream.ready()
            found = await _read(stream, offset)
        except (KafkaError, StreamError) as error:
            log.info("the time of %s-%d at offset %d is not known: %s", topic_name, partition, offset, error)
            return
        time_ms = time_of(parse_header(found.records), offset) if found.records else None
        if time_ms is not None:
            self._times[topic_name, partition, offset] = time_ms


async def _read(stream: StreamLog, offset: int) -> StreamRead:
    waits = 0
    while isinstance(found := stream.read(offset, 1, waits), NotReady):
        await found.wait()
        waits += 1
    return found
