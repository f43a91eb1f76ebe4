"""Worlds of remote logs: a kwire server in this process, or an Apache Kafka, is the upstream of the logs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.kafka_client.admin import Admin
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.settings import ClientSettings, addresses_of
from kwire.node import Node
from kwire.streams.log import StreamLog
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.partition_queue import State
from storage.batch.record_batch import Record
from tests.support.apache_cluster import ON_APACHE, ApacheCluster
from tests.support.foreign_clients import ForeignTransactions
from tests.support.node import running_node
from tests.support.partition_log import log_of
from tests.support.stream_worlds import MAX_BATCH_BYTES, NOW_MS, LocalWorld, MemoryWorld, StreamWorld
from tests.support.transactions import TransactionalProducer

WAIT_S = 30.0
POLL_S = 0.002
# Records of these tests are old.
CONFIGS = {"max.message.bytes": str(MAX_BATCH_BYTES), "retention.ms": "-1"}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(POLL_S)


@contextmanager
def remote_logs(upstream: str | ClientSettings) -> Iterator[RemoteLogs]:
    """The client of a cluster, by its addresses or its settings. Pauses between attempts are not random."""
    lanes = DiskLanes()
    settings = ClientSettings(addresses_of(upstream)) if isinstance(upstream, str) else upstream
    cluster = Cluster(settings, lambda: 0.5)
    try:
        yield RemoteLogs(cluster, lanes.read)
    finally:
        cluster.close()
        lanes.close()


class RemoteWorld(StreamWorld):
    """What the worlds of both upstreams have in common. `self.logs` is set by `start`."""

    sees_uncommitted = False

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._is_held = False
        self._opened: list[RemoteLog] = []
        self.logs: RemoteLogs

    async def stop(self) -> None:
        await self._stack.aclose()

    def connect(self, bootstrap: str) -> None:
        self.logs = self._stack.enter_context(remote_logs(bootstrap))
        self.admin = Admin(self.logs.cluster)
        self._stack.push_async_callback(self.logs.close)

    async def settle(self) -> None:
        for log in self._opened:
            if log.is_gone:
                continue
            if not self._is_held:
                await until(partial(self._has_appended, log))
            await log.ask_bounds()
            await until(partial(self._has_arrived, log))

    def _has_appended(self, log: RemoteLog) -> bool:
        return log.queue.state is State.IDLE

    def _has_arrived(self, log: RemoteLog) -> bool:
        position = log.position
        if not log.is_watched:
            return True
        return self.logs.followers.is_fetching(log) and position is not None and position >= log.committed_end

    async def opened(self, name: str) -> RemoteLog:
        log = await self.logs.open(name)
        self._opened.append(log)
        await log.ready()
        return log

    async def until_gone(self, log: StreamLog) -> None:
        async with asyncio.timeout(WAIT_S):
            while not log.is_gone:
                await self.logs.cluster.refresh([log.topic])

    def find(self, name: str) -> StreamLog:
        log = self.logs.find(name)
        assert log is not None
        return log


class RemoteKwireWorld(RemoteWorld):
    """The upstream is a kwire server on loopback in this process, so a test can hold its commits."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._held: list[Partition] = []
        self._producers: dict[tuple[StreamLog, int], TransactionalProducer] = {}
        self.node: Node

    async def start(self) -> None:
        self.node = await self._stack.enter_async_context(running_node(self._directory))
        self.connect(self.node.kafka_listeners[0].address)
        syncs = self.node._syncs
        self._add = syncs.add
        syncs.add = self._held_add  # type: ignore[method-assign]

    def _held_add(self, partition: Partition) -> None:
        self._held.append(partition) if self._is_held else self._add(partition)

    async def create(self, name: str = "room") -> RemoteLog:
        await self.admin.create_topic(name, 1, {**CONFIGS, "kwire.log.sync": "group"})
        return await self.opened(name)

    async def delete(self, log: StreamLog) -> None:
        await self.admin.delete_topic(log.topic)
        await self.until_gone(log)

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        held, self._held = self._held, []
        for partition in dict.fromkeys(held):
            self._add(partition)

    async def send(self, log: StreamLog, producer_id: int, *values: bytes, at_ms: int = NOW_MS) -> None:
        await self.settle()
        self._producer(log, producer_id).send_records([Record(None, value, at_ms) for value in values])

    async def end(self, log: StreamLog, producer_id: int, *, is_commit: bool) -> None:
        await self.settle()
        producer = self._producer(log, producer_id)
        producer.commit() if is_commit else producer.abort()
        await self._synced(log)

    async def delete_before(self, log: StreamLog, offset: int) -> None:
        await self.settle()
        log_of(self._topic(log.topic).partitions[0]).advance_log_start_offset(offset)

    async def settle(self) -> None:
        for log in self._opened:
            if not log.is_gone:
                await self._synced(log)
        await super().settle()

    async def _synced(self, log: StreamLog) -> None:
        partition = self._topic(log.topic).partitions[0]
        if not self._is_held:
            await until(lambda: partition.high_watermark == partition.log_end_offset)

    def _producer(self, log: StreamLog, producer_id: int) -> TransactionalProducer:
        key = log, producer_id
        if key not in self._producers:
            self._producers[key] = TransactionalProducer(self._topic(log.topic).partitions[0], producer_id)
        return self._producers[key]

    def _topic(self, name: str) -> Topic:
        topic = self.node._shared.services.topics.get(name)
        assert topic is not None
        return topic


