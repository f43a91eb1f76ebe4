"""The engines behind an HTTP port: a node with logs of its own, and a bridge over a kwire server or an Apache Kafka.

A test takes the fixture `engine` and starts what serves: `async with engine.http() as http`. The conftest of its folder
calls `for_each_engine`, so that it runs once for each engine, unless it is marked with `only_embedded` and the reason.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kwire.bridge.process import Bridge
from kwire.broker.topics.topics import NewTopic
from kwire.config import load
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.groups.coordinators import PASSING, Coordinators
from kwire.kafka_client.groups.descriptions import GroupDescriptions
from kwire.kafka_client.settings import ClientSettings, addresses_of
from kwire.node import Node
from kwire.streams.local_directory import LocalDirectory
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import StreamTopic, TopicDirectory
from kwire.web.bridge.routes import BRIDGE_ROUTES
from kwire.wire.messages.metadata import METADATA, MetadataRequest
from storage.batch.record_batch import Record, build_batch, parse_header
from tests.support.apache_cluster import ON_APACHE, ApacheCluster
from tests.support.bridge_process import BridgeProcess
from tests.support.http import Http
from tests.support.node import TEST_TIMEOUT_S, running_node
from tests.support.partition_log import log_of
from tests.support.server import KwireProcess

EMBEDDED, OVER_KWIRE, OVER_APACHE = "embedded", "bridge-kwire", "bridge-apache"
OVER_APACHE_PARAM = pytest.param(OVER_APACHE, marks=ON_APACHE)
# For clients in processes of their own, which do not see the difference.
CLIENT_ENGINES = [
    EMBEDDED,
    pytest.param(OVER_KWIRE, marks=pytest.mark.full("the tests of the HTTP port run over a bridge, too")),
    OVER_APACHE_PARAM,
]
# Names of topics in which bridges keep what they store.
BRIDGE_PREFIX = "__kwire_"
DELETION_S = 30.0
POLL_S = 0.02


def only_embedded(reason: str) -> pytest.MarkDecorator:
    """Run a test with the embedded engine only: it looks into the server, or docs/bridge.md has the difference."""
    assert reason
    return pytest.mark.parametrize("engine", [EMBEDDED], indirect=True)


def if_served(path: str) -> pytest.MarkDecorator:
    """Run a test with every engine if a bridge serves the path, over bridges with a higher effort only."""
    return pytest.mark.parametrize("engine", CLIENT_ENGINES if is_served(path) else [EMBEDDED], indirect=True)


def is_served(path: str) -> bool:
    """Return whether a bridge serves a path, which is written as in the table of routes."""
    return any(route.path == path for route in BRIDGE_ROUTES)


def is_route_served(method: str, path: str) -> bool:
    """Return whether a bridge serves a route of the table of routes."""
    return any((route.method, route.path) == (method, path) for route in BRIDGE_ROUTES)


def for_each_engine(metafunc: pytest.Metafunc, quick_modules: Collection[str], reason: str) -> None:
    """Run a test that takes the fixture `engine` once for each engine: the hook `pytest_generate_tests` of a folder.

    Over kwire, the modules that are not among `quick_modules` run with a higher effort only, for this reason.
    """
    if "engine" not in metafunc.fixturenames or any(
        "engine" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
    ):
        return
    is_quick = metafunc.module.__name__.rpartition(".")[2] in quick_modules
    over_kwire = OVER_KWIRE if is_quick else pytest.param(OVER_KWIRE, marks=pytest.mark.full(reason))
    metafunc.parametrize("engine", [EMBEDDED, over_kwire, OVER_APACHE_PARAM], indirect=True)


@asynccontextmanager
async def running_bridge(
    directory: Path,
    upstream: str,
    *settings: str,
    client: ClientSettings | None = None,
    prepare: Callable[[Bridge], None] = lambda bridge: None,
) -> AsyncIterator[Bridge]:
    """A bridge that serves; stopped in the end unless the test has done so. `prepare` is called before it starts."""
    config = load(data_dir=str(directory), http="127.0.0.1:0", settings=settings)
    bridge = Bridge(config, client or ClientSettings(addresses_of(upstream)))
    prepare(bridge)
    await bridge.start()
    try:
        yield bridge
    finally:
        if bridge._is_ready:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await bridge.stop()


class Engine:
    """Starts what serves HTTP clients. `upstream` is the address of the cluster behind a bridge."""

    def __init__(self, directory: Path, upstream: str | None) -> None:
        self.directory = directory
        self.upstream = upstream

    def server(
        self, *settings: str, prepare: Callable[[Node | Bridge], None] = lambda server: None
    ) -> AbstractAsyncContextManager[Node | Bridge]:
        """`prepare` is called before the server starts."""
        if self.upstream is None:
            return running_node(self.directory, *settings, prepare=prepare)
        return running_bridge(self.directory, self.upstream, *settings, prepare=prepare)

    def serves(self, path: str) -> bool:
        """Return whether the engine serves a path, which is written as in the table of routes."""
        return self.upstream is None or is_served(path)

    def bootstrap_of(self, server: Node | Bridge) -> str:
        """The address of Kafka clients of the same topics."""
        return self.upstream or server.kafka_listeners[0].address  # type: ignore[union-attr]

    async def delete_before(self, server: Node | Bridge, topic: str, offset: int) -> None:
        """Delete the oldest events of a room, as retention does."""
        if isinstance(server, Node):
            found = server._shared.services.topics.get(topic)
            assert found is not None
            log_of(found.partitions[0]).advance_log_start_offset(offset)
            return
        log = server._logs.find(topic)
        assert log is not None
        await server._rooms._admin.delete_records(topic, 0, offset)
        await log.ask_bounds()

    async def delete_events(self, server: Node | Bridge, topic: str, number: int) -> None:
        """Delete the events of an event topic before `number`, as retention does."""
        if isinstance(server, Node):
            await self.delete_before(server, topic, number)
            return
        place = server._event_store.store.topics.find(topic).numbers._places.before(number)
        assert number < place.number + place.event_count, "an event that was published by this server"
        await self.delete_before(server, topic, place.offset + number - place.number)

    async def create_topic(self, server: Node | Bridge, name: str, partition_count: int) -> None:
        """Create a topic that is not a room, as a Kafka client does."""
        if isinstance(server, Node):
            topics = server._shared.services.topics
            await topics.create([NewTopic(name, partition_count, {})])
        else:
            await server._rooms._admin.create_topic(name, partition_count)
            await self.wait_for_topic(server, name)

    async def wait_for_topic(self, server: Node | Bridge, name: str) -> None:
        """Wait until a server has seen a topic that another client has created."""
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while await directory_of(server).find(name) is None:
                await asyncio.sleep(POLL_S)

    async def delete_room(self, server: Node | Bridge, name: str) -> None:
        await (server._room_cleanup._rooms if isinstance(server, Node) else server._rooms).delete(name)

    @asynccontextmanager
    async def http(self, *settings: str) -> AsyncIterator[Http]:
        async with self.server(*settings) as server, aiohttp.ClientSession() as session:
            yield Http(server, session)


def directory_of(server: Node | Bridge) -> TopicDirectory:
    if isinstance(server, Node):
        return LocalDirectory(server._shared.services.topics, server.config)
    return server._topics


async def stream_topic(server: Node | Bridge, name: str) -> StreamTopic:
    """A topic, to write and read without HTTP."""
    topic = await directory_of(server).find(name)
    assert topic is not None
    return topic


def begin_append(log: StreamLog, records: Sequence[Record], compression: int = 0) -> "asyncio.Future[int | KafkaError]":
    """Append one batch. The result is the offset of its first record when it is committed, or the error."""
    batch = build_batch(records, compression=compression)
    appended: asyncio.Future[int | KafkaError] = asyncio.get_running_loop().create_future()
    log.append(memoryview(batch), parse_header(batch), appended.set_result)
    return appended


async def append_batch(log: StreamLog, records: Sequence[Record], compression: int = 0) -> int:
    """Append one batch, and return the offset of its first record."""
    offset = await begin_append(log, records, compression)
    assert isinstance(offset, int), offset
    return offset


async def delete_all_topics(upstream: str, only: Collection[str] | None = None) -> None:
    """Make the cluster empty for the next test, or delete `only` some topics while others are in use."""
    cluster = Cluster(ClientSettings(addresses_of(upstream)))
    admin = Admin(cluster)
    try:
        async with asyncio.timeout(DELETION_S):
            while names := await _topics(cluster, only):
                await asyncio.gather(*(admin.delete_topic(name) for name in names), return_exceptions=True)
                if await _topics(cluster, only):
                    await asyncio.sleep(POLL_S)
    finally:
        cluster.close()


async def delete_all_groups(upstream: str) -> None:
    """Delete the groups of the cluster; again while a coordinator loads them, or waits for the end of a session."""
    cluster = Cluster(ClientSettings(addresses_of(upstream)))
    descriptions = GroupDescriptions(Coordinators(cluster))
    try:
        async with asyncio.timeout(DELETION_S):
            while True:
                try:
                    for listed in await descriptions.all():
                        await descriptions.delete(listed.group_id)
                    return
                except KafkaError as error:
                    if error.code not in PASSING and error.code is not ErrorCode.NON_EMPTY_GROUP:
                        raise
                    await asyncio.sleep(POLL_S)
    finally:
        cluster.close()


async def _topics(cluster: Cluster, only: Collection[str] | None) -> list[str]:
    response = await cluster.request_any(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return [
        one.name
        for one in response.topics
        if (only is None or one.name in only)
        and not one.is_internal
        and (not one.name.startswith("__") or one.name.startswith(BRIDGE_PREFIX))
    ]


@pytest.fixture(scope="session")
def upstream_kwire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server process that is the cluster of bridges. Tests leave it running."""
    process = KwireProcess(tmp_path_factory.mktemp("upstream"), http_port=None, settings={"kwire.http.listener": ""})
    process.start()
    process.ready()
    yield process
    process.stop()


def upstream_of(engine: str, request: pytest.FixtureRequest) -> str | None:
    """The address of the cluster behind an engine, which is started if a test needs it."""
    if engine == OVER_KWIRE:
        kwire: KwireProcess = request.getfixturevalue("upstream_kwire")
        return kwire.bootstrap
    if engine == OVER_APACHE:
        kafka: ApacheCluster = request.getfixturevalue("apache_kafka")
        return kafka.bootstrap
    return None


def process_of(engine: str, request: pytest.FixtureRequest, directory: Path) -> KwireProcess:
    """A process that serves HTTP clients; not started."""
    upstream = upstream_of(engine, request)
    return KwireProcess(directory) if upstream is None else BridgeProcess(directory, upstream)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    upstream = upstream_of(getattr(request, "param", EMBEDDED), request)
    yield Engine(tmp_path, upstream)
    if upstream is not None:
        asyncio.run(delete_all_topics(upstream))
