"""A real server with everything that the dashboard shows, load for it, and the conditions of alerts.

Kafka clients are super users. HTTP clients log in: `admin` is a super user, `mallory` has no rights. Prometheus reads
the separate listener, without a login. With `disk`, a second data directory is on a small disk that is almost full.
"""

import asyncio
import os
import signal
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.pipeline.batch_facts import BatchFacts
from kwire.pipeline.metrics import Metrics, serving
from kwire.testing.ports import unused_port
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.server.frames import CLIENT_ID, Client
from tests.support.access_commands import run_with_password, succeeded
from tests.support.acls import GROUP, creation, row
from tests.support.batches import make_batch
from tests.support.certificates import Authority
from tests.support.quotas import alteration, entry
from tests.support.server import HOST, KwireProcess
from tests.support.small_disk import SmallDisk
from tests.support.webhook_receiver import Receiver, Reply

PASSWORD = "a password of a user"
# Each group is behind by records with this age.
LAG_SECONDS = 3600
CONNECTIONS_PER_IP = 60
# The pause between two requests of the load.
PAUSE_S = 0.05
DISK_BYTES = 64 * 1024 * 1024
# With the reserve of the server, this leaves less than a tenth.
BALLAST_BYTES = DISK_BYTES * 88 // 100
# Topics whose files are damaged while the server is stopped.
FLIPPED, CUT, GONE = "flipped", "cut", "gone"
# The ACLs of a request. The names are long, so that fewer changes than 10,000 fill the queue of audit entries.
ACLS_PER_REQUEST, ACL_NAME = 200, "界" * 900


class MonitoredServer(KwireProcess):
    """The server. Its listeners are an open one and one with TLS, whose certificate has expired."""

    def __init__(self, directory: Path, disk: SmallDisk | None) -> None:
        directory.mkdir(parents=True)
        self._disk = disk
        self.monitoring = f"{HOST}:{unused_port()}"
        kafka_port = unused_port()
        data_dirs = [directory / "data", *([disk.path / "data"] if disk is not None else [])]
        settings = {
            "listeners": f"PLAINTEXT://{HOST}:{kafka_port},SSL://{HOST}:{unused_port()}",
            "log.dirs": ",".join(map(str, data_dirs)),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(Authority(directory).server(is_expired=True)),
            "kwire.authorizer": "acl",
            "super.users": "User:admin;User:ANONYMOUS",
            "kwire.http.authentication": "basic",
            "kwire.http.monitoring.listener": self.monitoring,
            "kwire.events.files.dir": str(directory / "files"),
            "kwire.webhooks.allow.private": "true",
            "kwire.webhooks.retry.schedule.ms": "",
            # No partition is created on the disk that will be full.
            "cordoned.log.dirs": "" if disk is None else str(data_dirs[1]),
            "max.connections.per.ip": str(CONNECTIONS_PER_IP),
        }
        super().__init__(directory, settings=settings, kafka_port=None, names_data_dir=False)
        self.kafka_port = None
        self.open_port = kafka_port
        for user in ("admin", "mallory"):
            succeeded(run_with_password(PASSWORD, "user", "create", user, "--data-dir", data_dirs[0]))

    def command(self) -> list[str]:
        self.kafka_port = None  # the listeners are a setting
        command = super().command()
        if self._disk is None:
            return command
        return ["nsenter", f"--mount=/proc/{self._disk.keeper_pid}/ns/mnt", *command]

    def stall(self, times: int) -> None:
        """Stop the process for moments, so that its event loop does not run."""
        for _ in range(times):
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.15)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.05)

    def damage_files(self) -> None:
        """Damage the logs of topics of a server that was killed. Nothing can be appended to the audit log."""
        folders = {
            path.name: path for data in self.settings["log.dirs"].split(",") for path in self._seen(data).iterdir()
        }
        flipped = max(folders[f"{FLIPPED}-0"].glob("*.log"))
        data = bytearray(flipped.read_bytes())
        data[70] ^= 1
        flipped.write_bytes(data)
        for topic in (CUT, AUDIT_TOPIC):
            cut = max(folders[f"{topic}-0"].glob("*.log"))
            os.truncate(cut, _end_of_records(cut) - 5)
        for path in sorted(folders[f"{GONE}-0"].iterdir()):
            path.unlink()
        folders[f"{GONE}-0"].rmdir()

    def _seen(self, data_dir: str) -> Path:
        """Where the test sees a data directory of the server."""
        if self._disk is not None and Path(data_dir).is_relative_to(self._disk.path):
            return self._disk.outside / Path(data_dir).relative_to(self._disk.path)
        return Path(data_dir)


def _end_of_records(path: Path) -> int:
    """The end of what was written. Segments are preallocated with zeros."""
    return len(path.read_bytes().rstrip(b"\x00"))


