"""Faults between a remote log and its cluster: nothing acknowledged is lost, stored twice or delivered out of order."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kwire.kafka_client.admin import Admin
from kwire.streams.remote.log import RemoteLog
from kwire.testing.ports import unused_port
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.effort import repetitions
from tests.support.node import in_uvloop
from tests.support.remote_traffic import Subscriber, Writer, check_nothing_is_lost
from tests.support.remote_worlds import remote_logs, until
from tests.support.server import HOST, KwireProcess

TOPIC = "orders"
RECORDS = repetitions(quick=400, full=2000)
CUTS = repetitions(quick=4, full=20)
SLOW_S = 0.05


class Upstream:
    """A server, the proxy that its clients use, and a log with a writer and a subscriber."""

    def __init__(self, server: KwireProcess, proxy: CuttingProxy, log: RemoteLog) -> None:
        self.server = server
        self.proxy = proxy
        self.log = log
        self.writer = Writer(log)
        self.subscriber = Subscriber(log)

    async def check(self) -> None:
        """What holds after the faults."""
        await self.writer.finish()
        stored = await check_nothing_is_lost(self.server.bootstrap, TOPIC, self.writer)
        await until(lambda: self.subscriber.next_offset > stored[-1][0])
        assert self.subscriber.records == stored


@asynccontextmanager
async def upstream(directory: Path) -> AsyncIterator[Upstream]:
    own_port, proxy_port = unused_port(), unused_port()
    server = KwireProcess(
        directory,
        kafka_port=None,
        settings={
            "listeners": f"PLAINTEXT://{HOST}:{own_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{proxy_port}",
        },
    )
    await asyncio.to_thread(server.restart)
    server.kafka_port = own_port
    try:
        async with cutting_proxy(HOST, own_port, proxy_port) as proxy:
            with remote_logs(f"{HOST}:{proxy_port}") as logs:
                await Admin(logs.cluster).create_topic(TOPIC, 1)
                log = await logs.open(TOPIC)
                await log.ready()
                made = Upstream(server, proxy, log)
                reading = asyncio.create_task(made.subscriber.run())
                try:
                    yield made
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                    await logs.close()
    finally:
        server.kill()


@in_uvloop
async def test_connections_that_are_cut_again_and_again(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    async with upstream(tmp_path) as made:
        for _ in range(CUTS):
            await made.writer.write(chance.randrange(1, RECORDS // 4))
            made.proxy.cut()
        await made.check()
        assert not made.writer.failed


@in_uvloop
async def test_a_request_and_an_answer_that_are_cut_in_the_middle(tmp_path: Path) -> None:
    async with upstream(tmp_path) as made:
        await made.writer.write(50)
        await made.writer.finish()
        for of_answers in (False, True):
            for size in (20, 100, 150):
                made.proxy.cut_within(size, of_answers=of_answers)
                while made.proxy.is_to_cut:
                    await made.writer.write(10)
                    await made.writer.finish()
        await made.check()
        assert not made.writer.failed


@in_uvloop
async def test_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    async with upstream(tmp_path) as made:
        for _ in range(2):
            await made.writer.write(RECORDS // 2)
            writing = asyncio.create_task(made.writer.write(RECORDS // 2))
            await asyncio.to_thread(made.server.kill)
            await asyncio.to_thread(made.server.restart)
            made.server.kafka_port = int(made.server.settings["listeners"].rpartition(":")[2])
            await writing
        await made.check()
        assert not made.writer.failed


@in_uvloop
async def test_a_slow_cluster(tmp_path: Path) -> None:
    async with upstream(tmp_path) as made:
        made.proxy.delay_s = SLOW_S
        await made.writer.write(RECORDS // 4)
        await made.check()
        assert not made.writer.failed
