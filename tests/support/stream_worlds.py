"""What a contract test of StreamLog needs besides the log: topics that come and go, transactions, a disk that waits.

One world per implementation; those of remote logs are in `remote_worlds`. `in_world` lets an async function be a test.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic
from kwire.streams.log import NotReady, StreamLog, StreamRead
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from storage.batch.format import CONTROL_BIT, TRANSACTIONAL_BIT
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.disk.files import Files
from tests.support.batches import UnsyncedFiles
from tests.support.events import SyncLater
from tests.support.memory_log import MemoryLog
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer

MAX_BATCH_BYTES = 20_000
UNFOLDED_BYTES_MAX = 64 * 1024 * 1024
NOW_MS = 1_700_000_000_000


class StreamWorld(ABC):
    """`create` and `delete` are what an administrator does, the other methods what clients and the disk do to a log."""

    # Whether `bounds().end` includes records that are not committed on any disk yet.
    sees_uncommitted = True

    async def start(self) -> None:  # noqa: B027 (most worlds need none)
        """Called before the test, in its loop."""

    @abstractmethod
    async def stop(self) -> None:
        """Called after the test."""

    async def settle(self) -> None:  # noqa: B027 (only remote logs learn things later)
        """Wait until the logs know everything that has happened, except for appends that are held."""

    @abstractmethod
    async def create(self, name: str = "room") -> StreamLog: ...

    @abstractmethod
    async def delete(self, log: StreamLog) -> None:
        """Delete the topic, and wait until the log knows it."""

    @abstractmethod
    def find(self, name: str) -> StreamLog: ...

    @abstractmethod
    def hold(self) -> None:
        """Appended records are not committed until `release`."""

    @abstractmethod
    def release(self) -> None: ...

    @abstractmethod
    async def send(self, log: StreamLog, producer_id: int, *values: bytes, at_ms: int = NOW_MS) -> None:
        """One batch of a transaction."""

    @abstractmethod
    async def end(self, log: StreamLog, producer_id: int, *, is_commit: bool) -> None:
        """The end of a producer's transaction."""

    @abstractmethod
    async def delete_before(self, log: StreamLog, offset: int) -> None:
        """Move the start of the log."""


def in_world(test: Callable[[StreamWorld], Awaitable[None]]) -> Callable[[StreamWorld], None]:
    """Run an async test of a world in an event loop."""

    @in_loop
    @functools.wraps(test)
    async def run(world: StreamWorld) -> None:
        await world.start()
        try:
            await test(world)
        finally:
            await world.stop()

    return run


class MemoryWorld(StreamWorld):
    def __init__(self, directory: Path) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._count = 0
        self._is_held = False

    async def create(self, name: str = "room") -> MemoryLog:
        self._count += 1
        log = self._logs[name] = MemoryLog(name, 0, f"incarnation {self._count}", MAX_BATCH_BYTES)
        log.is_cold = True
        log.is_held = self._is_held
        return log

    async def delete(self, log: StreamLog) -> None:
        self._logs.pop(log.topic).delete()

    def find(self, name: str) -> StreamLog:
        return self._logs[name]

    def hold(self) -> None:
        self._is_held = True
        for log in self._logs.values():
            log.is_held = True

    def release(self) -> None:
        self._is_held = False
        for log in self._logs.values():
            log.release()

    async def send(self, log: StreamLog, producer_id: int, *values: bytes, at_ms: int = NOW_MS) -> None:
        records = [Record(None, value, at_ms) for value in values]
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, is_transactional=True, base_sequence=0)
        self._logs[log.topic].append_in_transaction(memoryview(batch))

    async def end(self, log: StreamLog, producer_id: int, *, is_commit: bool) -> None:
        self._logs[log.topic].end_transaction(producer_id, is_commit, NOW_MS)

    async def delete_before(self, log: StreamLog, offset: int) -> None:
        self._logs[log.topic].delete_before(offset)

    async def stop(self) -> None:
        """Nothing is open."""


