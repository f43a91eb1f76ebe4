"""A real server on a machine in trouble, and the conditions of the alerts that such a machine causes.

The disk is slow, file descriptors are scarce, event files and checkpoints cannot be written, and a transaction is older
than fifteen minutes. The last needs no waiting: the transaction begins on a server whose clock is behind.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka import Producer

from tests.support import wrong_clock_server
from tests.support.server import HOST, KwireProcess, wait_until
from tests.support.slow_disk import ROOT, SlowDiskProcess
from tests.support.stuck_clients import connected

# The limit of the process. Connections get nine tenths of these; the rest is reserved for the log.
DESCRIPTORS = 1000
OPEN_LOGS_MAX = 16
USED_SHARE = 0.88
# Older than the limits of the alerts on transactions and event files.
AGE_S = 1200
HOUR_MS = 3_600_000
DISK_DELAY_S = 1.2
SYNC_TIMEOUT_S = 20.0
# More than the buffers of a connection take.
LARGE_EVENTS, LARGE_EVENT_BYTES = 40, 100_000
SETTINGS = {
    "kwire.log.open.max": str(OPEN_LOGS_MAX),
    "kwire.rooms.broadcast.timeout.ms": "200",
    "log.retention.check.interval.ms": "500",
    "transaction.max.timeout.ms": str(HOUR_MS),
}
EVENTS, EXPIRED = "events", "expired"


class WrongClockProcess(KwireProcess):
    """A server whose wall clock is `seconds` ahead, or behind if the number is negative."""

    def __init__(self, directory: Path, seconds: int) -> None:
        super().__init__(directory, settings=SETTINGS, env={"PYTHONPATH": str(ROOT)})
        self._seconds = seconds

    def command(self) -> list[str]:
        _, *arguments = super().command()
        return [sys.executable, "-m", wrong_clock_server.__name__, str(self._seconds), *arguments]


class StrainedServer(SlowDiskProcess):
    """A server with few file descriptors."""

    def __init__(self, directory: Path) -> None:
        self.event_files = directory / "files"
        super().__init__(directory, {**SETTINGS, "kwire.events.files.dir": str(self.event_files)})

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *super().command()]

    @property
    def metrics_address(self) -> str:
        return f"{HOST}:{self.http_port}"

    def begin(self) -> None:
        """Begin a transaction on a server whose clock is behind, then start this one with the same data."""
        earlier = WrongClockProcess(self.directory, -AGE_S)
        earlier.start()
        try:
            earlier.ready()
            _begin_transaction(earlier.bootstrap)
        finally:
            earlier.kill()
        self.start()
        self.ready()

    def break_event_files(self) -> None:
        """Put a file in the place of the directory, so that nothing can be written there."""
        self.event_files.rename(self.event_files.with_suffix(".moved"))
        self.event_files.touch()

    def break_checkpoint(self, topic: str) -> None:
        """Put a folder in the place of the file that becomes the next checkpoint: the log start cannot be stored."""
        path = self.data_dir / f"{topic}-0" / "checkpoint.new"

        def is_made() -> bool:
            with suppress(FileExistsError):  # the server is writing a checkpoint
                path.mkdir()
            return path.is_dir()

        wait_until(is_made, f"{path} is a folder")

    @contextmanager
    def few_descriptors_left(self) -> Iterator[None]:
        """Hold as many connections as leave few descriptors to others."""
        used = len(os.listdir(f"/proc/{self.pid}/fd"))
        with ExitStack() as stack:
            for _ in range(int(DESCRIPTORS * USED_SHARE) - used):
                stack.enter_context(socket.create_connection(self.kafka_address))
            yield


def _begin_transaction(bootstrap: str) -> None:
    """Begin a transaction that nobody ends."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "abandoned", "transaction.timeout.ms": HOUR_MS}
    )
    producer.init_transactions(SYNC_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("transactional", b"pending")
    assert producer.flush(SYNC_TIMEOUT_S) == 0


@asynccontextmanager
async def strained(server: StrainedServer) -> AsyncIterator[None]:
    """Inside, all conditions hold. They are made after the first scrape, because an increase is seen only then."""
    old_ms = int((time.time() - AGE_S) * 1000)
    async with (
        aiohttp.ClientSession(server.http_url, raise_for_status=True) as session,
        AIOKafkaProducer(bootstrap_servers=server.bootstrap, enable_idempotence=False) as producer,
    ):
        await session.post("/topics", json={"name": EVENTS, "schemas": [{"eventType": "message"}]})
        server.break_event_files()
        for topic in (EVENTS, EXPIRED):
            await producer.send_and_wait(topic, b"{}", timestamp_ms=old_ms)
        server.break_checkpoint(EXPIRED)
        await _expire(server.bootstrap, EXPIRED)
        with connected(server) as subscriber, server.few_descriptors_left():
            await _do_not_read(subscriber, session)
            server.slow_down(DISK_DELAY_S)
            producing = asyncio.create_task(_produce(producer))
            try:
                yield
            finally:
                producing.cancel()
                with suppress(asyncio.CancelledError):
                    await producing
                server.speed_up()


async def _expire(bootstrap: str, topic: str) -> None:
    """Set a retention that is shorter than the age of the topic's records."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"})])
    finally:
        await admin.close()


async def _do_not_read(subscriber: socket.socket, session: aiohttp.ClientSession) -> None:
    """Subscribe to a room and read nothing of its events."""
    path = "/rooms/lobby/subscribe"
    large = {"event_type": "said", "data": "x" * LARGE_EVENT_BYTES}
    await session.post("/rooms/lobby/events", json=large)
    subscriber.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n\r\n".encode())
    # The subscription has begun when its answer begins to come.
    await asyncio.to_thread(subscriber.recv, 1)
    for _ in range(LARGE_EVENTS):
        await session.post("/rooms/lobby/events", json=large)


async def _produce(producer: AIOKafkaProducer) -> None:
    while True:
        await producer.send_and_wait("orders", b"record")
