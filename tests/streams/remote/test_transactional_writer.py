"""TransactionalWriter: all batches of a transaction are stored or none, and a later writer fences an earlier one."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.streams.events.reading import read_events
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.transactions.partition_writes import BatchRefused
from kwire.streams.remote.transactions.writer import Fenced, TransactionalWriter, TransactionBatch
from kwire.testing.ports import unused_port
from storage.batch.record_batch import Record, build_batch
from tests.support.apache_cluster import ON_APACHE, ApacheCluster
from tests.support.cutting_proxy import cutting_proxy
from tests.support.effort import repetitions
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs, until
from tests.support.server import HOST, KwireProcess

KWIRE, APACHE = "kwire", "apache"
UPSTREAMS = [
    KWIRE,
    pytest.param(APACHE, marks=ON_APACHE),
]
MAX_BYTES = 10_000
CUTS = repetitions(quick=6, full=40)
_ids = count()


def batch_of(log: RemoteLog, *values: bytes) -> TransactionBatch:
    data = memoryview(bytearray(build_batch([Record(None, value, 1000) for value in values])))
    return TransactionBatch(log.topic, log.topic_id, log.partition, data)


async def values_of(log: RemoteLog) -> list[bytes]:
    """The committed records, after the markers of all transactions."""
    await log.ask_bounds()
    async with asyncio.timeout(30):
        while log.committed_end < log.high_watermark:
            await log.ask_bounds()
    return [event.data for event in await read_events(log, 0, 10_000)]


class Place:
    """A cluster with two topics, and writers with a transactional id of their own."""

    def __init__(self, logs: RemoteLogs) -> None:
        self.logs = logs
        self.transactional_id = f"writer{next(_ids)}"
        self.first: RemoteLog
        self.second: RemoteLog

    async def create(self) -> None:
        names = [f"{self.transactional_id}-{name}" for name in ("first", "second")]
        for name in names:
            await Admin(self.logs.cluster).create_topic(name, 1, {"max.message.bytes": str(MAX_BYTES)})
            # A broker does not know a new topic at once.
            async with asyncio.timeout(30):
                while self.logs.cluster.metadata.leader(name, 0).node < 0:
                    await self.logs.cluster.refresh([name])
        self.first, self.second = [await self.logs.open(name) for name in names]

    async def writer(self) -> TransactionalWriter:
        writer = TransactionalWriter(self.logs.cluster, self.transactional_id)
        await writer.open()
        return writer


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest) -> str:
    param: str = request.param
    return param


@asynccontextmanager
async def place(upstream: str, request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Place]:
    if upstream == KWIRE:
        async with running_node(directory) as node:
            with remote_logs(node.kafka_listeners[0].address) as logs:
                made = Place(logs)
                await made.create()
                yield made
                await logs.close()
    else:
        kafka: ApacheCluster = request.getfixturevalue("apache_kafka")
        with remote_logs(kafka.bootstrap) as logs:
            made = Place(logs)
            await made.create()
            yield made
            await logs.close()


@in_uvloop
async def test_all_batches_of_a_transaction_are_committed(
    upstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with place(upstream, request, tmp_path) as made:
        writer = await made.writer()
        for number in (b"1", b"2", b"3"):
            offsets = await writer.write([batch_of(made.first, number, number), batch_of(made.second, number)])
        # Each transaction has added a marker.
        assert offsets == [6, 4]
        assert await values_of(made.first) == [b"1", b"1", b"2", b"2", b"3", b"3"]
        assert await values_of(made.second) == [b"1", b"2", b"3"]
        assert (writer.committed_count, writer.aborted_count) == (3, 0)
        await writer.close()


@in_uvloop
async def test_a_refused_batch_aborts_the_others(upstream: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with place(upstream, request, tmp_path) as made:
        writer = await made.writer()
        too_large = b"1" * (MAX_BYTES + 1)
        with pytest.raises(BatchRefused) as refused:
            await writer.write([batch_of(made.first, b"1"), batch_of(made.second, too_large)])
        assert refused.value.numbers == (1,)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert writer.aborted_count == 1
        await writer.write([batch_of(made.first, b"2"), batch_of(made.second, b"3")])
        assert await values_of(made.first) == [b"2"]
        assert await values_of(made.second) == [b"3"]


@in_uvloop
async def test_a_deleted_topic_refuses_the_transaction(
    upstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with place(upstream, request, tmp_path) as made:
        writer = await made.writer()
        await writer.write([batch_of(made.first, b"1"), batch_of(made.second, b"1")])
        await Admin(made.logs.cluster).delete_topic(made.second.topic)
        with pytest.raises(BatchRefused) as refused:
            await writer.write([batch_of(made.first, b"2"), batch_of(made.second, b"2")])
        assert refused.value.numbers == (1,)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await values_of(made.first) == [b"1"]


@in_uvloop
async def test_an_offset_that_is_too_low_aborts(upstream: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with place(upstream, request, tmp_path) as made:
        writer = await made.writer()
        with pytest.raises(BatchRefused, match="created again"):
            await writer.write([batch_of(made.first, b"1")._replace(offset_min=1)])
        assert await values_of(made.first) == []


@in_uvloop
async def test_a_later_writer_fences_the_earlier_one(
    upstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with place(upstream, request, tmp_path) as made:
        earlier = await made.writer()
        await earlier.write([batch_of(made.first, b"10")])
        later = await made.writer()
        for _ in range(2):
            with pytest.raises(Fenced, match="another process has taken over"):
                await earlier.write([batch_of(made.first, b"30")])
        assert earlier.is_fenced
        await later.write([batch_of(made.first, b"20")])
        assert not later.is_fenced
        assert await values_of(made.first) == [b"10", b"20"]


@in_uvloop
async def test_a_writer_that_writes_nothing_can_check_that_it_was_not_fenced(
    upstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with place(upstream, request, tmp_path) as made:
        earlier = await made.writer()
        await earlier.check()
        await earlier.write([batch_of(made.first, b"1")])
        await earlier.check()
        with pytest.raises(BatchRefused):
            await earlier.write([batch_of(made.first, b"1")._replace(offset_min=100)])
        # After an aborted transaction it needs another epoch.
        await earlier.check()
        await earlier.check()
        await earlier.write([batch_of(made.first, b"2")])
        assert await values_of(made.first) == [b"1", b"2"]
        end = made.first.high_watermark
        await earlier.check()
        await made.first.ask_bounds(is_exact=True)
        assert made.first.high_watermark == end
        later = await made.writer()
        for _ in range(2):
            with pytest.raises(Fenced):
                await earlier.check()
        await later.check()
        await later.write([batch_of(made.first, b"3")])
        assert await values_of(made.first) == [b"1", b"2", b"3"]


@in_uvloop
async def test_a_later_writer_aborts_an_open_transaction(
    upstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with place(upstream, request, tmp_path) as made:
        earlier = await made.writer()
        # As if its process had stopped between the batch and the end of the transaction.
        await earlier._send([batch_of(made.first, b"40")])
        later = await made.writer()
        await later.write([batch_of(made.first, b"20")])
        with pytest.raises(KafkaError):
            await earlier._commit()
        with pytest.raises(Fenced):
            await earlier.write([batch_of(made.first, b"30")])
        assert await values_of(made.first) == [b"20"]


@in_uvloop
async def test_a_cancelled_caller_does_not_end_the_transaction(
    upstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with place(upstream, request, tmp_path) as made:
        writer = await made.writer()
        caller = asyncio.create_task(writer.write([batch_of(made.first, b"1"), batch_of(made.second, b"1")]))
        await until(lambda: writer._current is not None)
        caller.cancel()
        await writer.write([batch_of(made.first, b"2")])
        assert await values_of(made.first) == [b"1", b"2"]
        assert await values_of(made.second) == [b"1"]


@in_uvloop
async def test_no_transaction_is_lost_or_stored_twice_when_connections_are_cut(tmp_path: Path) -> None:
    """Cuts in requests and answers, at random places of the transactions."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    own_port, proxy_port = unused_port(), unused_port()
    server = KwireProcess(
        tmp_path,
        kafka_port=None,
        settings={
            "listeners": f"PLAINTEXT://{HOST}:{own_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{proxy_port}",
        },
    )
    await asyncio.to_thread(server.restart)
    try:
        async with cutting_proxy(HOST, own_port, proxy_port) as proxy:
            with remote_logs(f"{HOST}:{proxy_port}") as logs:
                made = Place(logs)
                await made.create()
                writer = await made.writer()
                stored = []
                for number in range(CUTS * 3):
                    if number % 3 == 0:
                        proxy.cut_within(chance.choice((10, 40, 70, 100)), of_answers=chance.random() < 0.5)
                    value = str(number).encode()
                    await writer.write([batch_of(made.first, value), batch_of(made.second, value, value)])
                    stored.append(value)
                assert await values_of(made.first) == stored
                assert await values_of(made.second) == [value for value in stored for _ in range(2)]
                await logs.close()
    finally:
        server.kill()
