"""Connections of a node that is whole except for its sockets: what hostile requests do to the handlers.

A handler that raises something of its own is a defect, wherever it does so: the server would close the connection and
log it, which is seen here. The node is built anew from time to time, because creating topics is not a leak.
"""

import asyncio
import logging
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

from fuzzing import corpus
from fuzzing.examples import batches, example
from fuzzing.hostile import spoil
from fuzzing.mutation import mutated, resized
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.errors import KafkaError
from kwire.handlers import HANDLERS
from kwire.metastore import Conflict
from kwire.server.kafka.listener import KafkaListener
from kwire.wire.apis import FIND_COORDINATOR, PRODUCE
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.schema import Api
from storage.errors import StorageError
from tests.server.fakes import LISTENER, FakeClient, shared_of
from tests.support.node import QuietNode

REBUILD_CASES = 1_000
# How long a client waits for its answers before it goes away: turns of the loop, and a little for a thread's work.
PAUSES_S = (0.0,) * 50 + (0.001,) * 5
SETTINGS = (
    "socket.request.max.bytes=1000000",
    "auto.create.topics.enable=false",
    "kwire.log.sync=os",
    # With an authorizer, requests about ACLs reach the ACLs.
    "kwire.authorizer=acl",
    "super.users=User:ANONYMOUS",
)


# What work that outlives its client may end with: there is nobody left to be told.
TYPED_ERRORS = (KafkaError, StorageError, Conflict)


class HandlerFailed(AssertionError):
    """The server logged an error: something was raised that nobody expected."""


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(logging.Formatter().format(record))


class NodeTarget:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.get_loop().set_exception_handler(self._unexpected)
        self._errors = _Errors()
        log = logging.getLogger("kwire")
        log.addHandler(self._errors)
        log.propagate = False
        self._batches = batches()
        self._captured = [frame for frame in corpus.frames() if corpus.call_of(frame)[0] in HANDLERS]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._node: QuietNode | None = None
        self._shared: Any = None
        self._ids: list[bytes] = []
        self._until_rebuilt = 0
        self._answers: dict[str, int] = {}
        self._build()

    def close(self) -> None:
        self._end_node()
        self._runner.close()

    def warm_up(self) -> None:
        """Every codec of a served API, so that making them is not counted as growth."""
        for key, handler in HANDLERS.items():
            for version in handler.api.versions:
                self.run(_framed(key, version, example(handler.api.request, version), handler.api))

    def text(self) -> str:
        quiet = sorted({handler.api.name for handler in HANDLERS.values()} - set(self._answers))
        return f"{sum(self._answers.values()):,} requests answered, of {len(self._answers)} APIs; never: {quiet}"

    # --- cases

    def spoil(self, chance: random.Random) -> bytes:
        return b"".join(self._one(chance) for _ in range(chance.choice((1, 1, 1, 2))))

    def _one(self, chance: random.Random) -> bytes:
        way = chance.random()
        if way < 0.25:
            return resized(mutated(chance.choice(self._captured), chance, self._captured))
        handler = chance.choice(list(HANDLERS.values()))
        api, version = handler.api, chance.choice(list(handler.api.versions))
        message = example(api.request, version)
        if way < 0.35:
            return resized(mutated(_framed(api.key, version, message, api), chance, self._captured))
        # Examples share nothing, but a decoded copy is surely free of shared defaults.
        message = decode_message(api.request, version, encode_message(message, version))
        spoil(message, version, chance, self._batches, self._ids)
        return _framed(api.key, version, message, api)

    def run(self, case: bytes) -> None:
        if self._until_rebuilt == 0:
            self._build()
        self._until_rebuilt -= 1
        self._runner.run(self._feed(case))
        if self._errors.seen:
            seen, self._errors.seen = self._errors.seen, []
            raise HandlerFailed("\n".join(seen))

    async def _feed(self, case: bytes) -> None:
        client = FakeClient(self._shared, KafkaListener(LISTENER, None, self._shared))
        view = memoryview(case)
        while view and client.transport.is_reading and not client.transport.is_closing():
            view = view[client.deliver(view) :]
        for pause_s in PAUSES_S:
            if client.transport.is_closing() or not client.connection._machine.waiting:
                break
            await asyncio.sleep(pause_s)
        self._count(case, bool(client.received()) if not client.transport.is_closing() else False)
        client.lose()
        await asyncio.sleep(0)

    def _count(self, case: bytes, is_answered: bool) -> None:
        if is_answered:
            key, _ = corpus.call_of(case)
            name = HANDLERS[key].api.name if key in HANDLERS else "?"
            self._answers[name] = self._answers.get(name, 0) + 1

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, TYPED_ERRORS):
            logging.getLogger("kwire").error("%s", context.get("message"), exc_info=error)

    # --- the node

    def _build(self) -> None:
        self._end_node()
        self._until_rebuilt = REBUILD_CASES
        self._folder = tempfile.TemporaryDirectory()
        self._node = QuietNode(Path(self._folder.name), *SETTINGS)
        self._runner.run(self._fill(self._node))

    async def _fill(self, node: QuietNode) -> None:
        topics = [await node.create("t", 2), await node.create("compacted", 1, cleanup_policy="compact")]
        self._ids = [bytes(16), b"\xff" * 16, *(topic.topic_id for topic in topics)]
        self._shared = shared_of(node.services, dict(HANDLERS))
        data = [PartitionProduceData(index=0, records=self._batches[0])]
        asked = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
        version = PRODUCE.first_flexible
        await node.ask(asked, version)
        # Asking for a coordinator makes the topic that it lives in; without it every group is refused at the door.
        version = FIND_COORDINATOR.last_version
        find = example(FIND_COORDINATOR.request, version)
        find.key_type = 0
        await node.ask(find, version)
        assert node.topics.get(OFFSETS_TOPIC) is not None

    def _end_node(self) -> None:
        if self._node is not None and self._folder is not None:
            self._runner.run(self._drain())
            self._node.close()
            self._folder.cleanup()
            self._node = None

    async def _drain(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)


def _framed(key: int, version: int, message: Any, api: Api) -> bytes:
    header = struct.pack(">hhih", key, version, 1, 1) + b"c" + (b"\x00" if version >= api.first_flexible else b"")
    body = header + encode_message(message, version)
    return struct.pack(">i", len(body)) + body
