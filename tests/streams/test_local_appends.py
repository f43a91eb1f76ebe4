"""Batches that a worker process validates: nothing overtakes them, and what waits is bounded."""

import asyncio
from pathlib import Path

import pytest

from kwire.broker.batch_validation import SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX, Validated, validate
from kwire.broker.partition import Partition
from kwire.config.resources.topic import TopicSettings
from kwire.errors import ErrorCode, KafkaError
from kwire.streams import local_appends
from kwire.streams.local_appends import LocalAppends
from storage.batch.record_batch import BatchHeader, check_batch
from storage.errors import CorruptBatch
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop

WAIT_S = 10.0

Outcome = int | KafkaError


class Worker:
    """Validates when the test says so."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.count = 0
        self.error: Exception | None = None

    async def validate(self, batch: memoryview, header: BatchHeader, settings: TopicSettings) -> Validated:
        self.count += 1
        await self.may_go.wait()
        if self.error is not None:
            raise self.error
        return validate(batch, header, settings, 0)


class World:
    def __init__(self, partition: Partition) -> None:
        self.worker = Worker()
        self.appends = LocalAppends(partition, self.worker.validate)
        self.outcomes: list[tuple[str, Outcome]] = []

    def append(self, name: str, value_bytes: int) -> None:
        batch = make_batch(value=bytes(value_bytes), timestamp_ms=0)
        self.appends.append(batch, check_batch(batch), lambda outcome: self.outcomes.append((name, outcome)))

    async def all_appended(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.outcomes) < count:
                await asyncio.sleep(0)


LARGE, SMALL = 4 * SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX, 100


@in_loop
async def test_nothing_overtakes_a_batch_that_the_worker_compresses(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", compression_type="gzip")
        world = World(topic.partitions[0])
        world.append("first", SMALL)
        assert world.outcomes == [("first", 0)]
        world.append("large", LARGE)
        world.append("small", SMALL)
        world.append("large again", LARGE)
        await asyncio.sleep(0)
        assert world.worker.count == 1
        assert len(world.outcomes) == 1
        world.worker.may_go.set()
        await world.all_appended(4)
        assert world.outcomes[1:] == [("large", 1), ("small", 2), ("large again", 3)]
        # From here on batches are appended at once again.
        await asyncio.sleep(0)
        world.append("last", SMALL)
        assert world.outcomes[-1] == ("last", 4)


@in_loop
async def test_a_batch_that_the_worker_refuses_does_not_hold_up_the_next(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", compression_type="gzip")
        world = World(topic.partitions[0])
        world.worker.error = CorruptBatch("no records")
        world.append("large", LARGE)
        world.append("small", SMALL)
        world.worker.may_go.set()
        await world.all_appended(2)
        (_, refused), small = world.outcomes
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.CORRUPT_MESSAGE
        assert small == ("small", 0)


@in_loop
async def test_what_waits_for_the_worker_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_appends, "WAITING_BYTES_MAX", 2 * LARGE)
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", compression_type="gzip")
        world = World(topic.partitions[0])
        world.append("large", LARGE)
        world.append("one more", LARGE // 2)
        world.append("too much", LARGE)
        ((name, refused),) = world.outcomes
        assert name == "too much"
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        world.worker.may_go.set()
        await world.all_appended(3)
        assert world.outcomes[1:] == [("large", 0), ("one more", 1)]
