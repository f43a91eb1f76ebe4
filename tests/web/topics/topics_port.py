"""Requests about topics, to the HTTP port of an engine, or over a quiet node: real routing, no other resources."""

import asyncio
import io
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from kwire.broker.maintenance.retention import Retention
from kwire.metrics import HttpMetrics
from kwire.streams.events.partitioning import Partitioner
from kwire.streams.events.publishing import Publisher
from kwire.streams.local_commands import LocalTopics
from kwire.streams.local_directory import LocalDirectory
from kwire.streams.log import NotReady
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.page_scheduler import PageScheduler
from kwire.web.proxy import metadata as proxy_metadata
from kwire.web.proxy import produce as proxy_produce
from kwire.web.requests.body_checks import BodyChecks
from kwire.web.requests.body_receiver import RECEIVE_SETTINGS, ReceiveSettings
from kwire.web.requests.memory import HttpMemory
from kwire.web.requests.middleware import request_middleware
from kwire.web.requests.origin_policy import OriginPolicy
from kwire.web.topics import events as topic_events
from kwire.web.topics import stats as topic_stats
from kwire.web.topics import topics
from storage.batch.record_batch import Record, read_records
from tests.support.batches import run_now, split_batches
from tests.support.engines import Engine, append_batch, stream_topic
from tests.support.http import Http
from tests.support.node import QuietNode

ROUTES = (
    *topics.ROUTES,
    *topic_events.ROUTES,
    *topic_stats.ROUTES,
    *proxy_metadata.ROUTES,
    *proxy_produce.ROUTES,
)


class Told(NamedTuple):
    """An answer: its status, what its JSON says, and its content type."""

    status: int
    body: Any
    content_type: str


class TopicsPort(ABC):
    """Requests about topics to an HTTP port."""

    @abstractmethod
    async def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Told:
        """`body` is sent as JSON, unless it is bytes."""

    async def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Told:
        return await self.ask("POST", path, body, headers)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Told:
        return await self.ask("GET", path, None, headers)

    async def create(self, topic: str, **fields: object) -> None:
        told = await self.post(f"/topics/{topic}", fields)
        assert told.status == 201, told

    async def publish(self, topic: str, data: object, key: str | None = None, event_type: str = "e") -> dict[str, Any]:
        told = await self.post(f"/topics/{topic}/publish", {"event_type": event_type, "data": data, "key": key})
        assert told.status == 200, told
        body: dict[str, Any] = told.body
        return body

    async def consume(self, topic: str, partition: int = 0, **fields: object) -> dict[str, Any]:
        told = await self.post(f"/topics/{topic}/partitions/{partition}/consume", fields)
        assert told.status == 200, told
        body: dict[str, Any] = told.body
        return body


class Port(TopicsPort):
    """The port of a quiet node, whose clock and retention a test controls."""

    def __init__(
        self, node: QuietNode, retention: Retention, client: "TestClient[web.Request, web.Application]"
    ) -> None:
        self.node = node
        self.retention = retention
        self._client = client

    async def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Told:
        raw = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        given = {} if raw is None else {"Content-Type": "application/json"}
        data = None if raw is None else io.BytesIO(raw)
        async with self._client.request(method, path, data=data, headers={**given, **(headers or {})}) as answer:
            text = await answer.read()
            return Told(answer.status, msgspec.json.decode(text) if text else None, answer.content_type)


class EnginePort(TopicsPort):
    """The port of an engine."""

    def __init__(self, engine: Engine, http: Http) -> None:
        self.engine = engine
        self.http = http

    async def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Told:
        given = {**({} if body is None else {"Content-Type": "application/json"}), **(headers or {})}
        raw = msgspec.json.encode(body) if body is not None and not isinstance(body, bytes) else body
        answer = await self.http.ask(method, path, raw, **given)
        content_type = answer.headers.get("Content-Type", "").partition(";")[0]
        return Told(answer.status, answer.json if answer.body else None, content_type)

    async def topic(self, name: str) -> StreamTopic:
        return await stream_topic(self.http.server, name)

    async def create_elsewhere(self, name: str, partition_count: int = 1) -> None:
        """Create a topic as a Kafka client does."""
        await self.engine.create_topic(self.http.server, name, partition_count)

    async def append(self, topic: str, *records: Record, partition: int = 0) -> None:
        """Append a batch of records as a Kafka client does."""
        await append_batch((await self.topic(topic)).stream(partition), records)

    async def stored(self, topic: str = "t", partition: int = 0) -> list[Record]:
        """All records of a partition."""
        log = (await self.topic(topic)).stream(partition)
        await log.ready()
        found: list[Record] = []
        offset, waits = log.bounds().start, 0
        while offset < log.bounds().committed_end:
            read = log.read(offset, 10_000_000, waits)
            if isinstance(read, NotReady):
                waits += 1
                await read.wait()
                continue
            found += [record for batch in split_batches(read.records) for record in read_records(batch, 10_000_000)]
            offset, waits = read.next_offset, 0
        return found


@asynccontextmanager
async def engine_port(engine: Engine, *settings: str) -> AsyncIterator[EnginePort]:
    async with engine.http(*settings) as http:
        yield EnginePort(engine, http)


@asynccontextmanager
async def topics_port(directory: Path, *settings: str) -> AsyncIterator[Port]:
    with QuietNode(directory, *settings) as node:
        retention = Retention(node.topics, node.clock, run_now, 300_000, node.store, node.files)
        memory = HttpMemory(node.config.web.memory_bytes_max, node.config.web.memory_wait_ms)
        web_port = SimpleNamespace(
            quotas=node.services.quotas,
            memory=memory,
            page_scheduler=PageScheduler(),
            body_checks=BodyChecks(),
            config=node.config,
            clock=node.clock,
        )
        services = SimpleNamespace(
            port=web_port,
            topics=LocalDirectory(node.topics, node.config),
            publisher=Publisher(node.clock, asyncio.get_running_loop().call_soon),
            partitioner=Partitioner(),
            last_retention_ms=lambda: retention.last_round_ms,
            has_message_limits=True,
            commands=LocalTopics(node.topics),
        )
        policy = OriginPolicy(node.config.web.origins, True)
        app = web.Application(
            client_max_size=node.config.web.body_bytes_max,
            middlewares=[request_middleware(policy, memory, HttpMetrics())],
        )
        app[RECEIVE_SETTINGS] = ReceiveSettings.of(memory, node.config.web)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, partial(route.handle, services))  # type: ignore[arg-type]
        async with TestClient(TestServer(app)) as client:
            try:
                yield Port(node, retention, client)
            finally:
                retention.close()
