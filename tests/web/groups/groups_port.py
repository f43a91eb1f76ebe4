"""The HTTP doors of consumer groups over a quiet node: real routing, the real door, real connections for streams."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from kwire.broker.admin.delete_records import Deletion, delete_records
from kwire.clock import Clock
from kwire.coordinator.web_groups.values import defaults_of
from kwire.metrics import HttpMetrics, StreamMetrics
from kwire.server.http.stream_connections import StreamConnections
from kwire.streams.events.event import NewEvent
from kwire.streams.events.publishing import Publisher
from kwire.streams.subscriptions import Subscriptions
from kwire.streams.topic_directory import StreamTopic
from kwire.web.groups import consumer_groups
from kwire.web.groups import stream as group_stream
from kwire.web.requests.body_receiver import RECEIVE_SETTINGS, ReceiveSettings
from kwire.web.requests.memory import HttpMemory
from kwire.web.requests.middleware import request_middleware
from kwire.web.requests.origin_policy import OriginPolicy
from tests.support.node import QuietNode

ROUTES = (*consumer_groups.ROUTES, *group_stream.ROUTES)
# No line is waited for longer.
LINE_TIMEOUT_S = 10.0
SEND_TIMEOUT_MS = 30_000


class Told(NamedTuple):
    """An answer: its status, and what its JSON says."""

    status: int
    body: Any


class Lines:
    """A stream's lines of JSON, one by one; empty ones, which only keep the connection alive, are passed over."""

    def __init__(self, answer: ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> Any:
        """None at the end."""
        async with asyncio.timeout(LINE_TIMEOUT_S):
            while line := await self.answer.content.readline():
                if line.strip():
                    return msgspec.json.decode(line)
        return None

    async def events(self, count: int) -> list[dict[str, Any]]:
        """The next so many events; marks among them are passed over."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            one = await self.next()
            assert one is not None, f"the stream ended after {found}"
            if "control" not in one:
                found.append(one)
        return found

    async def control(self, name: str) -> dict[str, Any]:
        """The next mark of this name; everything before it is passed over."""
        while True:
            one: dict[str, Any] | None = await self.next()
            assert one is not None, f"the stream ended without {name}"
            if one.get("control") == name:
                return one

    async def assignment(self, *partitions: int) -> dict[str, Any]:
        """The mark that says the member has these, and nothing is to come."""
        while True:
            told = await self.control("assignment")
            if told["partitions"] == list(partitions) and told["state"] == "stable":
                return told

    async def rest(self) -> list[Any]:
        found = []
        while (one := await self.next()) is not None:
            found.append(one)
        return found


class Port:
    def __init__(
        self, node: QuietNode, services: SimpleNamespace, client: "TestClient[web.Request, web.Application]"
    ) -> None:
        self.node = node
        self.services = services
        self._client = client

    @property
    def clock(self) -> Clock:
        return self.node.clock

    @property
    def address(self) -> tuple[str, int]:
        return self._client.host, self._client.port or 0

    async def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Told:
        """`body` is sent as JSON, unless it is bytes."""
        raw = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        given = {} if raw is None else {"Content-Type": "application/json"}
        path = f"/consumer-groups{path}"
        async with self._client.request(method, path, data=raw, headers={**given, **(headers or {})}) as answer:
            text = await answer.read()
            return Told(answer.status, msgspec.json.decode(text) if text else None)

    async def post(self, path: str, body: object = None) -> Told:
        return await self.ask("POST", path, body)

    async def get(self, path: str) -> Told:
        return await self.ask("GET", path)

    async def create_topic(self, name: str, partition_count: int) -> None:
        await self.node.create(name, partition_count)

    async def find(self, topic: str) -> StreamTopic | None:
        return self.node.topics.get(topic)

    async def delete_topic(self, name: str) -> None:
        topic = self.node.topics.get(name)
        assert topic is not None
        await self.node.topics.delete(topic)

    async def add_partitions(self, name: str, partition_count: int) -> None:
        topic = self.node.topics.get(name)
        assert topic is not None
        await self.node.topics.create_partitions(topic, partition_count)

    async def delete_before(self, name: str, offset: int) -> None:
        """Delete the first records of partition 0."""
        topic = self.node.topics.get(name)
        assert topic is not None
        deletion = Deletion(topic.partitions[0], offset)
        assert await delete_records([deletion], LINE_TIMEOUT_S, self.node.lanes.settle) == [offset]

    def session_deadline(self, group: str, member: str) -> float:
        """When the session of a member ends, on a clock that rises."""
        (found,) = (one for one in self.node.groups.consumer_groups() if one.group_id == group)
        return found.session_deadlines_ms[member]

    def pass_time(self, seconds: float) -> None:
        self.node.clock.advance(int(seconds * 1000))

    def stream_count(self, topic: StreamTopic) -> int:
        """The number of readers of a topic's partitions."""
        return sum(map(self.services.subscriptions.count_of, topic.streams_in_use))  # type: ignore[attr-defined]

    @property
    def watcher_count(self) -> int:
        return len(self.node.groups.watch.__self__._watchers)  # type: ignore[attr-defined]

    @property
    def reader_count(self) -> int:
        """The number of partitions that streams read."""
        return sum(len(stream._readers) for stream in self.services.web_groups._readers.values())

    async def close_streams(self) -> None:
        """End all streams, as a process that stops does."""
        await self.services.port.serve_stream.close()

    async def create(self, group: str, topic: str, partition_count: int = 6, **fields: object) -> None:
        """A topic, if there is none yet, and a group that reads it."""
        if await self.find(topic) is None:
            await self.create_topic(topic, partition_count)
        told = await self.post(f"/{group}", {"topic": topic, **fields})
        assert told.status == 201, told

    async def join(self, group: str, **fields: object) -> str:
        told = await self.post(f"/{group}/join", fields)
        assert told.status == 200, told
        member_id: str = told.body["member_id"]
        return member_id

    async def publish(self, topic: str, partition: int, *data: object) -> int:
        """The offset of the first."""
        found = await self.find(topic)
        assert found is not None
        events = [NewEvent("made", msgspec.json.encode(one), key=b"k") for one in data]
        publisher = Publisher(self.clock, asyncio.get_running_loop().call_soon)
        return (await publisher.publish_and_wait(found.stream(partition), b"/topics/t", events)).offset

    async def committed(self, group: str, partition: int) -> int | None:
        told = await self.get(f"/{group}/offsets/{partition}")
        assert told.status == 200, told
        offset: int | None = told.body["offset"]
        return offset

    @asynccontextmanager
    async def stream(self, group: str, member: str, query: str = "", accept: str = "*/*") -> AsyncIterator[Lines]:
        path = f"/consumer-groups/{group}/members/{member}/stream{query}"
        async with self._client.get(path, headers={"Accept": accept}) as answer:
            assert answer.status == 200, await answer.text()
            yield Lines(answer)


@asynccontextmanager
async def groups_port(directory: Path, *settings: str) -> AsyncIterator[Port]:
    with QuietNode(directory, *settings) as node:
        loop, metrics = asyncio.get_running_loop(), StreamMetrics()
        defaults = defaults_of(node.config.rest_groups)
        streams = StreamConnections(metrics, SEND_TIMEOUT_MS, SEND_TIMEOUT_MS)
        services = SimpleNamespace(
            port=SimpleNamespace(config=node.config, clock=node.clock, serve_stream=streams),
            subscriptions=Subscriptions(node.clock, loop.call_soon, loop.call_later, node.config.rooms),
            web_groups=node.new_web_groups(defaults),
        )
        policy = OriginPolicy(node.config.web.origins, True)
        memory = HttpMemory(node.config.web.memory_bytes_max, node.config.web.memory_wait_ms)
        app = web.Application(
            client_max_size=node.config.web.body_bytes_max,
            middlewares=[request_middleware(policy, memory, HttpMetrics())],
        )
        app[RECEIVE_SETTINGS] = ReceiveSettings.of(memory, node.config.web)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, partial(route.handle, services))  # type: ignore[arg-type]
        async with TestClient(TestServer(app)) as client:
            try:
                yield Port(node, services, client)
            finally:
                await services.port.serve_stream.close()
                services.subscriptions.close()
