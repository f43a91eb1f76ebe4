"""Usages: asks for the size and the newest timestamp of a remote log."""

from typing import TYPE_CHECKING

from kwire.errors import KafkaError
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


class Usages:
    def __init__(self, cluster: Cluster, requests: LeaderRequests) -> None:
        self._cluster = cluster
        self._requests = requests

    async def ask(self, log: "RemoteLog") -> Usage:
        """Return the size of a log and its newest timestamp, as far as the cluster allows: DescribeLogDirs needs the
        permission to describe the cluster."""
        size_bytes, last_ms = 0, -1
        try:
            node = self._cluster.metadata.leader(log.topic, log.partition).node
            link = self._cluster.link(node, Purpose.CONTROL)
            connection = await link.connection()
            if connection.versions.has(LIST_OFFSETS, NEWEST_TIMESTAMP_VERSION):
                _, last_ms = await self._requests.find_offset(log, NEWEST_TIMESTAMP, READ_UNCOMMITTED)
            request = DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=log.topic, partitions=[log.partition])]
            )
            response = await link.request(DESCRIBE_LOG_DIRS, request)
            size_bytes = sum(
                partition.partition_size
                for directory in response.results
                for topic in directory.topics
                for partition in topic.partitions
                if not partition.is_future_key
            )
        except KafkaError:
            log.check()
        return Usage(size_bytes, last_ms if last_ms >= 0 else None)
