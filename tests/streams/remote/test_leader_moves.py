"""A partition of an Apache Kafka with two brokers, whose leader moves and dies under load."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.kafka_client.admin import Admin
from kwire.kafka_client.cluster import Cluster
from kwire.wire.messages.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.wire.messages.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from tests.support.apache_kafka import ApacheKafkaProcess, FurtherBroker
from tests.support.node import in_uvloop
from tests.support.remote_traffic import Subscriber, Writer, check_nothing_is_lost
from tests.support.remote_worlds import remote_logs, until

pytestmark = [pytest.mark.needs_java, pytest.mark.full("two brokers of Apache Kafka have to be started")]

RECORDS = 300
PREFERRED = 0
TIMEOUT_MS = 30_000


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[ApacheKafkaProcess, ApacheKafkaProcess]]:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = ApacheKafkaProcess(tmp_path / "first")
    second = FurtherBroker(tmp_path / "second", first, 2)
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        second.kill()
        first.kill()


async def _lead(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Move the leader to the first of these replicas."""
    asked = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[asked])
    response = await cluster.request_controller(ALTER_PARTITION_REASSIGNMENTS, request)
    assert not response.error_code, response
    election = ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=[TopicPartitions(topic=topic, partitions=[0])],
        timeout_ms=TIMEOUT_MS,
    )
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while cluster.metadata.leader(topic, 0).node != replicas[0]:
            await cluster.request_controller(ELECT_LEADERS, election)
            await cluster.refresh([topic])


@in_uvloop
async def test_a_leader_that_moves_and_one_that_dies(
    brokers: tuple[ApacheKafkaProcess, ApacheKafkaProcess],
) -> None:
    first, second = brokers
    with remote_logs(f"{first.bootstrap},{second.bootstrap}") as logs:
        cluster = logs.cluster
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while len(cluster.metadata.brokers) < 2:
                await cluster.refresh()
        await Admin(cluster).create_topic("orders", 1, {"retention.ms": "-1"}, replication_factor=2)
        log = await logs.open("orders")
        await log.ready()
        writer, subscriber = Writer(log), Subscriber(log)
        reading = asyncio.create_task(subscriber.run())
        for leader, other in ((1, 2), (2, 1), (1, 2), (2, 1)):
            writing = asyncio.create_task(writer.write(RECORDS))
            await _lead(cluster, "orders", [leader, other])
            await writing
        # The leader is broker 2 now, which is not a controller.
        writing = asyncio.create_task(writer.write(RECORDS))
        await asyncio.to_thread(second.kill)
        await writing
        await writer.finish()
        assert not writer.failed
        stored = await check_nothing_is_lost(first.bootstrap, "orders", writer)
        assert len(stored) == 5 * RECORDS
        await until(lambda: subscriber.next_offset > stored[-1][0])
        assert subscriber.records == stored
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await logs.close()
