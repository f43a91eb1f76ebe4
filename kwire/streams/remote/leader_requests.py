"""LeaderRequests: queries to the leader of a partition, repeated while the leader moves or cannot be reached.

Queries for offsets that arrive together share a request: the first use of a log needs several of them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.batched_requests import BatchedRequests
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import RETRIABLE, UNCERTAIN, Unreachable, refusal
from kwire.kafka_client.frames import Versions
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.wire.schema import Api

log = logging.getLogger("kwire.streams.remote")

# How long a query is repeated.
QUERY_SECONDS: Final = 30.0
# The partitions of one ListOffsets request.
OFFSETS_PER_REQUEST_MAX: Final = 500

EARLIEST: Final = -2
LATEST: Final = -1
NEWEST_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
# The first versions of ListOffsets with NEWEST_TIMESTAMP and EARLIEST_LOCAL.
NEWEST_TIMESTAMP_VERSION: Final = 7
EARLIEST_LOCAL_VERSION: Final = 8
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_OFFSET: Final = -1


class Target(Protocol):
    """A partition that is asked about. `check` raises KafkaError if its topic was deleted."""

    topic: str
    partition: int

    def check(self) -> None: ...


class _OffsetQuestion(NamedTuple):
    topic: str
    partition: int
    timestamp_ms: int


class BrokerSlots:
    """At most `count` operations with each broker at the same time: a broker that does not answer holds up no other."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._slots: dict[int, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def of(self, node: int) -> AsyncIterator[None]:
        """Wait for a slot of a broker, and hold it."""
        slots = self._slots.get(node)
        if slots is None:
            slots = self._slots[node] = asyncio.Semaphore(self._count)
        async with slots:
            yield


class LeaderRequests:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By broker, isolation level, and constant of the request (0 for a time): a request has one isolation level,
        # and no partition twice.
        self._offsets: dict[tuple[int, int, int], BatchedRequests[_OffsetQuestion, ListOffsetsPartitionResponse]] = {}

    async def ask(
        self,
        target: Target,
        api: Api,
        message: Any,
        code_of: Callable[[Any], int],
        purpose: Purpose = Purpose.CONTROL,
        slots: BrokerSlots | None = None,
    ) -> Any:
        """Send a query to the leader, and return the response. `code_of` returns the error code of the partition.

        Each attempt holds one of the `slots`; the pauses between attempts do not.
        Raises KafkaError: an error that does not pass, or the last one after QUERY_SECONDS.
        """

        async def attempt() -> Any:
            request = partial(self._cluster.request_leader, target.topic, target.partition, api, message, purpose)
            if slots is None:
                return await request()
            async with slots.of(self._cluster.metadata.leader(target.topic, target.partition).node):
                return await request()

        return await self._repeat(target, api, attempt, code_of)

    async def _repeat(
        self, target: Target, api: Api, attempt: Callable[[], Awaitable[Any]], code_of: Callable[[Any], int]
    ) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + QUERY_SECONDS
        backoff = self._cluster.backoff()
        while True:
            target.check()
            throttle_seconds = 0.0
            try:
                response = await attempt()
                code = code_of(response)
                if not code:
                    return response
                error = refusal(f"partition {target.topic}-{target.partition}", code)
                if code not in RETRIABLE and code not in UNCERTAIN:
                    raise error
                # The answers of shared requests are those of partitions, without a throttle time.
                throttle_seconds = getattr(response, "throttle_time_ms", 0) / 1000
            except Unreachable as unreachable:
                error = unreachable
            except KafkaError as refused:
                if refused.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                    raise
                error = refused
            pause = max(backoff.next_seconds(), throttle_seconds)
            if loop.time() + pause > deadline:
                raise error
            log.debug("%s of %s-%d is repeated: %s", api.name, target.topic, target.partition, error)
            await asyncio.sleep(pause)
            await self.refresh(target.topic)

    async def refresh(self, topic: str) -> None:
        """Ask for the leaders of a topic. A cluster that cannot be reached is tried again by the caller."""
        try:
            await self._cluster.refresh([topic])
        except KafkaError as error:
            log.debug("the metadata of %s cannot be refreshed: %s", topic, error)

    async def find_offset(self, target: Target, timestamp_ms: int, isolation: int) -> tuple[int, int]:
        """Return offset and timestamp for a time or one of the constants; NO_OFFSET if there is none."""
        question = _OffsetQuestion(target.topic, target.partition, timestamp_ms)

        async def attempt() -> ListOffsetsPartitionResponse:
            node = self._cluster.metadata.leader(target.topic, target.partition).node
            key = node, isolation, min(timestamp_ms, 0)
            batched = self._offsets.get(key)
            if batched is None:
                batched = self._offsets[key] = BatchedRequests(
                    partial(self._ask_offsets, node, isolation), OFFSETS_PER_REQUEST_MAX
                )
            return await batched.ask(_name_of(target.topic, target.partition), question)

        found = await self._repeat(target, LIST_OFFSETS, attempt, lambda answer: int(answer.error_code))
        return found.offset, found.timestamp

    async def is_local(self, target: Target, offset: int) -> bool:
        """Whether the leader has an offset in its own log, not only in tiered storage (KIP-405)."""

        async def attempt() -> Versions:
            node = self._cluster.metadata.leader(target.topic, target.partition).node
            return (await self._cluster.link(node, Purpose.CONTROL).connection()).versions

        versions = await self._repeat(target, LIST_OFFSETS, attempt, lambda _: 0)
        if not versions.has(LIST_OFFSETS, EARLIEST_LOCAL_VERSION):
            # Brokers of this age have no tiered storage.
            return True
        start, _ = await self.find_offset(target, EARLIEST_LOCAL, READ_UNCOMMITTED)
        return start <= offset

    async def _ask_offsets(
        self, node: int, isolation: int, questions: Sequence[_OffsetQuestion]
    ) -> Mapping[str, ListOffsetsPartitionResponse]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for one in questions:
            asked = ListOffsetsPartition(partition_index=one.partition, timestamp=one.timestamp_ms)
            topics.setdefault(one.topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=int(QUERY_SECONDS * 1000),
        )
        response = await self._cluster.link(node, Purpose.CONTROL).request(LIST_OFFSETS, request)
        return {
            _name_of(topic.name, found.partition_index): found
            for topic in response.topics
            for found in topic.partitions
        }


def _name_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