class Load:
    """Clients of the server that use everything which is measured."""

    def __init__(self, server: MonitoredServer, session: aiohttp.ClientSession, receiver: Receiver) -> None:
        self._server = server
        self._session = session
        self._receiver = receiver
        self._tasks: list[asyncio.Task[None]] = []

    async def post(self, path: str, body: Any, user: str = "admin", password: str = PASSWORD) -> int:
        headers = {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}
        async with self._session.post(self._server.http_url + path, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def prepare(self) -> None:
        """Create topics, groups that are behind, a quota, and webhooks."""
        producer, bootstrap = self._producer(), f"{HOST}:{self._server.open_port}"
        old_ms = int((time.time() - LAG_SECONDS) * 1000)
        async with producer:
            for topic in (FLIPPED, CUT, GONE, "orders"):
                for _ in range(3):
                    await producer.send_and_wait(topic, b"old", timestamp_ms=old_ms)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="ended", enable_auto_commit=False)
        async with consumer:
            partition = TopicPartition("orders", 0)
            consumer.assign([partition])
            await consumer.commit({partition: 1})
        async with await Client.connect(self._server.open_port) as client:
            quota = entry({"client-id": CLIENT_ID.decode()}, {"producer_byte_rate": 1000.0})
            await client.ask(alteration(quota), 1)
        assert await self.post("/topics", {"name": "events", "schemas": [{"eventType": "made"}]}) == 201
        for path in ("works", "fails", "fails", "gone"):
            url = self._receiver.url.replace("hook", path)
            assert await self.post("/webhooks", {"url": url, "topics": {"events": None}, "mode": "parallel"}) == 201

    def _producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=f"{HOST}:{self._server.open_port}", enable_idempotence=False)

    def start(self) -> None:
        works = (self._produce(), self._exceed_quota(), self._consume(), self._publish(), self._subscribe())
        self._tasks = [asyncio.create_task(work) for work in works]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    async def _produce(self) -> None:
        async with self._producer() as producer:
            while True:
                await producer.send_and_wait("orders", bytes(1000))
                await asyncio.sleep(PAUSE_S)

    async def _exceed_quota(self) -> None:
        batch = bytes(make_batch(value=bytes(20_000)))
        sent = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])
        while True:
            # A new connection each time, because the server reads nothing more from the one that is throttled.
            async with await Client.connect(self._server.open_port) as client:
                # It is closed if there are too many connections.
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[sent]), 9)
            await asyncio.sleep(PAUSE_S)

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=f"{HOST}:{self._server.open_port}",
            group_id="active",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
        )
        async with consumer:
            async for _ in consumer:
                pass

    async def _publish(self) -> None:
        while True:
            assert await self.post("/rooms/lobby/events", {"event_type": "said", "data": "hello"}) == 201
            assert await self.post("/events", {"topic": "events", "type": "made", "payload": {}}) == 201
            await asyncio.sleep(PAUSE_S)

    async def _subscribe(self) -> None:
        headers = {"Authorization": "Basic " + b64encode(f"admin:{PASSWORD}".encode()).decode()}
        url = f"{self._server.http_url}/rooms/lobby/subscribe"
        async with self._session.ws_connect(url, headers=headers) as socket:
            async for _ in socket:
                pass

    async def fail_logins(self, count: int) -> None:
        """Log in with a wrong password, at the same time."""
        statuses = await asyncio.gather(
            *(self.post("/rooms/lobby/events", {}, "mallory", "wrong") for _ in range(count))
        )
        assert set(statuses) == {401}

    async def be_denied(self, count: int) -> None:
        for _ in range(count):
            assert await self.post("/rooms/lobby/events", {"event_type": "said", "data": 1}, "mallory") == 403

    async def open_too_many_connections(self) -> None:
        sockets = [await asyncio.open_connection(HOST, self._server.open_port) for _ in range(CONNECTIONS_PER_IP + 5)]
        for _, writer in sockets:
            writer.close()
        for _, writer in sockets:
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def publish_to_a_read_only_log(self) -> None:
        """Publish again and again, because a rate needs two scrapes."""
        while True:
            assert await self.post(f"/topics/{CUT}/publish", {"event_type": "x", "data": 1}) >= 500
            await asyncio.sleep(PAUSE_S)

    async def change_acls(self) -> None:
        """Create ACLs again and again. More audit entries wait than may, because the audit log cannot be written."""
        async with await Client.connect(self._server.open_port) as client:
            for first in count(step=ACLS_PER_REQUEST):
                names = [f"{number}{ACL_NAME}" for number in range(first, first + ACLS_PER_REQUEST)]
                acls = [row(name, resource_type=GROUP, principal=f"User:{name}") for name in names]
                answer = await client.ask(creation(*acls), 3)
                assert {one.error_code for one in answer.results} == {0}


def _reply(path: str) -> Reply:
    return Reply(410) if path == "/gone" else Reply(500) if path == "/fails" else Reply()


@asynccontextmanager
async def load_of(server: MonitoredServer) -> AsyncIterator[Load]:
    receiver = Receiver()
    receiver.reply = lambda got: _reply(got.path)
    await receiver.start()
    try:
        # The server is restarted: no connection is used again.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            load = Load(server, session, receiver)
            await load.prepare()
            load.start()
            try:
                yield load
            finally:
                await load.stop()
    finally:
        await receiver.stop()


@asynccontextmanager
async def pipeline_job() -> AsyncIterator[str]:
    """The address of the metrics of a job of the pipeline, without Spark: batches that leave many events unread."""
    metrics, address = Metrics("lake"), f"{HOST}:{unused_port()}"
    facts = BatchFacts(
        query="orders",
        batch_id=1,
        read_events=10,
        input_rows_per_second=10.0,
        processed_rows_per_second=20.0,
        duration_ms=500,
        lag_events=1_000_000,
        watermark=datetime.now(UTC),
        state_rows=3,
        late_rows=1,
    )

    async def run_batches() -> None:
        while True:
            metrics.batch(facts)
            await asyncio.sleep(PAUSE_S)

    with serving(metrics, address):
        batches = asyncio.create_task(run_batches())
        yield address
        batches.cancel()
