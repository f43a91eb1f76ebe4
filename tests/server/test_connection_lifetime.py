"""A closed connection is freed immediately: a reference cycle would keep it until a full collection, or for ever."""

import asyncio
import gc
from pathlib import Path

import uvloop

from kwire.config import Listener
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.listener import KafkaListener
from tests.server.fakes import Slow, answered_frame, shared_of
from tests.support.node import QuietNode

LISTENER = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0)
TIMEOUT_S = 10.0


def connections() -> int:
    return sum(isinstance(one, KafkaConnection) for one in gc.get_objects())


async def serve_and_close(tmp_path: Path) -> list[int]:
    with QuietNode(tmp_path) as node:
        shared = shared_of(node.services, Slow().handlers())
        listener = KafkaListener(LISTENER, None, shared)
        await listener.open()
        before = connections()
        counts = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(answered_frame(1))
            async with asyncio.timeout(TIMEOUT_S):
                await reader.readexactly(4)
            counts.append(connections() - before)
            writer.close()
            await writer.wait_closed()
            async with asyncio.timeout(TIMEOUT_S):
                while shared.connections:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            counts.append(connections() - before)
        listener.close()
        return counts


def test_closed_connection_is_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(serve_and_close(tmp_path)) == [1, 0, 1, 0, 1, 0]
    finally:
        gc.enable()
