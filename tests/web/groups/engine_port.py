"""The same port for each engine: a quiet node, or a bridge over a cluster."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

from aiohttp import ClientSession

from kwire.bridge.process import Bridge
from kwire.clock import Clock, SystemClock
from kwire.streams.topic_directory import StreamTopic
from tests.server.frames import HOST
from tests.support.engines import Engine, delete_all_groups
from tests.web.groups.groups_port import Port, groups_port


class BridgePort(Port):
    def __init__(self, engine: Engine, bridge: Bridge, session: ClientSession) -> None:
        self.engine = engine
        self.bridge = bridge
        self.services = SimpleNamespace(
            web_groups=bridge._groups._members,
            subscriptions=bridge._subscriptions,
            port=SimpleNamespace(serve_stream=bridge.http._stream_connections),
        )
        self._client = session  # type: ignore[assignment]

    @property
    def clock(self) -> Clock:
        return SystemClock()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.bridge.http.port

    async def create_topic(self, name: str, partition_count: int) -> None:
        await self.engine.create_topic(self.bridge, name, partition_count)

    async def find(self, topic: str) -> StreamTopic | None:
        return await self.bridge._topics.find(topic)

    async def delete_topic(self, name: str) -> None:
        await self.bridge._rooms._admin.delete_topic(name)

    async def add_partitions(self, name: str, partition_count: int) -> None:
        await self.bridge._rooms._admin.add_partitions(name, partition_count)

    async def delete_before(self, name: str, offset: int) -> None:
        await self.bridge._rooms._admin.delete_records(name, 0, offset)

    def session_deadline(self, group: str, member: str) -> float:
        return self.bridge._groups._members._members[group][member].deadline

    def pass_time(self, seconds: float) -> None:
        """The time of a bridge passes by itself."""

    def stream_count(self, topic: StreamTopic) -> int:
        return sum(map(self.services.subscriptions.count_of, self.bridge._logs.logs_of(topic.name)))

    @property
    def watcher_count(self) -> int:
        return len(self.bridge._groups._members._watchers)


@asynccontextmanager
async def _bridge_port(engine: Engine, *settings: str) -> AsyncIterator[Port]:
    assert engine.upstream is not None
    try:
        async with engine.server(*settings) as bridge:
            assert isinstance(bridge, Bridge)
            async with ClientSession(f"http://{HOST}:{bridge.http.port}") as session:
                yield BridgePort(engine, bridge, session)
    finally:
        await delete_all_groups(engine.upstream)


def port_over(engine: Engine, *settings: str) -> AbstractAsyncContextManager[Port]:
    if engine.upstream is None:
        return groups_port(engine.directory, *settings)
    return _bridge_port(engine, *settings)
