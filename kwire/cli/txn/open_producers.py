"""The producers that partitions know (DescribeProducers), and their open transactions."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kwire.cli.connection.error_texts import check
from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.values.times import time_text
from kwire.errors import ErrorCode
from kwire.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)

# The highest number of partitions in one request.
PARTITIONS_PER_REQUEST = 1000
# How long to wait for the leader of a new partition, and between two attempts.
LEADER_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.1


class PartitionProducer(NamedTuple):
    """A producer in a partition. Fields that the server does not know are -1."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int

    @property
    def is_open(self) -> bool:
        """Whether the producer has an open transaction in the partition."""
        return self.start_offset >= 0

    def row(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "coordinator_epoch": _known(self.coordinator_epoch),
            "last_sequence": _known(self.last_sequence),
            "last_timestamp": time_text(self.last_timestamp_ms),
            "start_offset": _known(self.start_offset),
        }


def producers_of(client: KafkaClient, partitions: Iterable[TopicPartition]) -> Iterator[PartitionProducer]:
    """Yield the producers that the leaders of partitions know. Raises Refused."""
    wanted = list(partitions)
    deadline = time.monotonic() + LEADER_SECONDS_MAX
    while wanted:
        again: list[TopicPartition] = []
        for at in range(0, len(wanted), PARTITIONS_PER_REQUEST):
            for partition, found in _described(client, wanted[at : at + PARTITIONS_PER_REQUEST]):
                if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and time.monotonic() < deadline:
                    again.append(partition)
                    continue
                check(f"partition {partition}", found.error_code, found.error_message)
                yield from (_producer(partition, one) for one in found.active_producers)
        wanted = again
        if wanted:
            time.sleep(PAUSE_SECONDS)


def _described(
    client: KafkaClient, partitions: list[TopicPartition]
) -> Iterator[tuple[TopicPartition, PartitionResponse]]:
    for node, topics in client.by_leader(partitions):
        asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        for topic in node.request(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=asked)).topics:
            for found in topic.partitions:
                yield TopicPartition(topic.name, found.partition_index), found


def _producer(partition: TopicPartition, state: ProducerState) -> PartitionProducer:
    return PartitionProducer(
        partition,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.current_txn_start_offset,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
