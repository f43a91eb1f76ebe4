"""Writes the waiting audit entries to the topic `kwire-audit`, as a hash chain.

Only this writer appends to the topic, one batch after the other. After a start and after a failed append, it reads the
last record of the log before it continues the chain, so the chain continues from what is really stored. An entry whose
append failed is written again, with the same event id.
"""

import asyncio
import logging
import os

from kwire.access.audit.entries import THE_SERVER, acting
from kwire.access.audit.pending import has_pending, record_pending
from kwire.access.audit.queue import AuditQueue, WaitingEntry
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.broker.topics.topics import NewTopic, Topic, Topics
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange, StreamError
from kwire.metastore import MetaStore
from kwire.streams.audit.chain import NO_RECORD, PREVIOUS_HEADER, record_hash
from kwire.streams.events.event import NewEvent, record_of
from kwire.streams.log import NotReady, StreamLog, Unreadable
from storage.batch.builder import build_batch_from_bodies, encode_record_body, header_bytes
from storage.batch.record_batch import Record, parse_header, read_records

log = logging.getLogger("kwire.audit")

AUDIT_SOURCE = b"/kwire/audit"
# The maximum number and size of the entries that one batch contains.
BATCH_ENTRIES_MAX = 500
BATCH_BYTES_MAX = 512 * 1024
# The largest batch that the topic accepts. An entry has at most 64 KiB.
MESSAGE_BYTES_MAX = 1024 * 1024
SEGMENT_BYTES = 64 * 1024 * 1024
READ_BYTES = 64 * 1024
# The maximum size of the records of a batch, for a topic that a client wrote to before it was protected.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# The pause after a failed append.
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0


class AuditWriter:
    """Writes the entries of `queue` in the background. The first entry creates the topic."""

    def __init__(self, queue: AuditQueue, topics: Topics, clock: Clock, retention_ms: int) -> None:
        self._queue = queue
        self._topics = topics
        self._clock = clock
        self._configs = _configs(retention_ms)
        self._task: asyncio.Task[None] | None = None
        # The log whose last record has the hash `_head`; None if the last record must be read first.
        self._log: StreamLog | None = None
        self._head = NO_RECORD
        # The prefix is random for each run of the server, so ids are unique.
        self._id_prefix = f"audit_{os.urandom(8).hex()}-"
        self._id_number = 0
        self._pending_task: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self, metastore: MetaStore | None = None) -> None:
        """Begin to write. The changes that were made while the server was stopped are in `metastore`."""
        self._queue.on_waiting = self._wake
        if len(self._queue):
            self._wake()
        if metastore is not None and has_pending(metastore):
            pending = record_pending(metastore, self._queue, self._written)
            self._pending_task = asyncio.get_running_loop().create_task(pending)

    async def _written(self) -> None:
        """Wait until the entries that are waiting now are in the topic."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Write the waiting entries, for at most CLOSE_SECONDS. The others are dropped, which is logged."""
        if self._pending_task is not None:
            # Entries that it has not removed from the metadata store are written at the next start.
            self._pending_task.cancel()
        self._queue.close()
        self._is_closing = True
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            if not done:
                self._task.cancel()
                await asyncio.wait([self._task])
        if len(self._queue):
            self._queue.drop(len(self._queue), "they could not be written before the server stopped")

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            with acting(THE_SERVER):
                self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        while entries := self._queue.take(BATCH_ENTRIES_MAX, BATCH_BYTES_MAX):
            events = [self._event(one) for one in entries]
            while not await self._is_written(events):
                if self._is_closing:
                    self._queue.put_back(entries)
                    return
                await asyncio.sleep(RETRY_SECONDS)

    def _event(self, entry: WaitingEntry) -> NewEvent:
        self._id_number += 1
        return NewEvent(entry.type, entry.data, event_id=f"{self._id_prefix}{self._id_number:x}")

    async def _is_written(self, events: list[NewEvent]) -> bool:
        try:
            await self._write(events)
        except (KafkaError, StreamError, OSError) as error:
            # It is not known what is stored now.
            self._log = None
            log.warning("%d audit entries cannot be written to topic %s now: %s", len(events), AUDIT_TOPIC, error)
            return False
        except BaseException:
            self._log = None
            raise
        return True

    async def _write(self, events: list[NewEvent]) -> None:
        if self._log is None or self._log.is_closing:
            stream = (await self._topic()).stream()
            self._head = await last_hash(stream)
            self._log = stream
        now_ms = self._clock.now_ms()
        head, bodies = self._head, []
        for event in events:
            linked = event._replace(metadata={PREVIOUS_HEADER: head.hex()})
            record = record_of(linked, AUDIT_SOURCE, event.event_id or "", now_ms)
            head = record_hash(record)
            bodies.append(_body(record))
        appended: asyncio.Future[int | KafkaError] = asyncio.get_running_loop().create_future()
        self._log.append(
            *build_batch_from_bodies(bodies, now_ms),
            lambda outcome: None if appended.done() else appended.set_result(outcome),
        )
        outcome = await appended
        if isinstance(outcome, KafkaError):
            raise outcome
        self._head = head

    async def _topic(self) -> Topic:
        topic = self._topics.get(AUDIT_TOPIC)
        if topic is None:
            try:
                (topic,) = await self._topics.create([NewTopic(AUDIT_TOPIC, 1, self._configs)])
            except KafkaError as error:
                topic = self._topics.get(AUDIT_TOPIC)
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or topic is None:
                    raise
        if dict(topic.configs) != self._configs:
            # The setting has changed, or an older version created the topic.
            await self._topics.configure(topic, self._configs)
        return topic


def _configs(retention_ms: int) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "kwire.log.sync": "group",
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
        # The hash of a record covers its timestamp.
        "message.timestamp.type": "CreateTime",
        "retention.bytes": "-1",
        "retention.ms": str(retention_ms),
        "segment.bytes": str(SEGMENT_BYTES),
    }


def _body(record: Record) -> bytes:
    headers = b"".join(header_bytes(name.encode(), value) for name, value in record.headers)
    return encode_record_body(record.key, record.value, len(record.headers), headers)


async def last_hash(stream: StreamLog) -> bytes:
    """Return the hash of the last record of a log, NO_RECORD if it has none. Raises KafkaError."""
    await stream.ready()
    bounds = stream.bounds()
    offset = bounds.committed_end - 1
    while offset >= bounds.start:
        try:
            record = await _last_record(stream, offset)
        except Unreadable as damage:
            offset = min(damage.from_offset, offset) - 1
            continue
        except OffsetOutOfRange:
            # Retention has deleted all records meanwhile.
            break
        if record is not None:
            return record_hash(record)
        # A transaction marker, in a topic that clients wrote to before it was protected.
        offset -= 1
    return NO_RECORD


async def _last_record(stream: StreamLog, offset: int) -> Record | None:
    """Return the last record of the batches from `offset` on."""
    waits = 0
    while isinstance(read := stream.read(offset, READ_BYTES, waits), NotReady):
        await read.wait()
        waits += 1
    view, position, last = read.records, 0, None
    while position < len(view):
        header = parse_header(view, position)
        batch = view[position : position + header.size_bytes]
        if not header.is_control:
            for record in read_records(batch, DECOMPRESSED_BYTES_MAX):
                last = record
        position += header.size_bytes
    return last