class HeldSyncs(SyncLater):
    """Sync rounds that are over at once, unless a test holds them."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.is_held = False

    def add(self, partition: Partition) -> None:
        super().add(partition)
        if not self.is_held:
            self.run()


class LocalWorld(StreamWorld):
    def __init__(self, directory: Path) -> None:
        files = UnsyncedFiles()
        self._syncs = HeldSyncs(files)
        self.node = QuietNode(directory, files=files, syncs=self._syncs)
        self._producers: dict[tuple[StreamLog, int], TransactionalProducer] = {}

    @property
    def cold_reads(self) -> ColdReads:
        return self.node.cold_reads

    async def create(self, name: str = "room") -> StreamLog:
        topic = await self.node.create(name, max_message_bytes=str(MAX_BATCH_BYTES), kwire_log_sync="group")
        return topic.stream()

    async def delete(self, log: StreamLog) -> None:
        await self.node.topics.delete(self._topic(log.topic))

    def find(self, name: str) -> StreamLog:
        return self._topic(name).stream()

    def hold(self) -> None:
        self._syncs.is_held = True

    def release(self) -> None:
        self._syncs.is_held = False
        self._syncs.run()

    async def send(self, log: StreamLog, producer_id: int, *values: bytes, at_ms: int = NOW_MS) -> None:
        self._producer(log, producer_id).send_records([Record(None, value, at_ms) for value in values])

    async def end(self, log: StreamLog, producer_id: int, *, is_commit: bool) -> None:
        producer = self._producer(log, producer_id)
        producer.commit() if is_commit else producer.abort()

    async def delete_before(self, log: StreamLog, offset: int) -> None:
        log_of(self._topic(log.topic).partitions[0]).advance_log_start_offset(offset)

    async def stop(self) -> None:
        self.node.close()

    def _producer(self, log: StreamLog, producer_id: int) -> TransactionalProducer:
        key = log, producer_id
        if key not in self._producers:
            self._producers[key] = TransactionalProducer(self._topic(log.topic).partitions[0], producer_id)
        return self._producers[key]

    def _topic(self, name: str) -> Topic:
        topic = self.node.topics.get(name)
        assert topic is not None
        return topic


# --- what a client of a log does


class Appends(list[object]):
    """The outcomes of appends, in the order in which they completed."""

    def send(self, log: StreamLog, *values: bytes, at_ms: int = NOW_MS) -> None:
        """Append one batch."""
        log.append(
            *build_batch_from_bodies([encode_record_body(None, value, 0, b"") for value in values], at_ms), self.append
        )


async def read_once(log: StreamLog, offset: int, max_bytes: int = 1024 * 1024) -> StreamRead:
    waits = 0
    while isinstance(read := log.read(offset, max_bytes, waits), NotReady):
        await read.wait()
        waits += 1
        assert waits < 10, "a read that never completes"
    return read


async def read_values(log: StreamLog, offset: int = 0, max_bytes: int = 1024 * 1024) -> list[tuple[int, bytes | None]]:
    """The offsets and values of all committed records from `offset` on, read in portions of `max_bytes`."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        read = await read_once(log, offset, max_bytes)
        found += [(at, value) for at, value in committed_records(read) if at >= offset]
        if not read.records:
            assert read.next_offset >= offset
            return found
        assert read.next_offset > offset
        offset = read.next_offset


def committed_records(read: StreamRead) -> list[tuple[int, bytes | None]]:
    found, position = list[tuple[int, bytes | None]](), 0
    while position < len(read.records):
        header = parse_header(read.records, position)
        end = position + header.size_bytes
        is_aborted = header.attributes & TRANSACTIONAL_BIT and any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
            for one in read.aborted
        )
        if not header.attributes & CONTROL_BIT and not is_aborted:
            records = read_records(read.records[position:end], UNFOLDED_BYTES_MAX)
            found += [(record.offset, None if record.value is None else bytes(record.value)) for record in records]
        position = end
    return found
