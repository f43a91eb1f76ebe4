"""`scripts/bench clients`: what a record costs a Kafka client process, with kwire's wire layer and with aiokafka.

One partition of an Apache Kafka, acks=all, batches of 100 records without compression. The figures are the processor
time of this process per record. Three works: publish the records; fetch them as whole batches, which is what
`StreamLog.read` returns; and fetch and read every record. aiokafka always does the last.
"""

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import aiokafka
import uvloop

from benchmark.house import make_directory, say
from benchmark.samples import Sample
from benchmark.servers import ApacheKafka, RunningServer
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.link import Link, Purpose
from kwire.kafka_client.settings import ClientSettings, addresses_of
from kwire.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from kwire.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from storage.batch.record_batch import parse_header, read_records

FAMILY = "clients"
RECORDS_PER_BATCH = 100
RECORD_BYTES = (100, 1024)
IN_FLIGHT = 5
# The last versions with names of topics.
PRODUCE_VERSION, FETCH_VERSION = 12, 12
FETCH_BYTES = 1024 * 1024
DISK_BYTES = 2 * 1024**3
LEADER_SECONDS = 30.0

Work = Callable[[], Awaitable[int]]


def run_client_works(arguments: list[str]) -> list[Sample]:
    parser = argparse.ArgumentParser(prog="scripts/bench clients", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="records of each work (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="the best of so many rounds counts (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = make_directory(None, DISK_BYTES, False, stack)
        server = RunningServer(ApacheKafka({}), directory / "kafka")
        stack.callback(server.stop)
        uvloop.run(_measure(server.bootstrap, given.records, given.rounds))
    return []


async def _measure(bootstrap: str, records: int, rounds: int) -> None:
    cluster = Cluster(ClientSettings(addresses_of(bootstrap)))
    say("| record | work | kwire's wire layer | aiokafka |\n|---|---|---|---|")
    for size in RECORD_BYTES:
        await _measure_size(cluster, bootstrap, size, records, rounds)
    cluster.close()


async def _measure_size(cluster: Cluster, bootstrap: str, size: int, records: int, rounds: int) -> None:
    value = b"x" * size
    topics = f"wire-{size}", f"aiokafka-{size}"
    await _create(cluster, topics)
    wire = _Wire(cluster, topics[0])
    await _first_publish(wire, value)
    produced = [await _best(lambda: wire.publish(value, records), rounds)]
    produced.append(await _best(lambda: _publish_with_aiokafka(bootstrap, topics[1], value, records), rounds))
    _print(size, "publish", *produced)
    expected = records * rounds
    batches = await _best(lambda: wire.fetch(expected, reads_records=False), rounds)
    read = await _best(lambda: wire.fetch(expected, reads_records=True), rounds)
    other = await _best(lambda: _fetch_with_aiokafka(bootstrap, topics[1], expected), rounds)
    _print(size, "fetch batches", batches, None)
    _print(size, "fetch and read records", read, other)


async def _best(work: Work, rounds: int) -> float:
    """Return the processor time per record of the best round, in microseconds."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        count = await work()
        best = min(best, (time.process_time() - before) / count * 1e6)
    return best


def _print(size: int, work: str, wire: float, other: float | None) -> None:
    say(f"| {size} B | {work} | {wire:.2f} us | {'-' if other is None else f'{other:.2f} us'} |")


async def _create(cluster: Cluster, names: tuple[str, ...]) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    response = await cluster.request_controller(CREATE_TOPICS, CreateTopicsRequest(topics=topics))
    assert not any(one.error_code for one in response.topics), response
    async with asyncio.timeout(LEADER_SECONDS):
        while not all(cluster.metadata.leader(name, 0).node >= 0 for name in names):
            await cluster.refresh(names)


async def _first_publish(wire: "_Wire", value: bytes) -> None:
    """Publish until the broker leads the new partition, which it may not do at once."""
    async with asyncio.timeout(LEADER_SECONDS):
        while True:
            try:
                await wire.publish(value, RECORDS_PER_BATCH)
                return
            except ProduceRefused:
                await wire.reload()


class ProduceRefused(Exception):
    """The broker did not store a batch."""


class _Wire:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    def _link(self, purpose: Purpose) -> Link:
        return self._cluster.link(self._cluster.metadata.leader(self._topic, 0).node, purpose)

    async def reload(self) -> None:
        await self._cluster.refresh([self._topic])

    async def publish(self, value: bytes, records: int) -> int:
        connection = await self._link(Purpose.PRODUCE).connection()
        waiting: deque[asyncio.Future[Any]] = deque()
        for _ in range(records // RECORDS_PER_BATCH):
            bodies = [encode_record_body(None, value, 0, b"") for _ in range(RECORDS_PER_BATCH)]
            batch, _ = build_batch_from_bodies(bodies, time.time_ns() // 1_000_000)
            data = [PartitionProduceData(index=0, records=batch)]
            topic = TopicProduceData(name=self._topic, partition_data=data)
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
            waiting.append(connection.send(PRODUCE, request, version_max=PRODUCE_VERSION))
            if len(waiting) >= IN_FLIGHT:
                _check(await waiting.popleft())
        for one in waiting:
            _check(await one)
        return records

    async def fetch(self, records: int, *, reads_records: bool) -> int:
        link, offset = self._link(Purpose.FETCH), 0
        while offset < records:
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                isolation_level=1,
                topics=[FetchTopic(topic=self._topic, partitions=[asked])],
            )
            response = await link.request(FETCH, request, version_max=FETCH_VERSION)
            data, position = response.responses[0].partitions[0].records, 0
            while len(data) - position > 61:
                header = parse_header(data, position)
                end = position + header.size_bytes
                if end > len(data):
                    break
                if reads_records:
                    for record in read_records(data[position:end], FETCH_BYTES):
                        assert record.value is not None
                position, offset = end, header.last_offset + 1
        return offset


def _check(response: Any) -> None:
    if code := response.responses[0].partition_responses[0].error_code:
        raise ProduceRefused(f"error {code}")


async def _publish_with_aiokafka(bootstrap: str, topic: str, value: bytes, records: int) -> int:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_batch_size=1024 * 1024)
    await producer.start()
    try:
        waiting: deque[asyncio.Future[Any]] = deque()
        for _ in range(records // RECORDS_PER_BATCH):
            for _ in range(RECORDS_PER_BATCH):
                last = await producer.send(topic, value, partition=0)
            waiting.append(last)
            if len(waiting) >= IN_FLIGHT:
                await waiting.popleft()
        for one in waiting:
            await one
    finally:
        await producer.stop()
    return records


async def _fetch_with_aiokafka(bootstrap: str, topic: str, records: int) -> int:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", max_partition_fetch_bytes=FETCH_BYTES
    )
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        count = 0
        while count < records:
            found = await consumer.getmany(timeout_ms=1000)
            count += sum(map(len, found.values()))
    finally:
        await consumer.stop()
    return count
