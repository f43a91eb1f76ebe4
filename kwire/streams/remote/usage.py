"""Usages: asks for the sizes of remote logs, and for the newest timestamp of one."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kwire.errors import KafkaError
from kwire.kafka_client.batched_requests import BatchedRequests
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.link import Purpose
from kwire.streams.log import Usage
from kwire.streams.remote.leader_requests import (
    NEWEST_TIMESTAMP,
    NEWEST_TIMESTAMP_VERSION,
    READ_UNCOMMITTED,
    LeaderRequests,
)
from kwire.wire.messages.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribableLogDirTopic, DescribeLogDirsRequest
from kwire.wire.messages.list_offsets import LIST_OFFSETS

if TYPE_CHECKING:
    from kwire.streams.remote.log import RemoteLog

log = logging.getLogger("kwire.streams.remote")

# The topics of one DescribeLogDirs request. A broker looks through all of its logs for each request.
TOPICS_PER_REQUEST_MAX: Final = 500


class Usages:
    def __init__(self, cluster: Cluster, requests: LeaderRequests) -> None:
        self._cluster = cluster
        self._requests = requests
        # By broker.
        self._sizes: dict[int, BatchedRequests[DescribableLogDirTopic, Mapping[int, int]]] = {}

    async def ask(self, one: "RemoteLog") -> Usage:
        """Return the size of a log and its newest timestamp, as far as the cluster allows: DescribeLogDirs needs the
        permission to describe the cluster."""
        size_bytes, last_ms = 0, -1
        try:
            node = self._cluster.metadata.leader(one.topic, one.partition).node
            connection = await self._cluster.link(node, Purpose.CONTROL).connection()
            if connection.versions.has(LIST_OFFSETS, NEWEST_TIMESTAMP_VERSION):
                _, last_ms = await self._requests.find_offset(one, NEWEST_TIMESTAMP, READ_UNCOMMITTED)
            size_bytes = (await self._sizes_on(node, one.topic, [one.partition])).get(one.partition, 0)
        except KafkaError:
            one.check()
        return Usage(size_bytes, last_ms if last_ms >= 0 else None)

    async def sizes(self, topic: str, partition_count: int) -> Sequence[int]:
        """Return the sizes of the partitions of a topic, 0 where a leader does not tell."""
        leaders: dict[int, list[int]] = {}
        for partition in range(partition_count):
            leaders.setdefault(self._cluster.metadata.leader(topic, partition).node, []).append(partition)
        sizes: dict[int, int] = {}
        for found in await asyncio.gather(*(self._sizes_or_none(node, topic, led) for node, led in leaders.items())):
            sizes |= found
        return [sizes.get(partition, 0) for partition in range(partition_count)]

    async def _sizes_or_none(self, node: int, topic: str, partitions: list[int]) -> Mapping[int, int]:
        try:
            return await self._sizes_on(node, topic, partitions)
        except KafkaError as error:
            log.info("the sizes of topic %r on broker %d are not known: %s", topic, node, error)
            return {}

    async def _sizes_on(self, node: int, topic: str, partitions: list[int]) -> Mapping[int, int]:
        batched = self._sizes.get(node)
        if batched is None:
            batched = self._sizes[node] = BatchedRequests(partial(self._ask_sizes, node), TOPICS_PER_REQUEST_MAX)
        return await batched.ask(topic, DescribableLogDirTopic(topic=topic, partitions=partitions))

    async def _ask_sizes(self, node: int, topics: Sequence[DescribableLogDirTopic]) -> Mapping[str, Mapping[int, int]]:
        request = DescribeLogDirsRequest(topics=list(topics))
        response = await self._cluster.link(node, Purpose.CONTROL).request(DESCRIBE_LOG_DIRS, request)
        # A broker leaves out what it does not have.
        sizes: dict[str, dict[int, int]] = {one.topic: {} for one in topics}
        for directory in response.results:
            for described in directory.topics:
                found = sizes.setdefault(described.name, {})
                for partition in described.partitions:
                    if not partition.is_future_key:
                        index = partition.partition_index
                        found[index] = found.get(index, 0) + partition.partition_size
        return sizes