class RemoteApacheWorld(RemoteWorld):
    """The upstream is an Apache Kafka, which all tests of a run share."""

    _numbers = count()

    def __init__(self, kafka: ApacheCluster) -> None:
        super().__init__()
        self._kafka = kafka
        self._names: set[str] = set()

    async def start(self) -> None:
        self.connect(self._kafka.bootstrap)
        self._transactions = ForeignTransactions(self._kafka.bootstrap, f"world{next(self._numbers)}")

    async def stop(self) -> None:
        await self._transactions.stop()
        for name in self._names:
            await self.admin.delete_topic(name)
        await super().stop()

    async def create(self, name: str = "room") -> RemoteLog:
        await self.admin.create_topic(name, 1, CONFIGS)
        self._names.add(name)
        # A broker does not know a new topic at once.
        async with asyncio.timeout(WAIT_S):
            while self.logs.cluster.metadata.leader(name, 0).node < 0:
                await self.logs.cluster.refresh([name])
        return await self.opened(name)

    async def delete(self, log: StreamLog) -> None:
        self._names.discard(log.topic)
        await self.admin.delete_topic(log.topic)
        await self.until_gone(log)

    def hold(self) -> None:
        raise AssertionError("the commits of an Apache Kafka cannot be held")

    def release(self) -> None:
        """Nothing is held."""

    async def send(self, log: StreamLog, producer_id: int, *values: bytes, at_ms: int = NOW_MS) -> None:
        await self.settle()
        await self._transactions.send(log.topic, producer_id, values, at_ms)

    async def end(self, log: StreamLog, producer_id: int, *, is_commit: bool) -> None:
        await self.settle()
        assert isinstance(log, RemoteLog)
        before = log.high_watermark
        await self._transactions.end(producer_id, is_commit=is_commit)
        # The broker answers before it writes the marker.
        async with asyncio.timeout(WAIT_S):
            while log.high_watermark == before:
                await log.ask_bounds()

    async def delete_before(self, log: StreamLog, offset: int) -> None:
        await self.settle()
        await self.admin.delete_records(log.topic, 0, offset)


# The worlds in which commits can be held.
HOLDING_WORLDS = ["local", "memory", "remote-kwire"]
WORLDS = [
    *HOLDING_WORLDS,
    pytest.param("remote-apache", marks=ON_APACHE),
]


def make_world(name: str, request: pytest.FixtureRequest, directory: Path) -> StreamWorld:
    match name:
        case "local":
            return LocalWorld(directory)
        case "memory":
            return MemoryWorld(directory)
        case "remote-kwire":
            return RemoteKwireWorld(directory)
        case _:
            return RemoteApacheWorld(request.getfixturevalue("apache_kafka"))
