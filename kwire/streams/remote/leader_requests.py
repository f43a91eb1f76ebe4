"""LeaderRequests: queries to the leader of a partition, repeated while the leader moves or cannot be reached."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import RETRIABLE, UNCERTAIN, Unreachable, refusal
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.schema import Api

log = logging.getLogger("kwire.streams.remote")

# How long a query is repeated.
QUERY_SECONDS: Final = 30.0

EARLIEST: Final = -2
LATEST: Final = -1
NEWEST_TIMESTAMP: Final = -3
# The first version of ListOffsets with NEWEST_TIMESTAMP.
NEWEST_TIMESTAMP_VERSION: Final = 7
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_OFFSET: Final = -1


class Target(Protocol):
    """A partition that is asked about. `check` raises KafkaError if its topic was deleted."""

    topic: str
    partition: int

    def check(self) -> None: ...


class LeaderRequests:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask(
        self,
        target: Target,
        api: Api,
        message: Any,
        code_of: Callable[[Any], int],
        purpose: Purpose = Purpose.CONTROL,
    ) -> Any:
        """Send a query to the leader, and return the response. `code_of` returns the error code of the partition.

        Raises KafkaError: an error that does not pass, or the last one after QUERY_SECONDS.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + QUERY_SECONDS
        backoff = self._cluster.backoff()
        while True:
            target.check()
            try:
                response = await self._cluster.request_leader(target.topic, target.partition, api, message, purpose)
                code = code_of(response)
                if not code:
                    return response
                error = refusal(f"partition {target.topic}-{target.partition}", code)
                if code not in RETRIABLE and code not in UNCERTAIN:
                    raise error
            except Unreachable as unreachable:
                error = unreachable
            except KafkaError as refused:
                if refused.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                    raise
                error = refused
            pause = backoff.next_seconds()
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
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(
                    name=target.topic,
                    partitions=[ListOffsetsPartition(partition_index=target.partition, timestamp=timestamp_ms)],
                )
            ],
            timeout_ms=int(QUERY_SECONDS * 1000),
        )
        response = await self.ask(
            target, LIST_OFFSETS, request, lambda found: int(found.topics[0].partitions[0].error_code)
        )
        found = response.topics[0].partitions[0]
        return found.offset, found.timestamp
