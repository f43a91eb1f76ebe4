"""`kwire bridge` as a process: its start, its errors, its logins, and kills of the cluster and of the bridge."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer

from kwire.bridge.process import Bridge
from kwire.client import AsyncClient, ConnectionLost, Event, Published, Refused, Unreachable
from kwire.config import load
from kwire.errors import KafkaError
from kwire.exit_codes import CANNOT_RUN, FAILED
from kwire.kafka_client.settings import ClientSettings, addresses_of
from kwire.streams.remote_rooms import upstream_check
from kwire.testing.ports import unused_port
from kwire.wire.messages.metadata import METADATA
from tests.support.apache_cluster import ApacheCluster, on_apache
from tests.support.bridge_process import BridgeProcess
from tests.support.http_access import basic
from tests.support.node import in_loop, in_uvloop
from tests.support.server import HOST, KwireProcess, kwire_command

WAIT_S = 30.0
EVENT = {"event_type": "message", "data": {"n": 1}}
StartKwire = Callable[..., KwireProcess]


@pytest.fixture
def start_bridge(tmp_path: Path) -> Iterator[Callable[..., BridgeProcess]]:
    started: list[BridgeProcess] = []

    def start(upstream: str, name: str = "bridge", **options: object) -> BridgeProcess:
        bridge = BridgeProcess(tmp_path / name, upstream, **options)  # type: ignore[arg-type]
        started.append(bridge)
        bridge.start()
        bridge.ready()
        return bridge

    yield start
    for bridge in started:
        bridge.kill()


def client_of(bridge: BridgeProcess) -> AsyncClient:
    return AsyncClient(bridge.http_url, timeout_s=WAIT_S, retry_delay_s_min=0.02, retry_delay_s_max=0.2)


@in_loop
async def test_a_bridge_serves_rooms_that_kafka_clients_share(
    upstream_kwire: KwireProcess, start_bridge: Callable[..., BridgeProcess]
) -> None:
    bridge = start_bridge(upstream_kwire.bootstrap)
    assert bridge.ready_line == f"ready http={HOST}:{bridge.http_port} upstream={upstream_kwire.bootstrap}"
    async with client_of(bridge) as client:
        await client.rooms.create("shared", retention_hours=3)
        stored = await client.stream.publish("shared", "message", {"n": 1})
    consumer = AIOKafkaConsumer("shared", bootstrap_servers=upstream_kwire.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        record = await asyncio.wait_for(consumer.getone(), WAIT_S)
    finally:
        await consumer.stop()
    assert (record.offset, record.value, dict(record.headers)["ce_type"]) == (stored.offset, b'{"n":1}', b"message")
    async with aiohttp.ClientSession(bridge.http_url) as http:
        async with http.get("/metrics") as answer:
            metrics = await answer.text()
        assert "kwire_bridge_connections_opened_total" in metrics
        assert "kwire_rooms 1.0" in metrics
        async with http.get("/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        assert "/rooms/{room}/events" in paths
        assert "/topics/{topic}/publish" in paths
        assert "/topics/{topic}/partitions/{partition}/segments" not in paths
        for method, path in (
            ("GET", "/topics/shared/partitions/0/segments"),
            ("GET", "/admin/node"),
        ):
            async with http.request(method, path) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (404, "NotServedByBridge")
        async with http.get("/about") as answer:
            about = await answer.json()
        assert (about["engine"], about["upstream"]) == ("bridge", [upstream_kwire.bootstrap])
        assert "GET /admin/node" in about["not_served"]
        assert not {"GET /rooms", "GET /overview", "POST /events", "GET /subscribe/all"} & set(about["not_served"])
        async with http.get("/", headers={"Accept": "text/html"}) as answer:
            assert (answer.status, answer.url.path) == (200, "/console")
        async with http.get("/no/such/path") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "NotFound")
    assert await asyncio.to_thread(bridge.stop) == 0
    await asyncio.to_thread(bridge.restart)
    async with client_of(bridge) as client:
        info = await client.rooms.get("shared")
        assert info.facts["retention"]["hours"] == 3
        await client.rooms.delete("shared")


def outcome(*arguments: str) -> tuple[int, list[str]]:
    """The exit code of a bridge that does not start, and what it says about it."""
    command = [str(kwire_command()), "bridge", "--log-level", "ERROR", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    upstream = f"{HOST}:{unused_port()}"
    code, lines = outcome("--upstream", upstream, "--http", f"{HOST}:0", "--data-dir", str(tmp_path / "d"))
    assert (code, lines) == (
        CANNOT_RUN,
        [f"kwire: cannot start: {upstream} cannot be reached: Connection refused"],
    )
    # The lock of the directory is free again.
    assert outcome("--upstream", upstream, "--http", f"{HOST}:0", "--data-dir", str(tmp_path / "d")) == (code, lines)
    assert outcome("--upstream", "nowhere", "--data-dir", str(tmp_path))[0] == CANNOT_RUN


def test_one_data_directory_has_one_bridge_and_no_server(
    upstream_kwire: KwireProcess, start_bridge: Callable[..., BridgeProcess]
) -> None:
    bridge = start_bridge(upstream_kwire.bootstrap)
    same = ("--upstream", upstream_kwire.bootstrap, "--http", f"{HOST}:0", "--data-dir")
    code, (line,) = outcome(*same, str(bridge.data_dir))
    assert code == FAILED
    assert str(bridge.data_dir) in line
    assert "another" in line
    assert bridge.is_running


def test_the_data_directory_of_a_server_is_refused(upstream_kwire: KwireProcess, start_kwire: StartKwire) -> None:
    server = start_kwire()
    server.stop()
    where = ("--upstream", upstream_kwire.bootstrap, "--http", f"{HOST}:0", "--data-dir", str(server.data_dir))
    code, (line,) = outcome(*where)
    assert code == FAILED
    assert "is the data directory of a server: set --data-dir to another one" in line
    server.restart()


def add_user(data_dir: Path, name: str, password: str, *more: str) -> None:
    """Create a user of a server or a bridge that is stopped."""
    data_dir.mkdir(exist_ok=True, parents=True)
    command = [str(kwire_command()), "user", "create", name, "--data-dir", str(data_dir), "--password-stdin", *more]
    subprocess.run(command, input=password, text=True, check=True, timeout=60, capture_output=True)


def test_a_wrong_password_and_missing_rights_are_one_line(tmp_path: Path, start_kwire: StartKwire) -> None:
    data_dir, port = tmp_path / "secured", unused_port()
    add_user(data_dir, "bridge", "s3cret-words")
    server = start_kwire(
        data_dir=data_dir,
        kafka_port=None,
        settings={
            "listeners": f"SASL_PLAINTEXT://{HOST}:{port}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        },
    )
    assert server.is_running
    properties = tmp_path / "client.properties"
    arguments = ("--upstream", f"{HOST}:{port}", "--http", f"{HOST}:0", "--data-dir", str(tmp_path / "bridge"))
    for password, expected in (("wrong", "the user name or the password is wrong"), ("s3cret-words", "may not write")):
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="bridge" password="{password}";\n'
        )
        code, (line,) = outcome(*arguments, "--upstream-config", str(properties))
        assert code == FAILED
        assert expected in line


@in_uvloop
async def test_a_cluster_that_is_too_old_is_refused(
    tmp_path: Path, upstream_kwire: KwireProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_check, "NEEDED", ((METADATA, 99),))
    config = load(data_dir=str(tmp_path), http=f"{HOST}:0")
    with pytest.raises(KafkaError, match=r"Metadata in version 99: rooms need Apache Kafka 2\.8 or a later version"):
        await Bridge(config, ClientSettings(addresses_of(upstream_kwire.bootstrap))).start()


@in_loop
async def test_users_and_keys_of_the_bridge_have_their_rights_and_scopes(
    tmp_path: Path, upstream_kwire: KwireProcess, start_bridge: Callable[..., BridgeProcess]
) -> None:
    data_dir = tmp_path / "secured"
    add_user(data_dir, "admin", "s3cret-words", "--role", "admin")
    settings = {
        "kwire.http.authentication": "basic,key",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    bridge = start_bridge(upstream_kwire.bootstrap, data_dir=data_dir, settings=settings)
    admin = {"Authorization": basic("admin", "s3cret-words")}
    async with aiohttp.ClientSession(bridge.http_url) as http:
        async with http.get("/rooms") as answer:
            assert answer.status == 401
        async with http.post("/rooms/other/events", json=EVENT, headers=admin) as answer:
            assert answer.status == 201
        async with http.post("/keys", json={"scope": "acme"}, headers=admin) as made:
            assert made.status == 201, await made.text()
            token = (await made.json())["token"]
        key = {"Authorization": f"Bearer {token}"}
        async with http.post("/rooms/other/events", json=EVENT, headers=key) as answer:
            assert (answer.status, (await answer.json())["offset"]) == (201, 0)
        async with http.post("/db/api/v1/events", json={"topic": "other", "data": {"n": 2}}, headers=key) as answer:
            assert (answer.status, (await answer.json())["offset"]) == (200, 1)
        async with http.get("/rooms", headers=admin) as answer:
            listed = [one["room"] for one in (await answer.json())["rooms"]]
        assert "other" in listed
        assert len(listed) == 2
        for name in listed:
            async with http.delete(f"/rooms/{name}", headers=admin) as answer:
                assert answer.status == 200


class Load:
    """A client that publishes numbers, and a subscriber that resumes. `check` compares them in the end."""

    def __init__(self, bridge: BridgeProcess, room: str) -> None:
        self.bridge = bridge
        self.room = room
        self.acknowledged: dict[int, int] = {}
        self.received: list[Event] = []
        self.refused_count = 0

    async def run(self, disturb: Callable[[], None], rounds: int) -> None:
        async with client_of(self.bridge) as client:
            subscription = await client.stream.subscribe(self.room)
            writer = asyncio.create_task(self._publish(client))
            for _ in range(rounds):
                self.received += [await subscription.next_event(WAIT_S) for _ in range(50)]
                await asyncio.to_thread(disturb)
            self.received += [await subscription.next_event(WAIT_S) for _ in range(50)]
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            history = await client.stream.history(self.room, limit=1)
            while len(self.received) <= history.newest_offset:
                self.received.append(await subscription.next_event(WAIT_S))

    async def _publish(self, client: AsyncClient) -> None:
        number = 0
        while True:
            burst = [client.stream.publish(self.room, "n", number + more) for more in range(10)]
            for more, answer in enumerate(await asyncio.gather(*burst, return_exceptions=True)):
                if isinstance(answer, Published):
                    self.acknowledged[answer.offset] = number + more
                else:
                    assert isinstance(answer, ConnectionLost | Unreachable | Refused), answer
                    self.refused_count += 1
            number += 10

    def check(self) -> None:
        assert [event.offset for event in self.received] == list(range(len(self.received)))
        stored = {event.offset: event.data for event in self.received}
        lost = {offset for offset, data in self.acknowledged.items() if stored.get(offset) != data}
        print(f"{len(self.acknowledged)} acknowledged, {len(lost)} lost, {self.refused_count} without an answer")
        assert not lost
        assert len(set(stored.values())) == len(stored), "an event was stored twice"
        assert len(self.acknowledged) >= 100


@in_loop
async def test_the_kill_of_the_cluster_loses_and_repeats_nothing(
    start_kwire: StartKwire, start_bridge: Callable[..., BridgeProcess]
) -> None:
    upstream = start_kwire()
    load = Load(start_bridge(upstream.bootstrap), "killed")

    def kill() -> None:
        upstream.kill()
        upstream.restart()

    await load.run(kill, 2)
    load.check()
    assert load.bridge.stop() == 0


@in_loop
async def test_the_kill_of_the_bridge_loses_and_repeats_nothing(
    upstream_kwire: KwireProcess, start_bridge: Callable[..., BridgeProcess]
) -> None:
    load = Load(start_bridge(upstream_kwire.bootstrap), "killed-bridge")

    def kill() -> None:
        load.bridge.kill()
        load.bridge.restart()

    await load.run(kill, 2)
    load.check()


@on_apache
@in_loop
async def test_the_kill_of_a_bridge_over_an_apache_kafka_loses_and_repeats_nothing(
    apache_kafka: ApacheCluster, start_bridge: Callable[..., BridgeProcess]
) -> None:
    load = Load(start_bridge(apache_kafka.bootstrap), "killed-bridge")

    def kill() -> None:
        load.bridge.kill()
        load.bridge.restart()

    await load.run(kill, 2)
    load.check()
