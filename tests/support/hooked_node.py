"""A quiet node with webhooks, a receiver that is a function, and time that a test moves."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kwire.access.audit.queue import AuditQueue
from kwire.access.authorizer import Authorizer
from kwire.access.secrets.node_keys import KEY_FILE_NAME, NodeKeys, has_encrypted
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.streams.audit.writer import AuditWriter
from kwire.streams.local_directory import LocalDirectory
from kwire.streams.local_webhooks import local_webhook_storage
from kwire.streams.webhooks.consumer import Consumer
from kwire.streams.webhooks.definition import parse_webhook
from kwire.streams.webhooks.delivery.sender import Request, Response
from kwire.streams.webhooks.webhooks import Webhooks
from tests.support.event_store import events_of
from tests.support.node import QuietNode

WAIT_SECONDS = 20.0
LOOK_SECONDS = 0.002
INTERVAL_MS = 10
URL = "https://hooks.example.com/in"

Reply = Callable[[Request], Response]


def event_id_of(request: Request) -> str:
    return request.headers["webhook-id"]


class FakeReceiver:
    """`reply` decides about each request. While `gate` is closed no request ends."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.reply: Reply = lambda request: Response(200)
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = 0
        self.under_way_max = 0

    @property
    def ids(self) -> list[str]:
        """Of the events, as they came."""
        return [event_id_of(request) for request in self.requests]

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            await self.gate.wait()
            # A real one takes at least a turn.
            await asyncio.sleep(0)
            return self.reply(request)
        finally:
            self.under_way -= 1

    async def has(self, count: int) -> None:
        await until(lambda: len(self.requests) >= count)


class Hooked:
    """The webhooks of a node in one life of it."""

    def __init__(
        self, node: QuietNode, receiver: FakeReceiver, authorizer: Authorizer | None = None, **config: Any
    ) -> None:
        self.node = node
        self.receiver = receiver
        loop = asyncio.get_running_loop()
        self.audit = AuditQueue(node.config.audit, node.clock)
        self.writer = AuditWriter(self.audit, node.topics, node.clock, node.config.audit.retention_ms)
        self.writer.start()
        given: Mapping[str, Any] = {"dispatch_interval_ms": INTERVAL_MS, **config}
        keys = NodeKeys(
            str(node.directory / KEY_FILE_NAME), partial(has_encrypted, node.metastore), node.files, node.lanes.survey
        )
        webhooks_config = node.config.webhooks._replace(**given)
        self.webhooks = Webhooks(
            topics=LocalDirectory(node.topics, node.config),
            storage=local_webhook_storage(
                node.topics, node.metastore, keys, node.clock, loop.call_later, webhooks_config
            ),
            clock=node.clock,
            send=receiver.send,
            config=webhooks_config,
            audit=self.audit,
            authorizer=authorizer,
            call_soon=loop.call_soon,
            call_later=loop.call_later,
            chance=lambda: 0.5,
        )

    async def register(self, *topics: str, **fields: object) -> Consumer:
        places = dict.fromkeys(topics or ("orders",))
        return await self.webhooks.register(parse_webhook({"url": URL, "topics": places, **fields}))

    async def close(self) -> None:
        await self.webhooks.close()
        await self.writer.close()

    def crash(self) -> None:
        """The process is gone: nothing more is sent or written by what is left of it."""
        for dispatcher in self.webhooks.dispatchers.values():
            dispatcher.close()
        self.webhooks._workers._is_closed = True
        for task in self.webhooks._workers._tasks:
            task.cancel()
        state = self.webhooks._state
        for write in (getattr(state, "_timer", None), getattr(state, "_task", None)):
            if write is not None:
                write.cancel()

    def audited(self, what: str) -> list[dict[str, Any]]:
        topic = self.node.topics.get(AUDIT_TOPIC)
        found = events_of(topic) if topic is not None else []
        return [json.loads(event.data) for event in found if event.type == what]

    async def until_audited(self, what: str, count: int = 1) -> list[dict[str, Any]]:
        await until(lambda: len(self.audited(what)) >= count)
        return self.audited(what)


@asynccontextmanager
async def hooked(node: QuietNode, receiver: FakeReceiver | None = None, **config: Any) -> AsyncIterator[Hooked]:
    made = Hooked(node, receiver or FakeReceiver(), **config)
    await made.webhooks.open()
    try:
        yield made
    finally:
        made.receiver.gate.set()
        await made.close()


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what happens by itself, but not for ever."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():
            await asyncio.sleep(LOOK_SECONDS)
