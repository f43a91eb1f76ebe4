"""The stored state of webhooks: records of the internal topic `__webhooks`, which is compacted and has one partition.

Changes are collected for COLLECT_SECONDS and written together. All changes of one webhook are in one batch, so its
stored state is always consistent. Deliveries do not wait for these writes. If a crash loses changes, some events are
delivered again. If a batch cannot be written, its changes are written later, together with newer ones.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition, code_of
from kwire.broker.topics.catalogue import WEBHOOKS_TOPIC
from kwire.broker.topics.internal_topics import webhooks_topic
from kwire.broker.topics.topics import NewTopic, Topics
from kwire.clock import Clock
from kwire.coordinator.internal_topic_log import InternalTopicLog
from kwire.coordinator.log_records import Paused
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.webhooks.consumer import Consumer, Key
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from storage.errors import StorageError

log = logging.getLogger("kwire.webhooks")

# How long changes are collected before they are written.
COLLECT_SECONDS = 0.1
# Pause after a write that failed.
PAUSE_SECONDS = 5.0
# Changes of further webhooks are added to a batch until it has this many records. Writing such a batch takes some
# milliseconds. A pause follows each batch.
BATCH_RECORDS = 250
BATCH_PAUSE_SECONDS = 0.02
# When the state is loaded: the pause while records are read from disk, and the number of records between two yields to
# the event loop.
READ_PAUSE_SECONDS = 0.005
RECORDS_PER_ITERATION = 500
# How long `close` waits for the disk.
CLOSE_SECONDS = 10.0
SHARD = 0

CallLater = Callable[..., "asyncio.TimerHandle"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

StoredRecords = dict[str, dict[Key, Any]]


class StateLog(Protocol):
    """A store for the state of webhooks."""

    async def open(self) -> StoredRecords:
        """Return all stored records by webhook. Raises StorageError if they cannot be read."""
        ...

    async def prepare(self) -> None:
        """Create the topic if it does not exist; raises KafkaError."""
        ...

    def enqueue(self, consumer: Consumer) -> None:
        """Schedule writing the changes of a webhook, if it has any."""
        ...

    def remove(self, webhook_id: str, keys: list[Key]) -> None:
        """Schedule removal of the records of a webhook that was removed."""
        ...

    async def flush(self) -> None:
        """Write the changes that are scheduled now. They are durable when this returns. Raises KafkaError."""
        ...

    async def close(self) -> None: ...


class NoStateLog:
    """A `StateLog` that stores nothing, for webhooks that exist in memory only."""

    async def open(self) -> StoredRecords:
        return {}

    async def prepare(self) -> None:
        """Do nothing."""

    def enqueue(self, consumer: Consumer) -> None:
        consumer.take_changes()

    def remove(self, webhook_id: str, keys: list[Key]) -> None:
        """Do nothing."""

    async def flush(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class TopicStateLog:
    """Stores the state in the internal topic `__webhooks`. Use it only in the event loop's thread."""

    def __init__(self, topics: Topics, clock: Clock, call_later: CallLater) -> None:
        self._topics = topics
        self._clock = clock
        self._call_later = call_later
        self._log = InternalTopicLog(topics, WEBHOOKS_TOPIC, ColdReads(topics.lanes.read))
        # Webhooks with changes to write, and the record keys of removed webhooks.
        self._queued: dict[Consumer, None] = {}
        self._removed_keys: dict[str, list[Key]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._end_offset = 0
        self.failures = 0

    async def open(self) -> StoredRecords:
        stored: StoredRecords = {}
        for number, one in enumerate(self._log.replay(SHARD), start=1):
            if isinstance(one, Paused):
                await asyncio.sleep(READ_PAUSE_SECONDS)
            elif number % RECORDS_PER_ITERATION == 0:
                await asyncio.sleep(0)
            if not isinstance(one, tuple):
                continue
            raw_key, raw_value = one
            webhook_id, *parts = _decode(raw_key)
            records = stored.setdefault(webhook_id, {})
            if raw_value is None:
                records.pop(tuple(parts), None)
            else:
                records[tuple(parts)] = _decode(raw_value)
        return {webhook_id: records for webhook_id, records in stored.items() if records}

    async def prepare(self) -> None:
        if self._topics.get(WEBHOOKS_TOPIC) is not None:
            return
        try:
            await self._topics.create([NewTopic(WEBHOOKS_TOPIC, *webhooks_topic())])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def enqueue(self, consumer: Consumer) -> None:
        if consumer.has_changes and not consumer.is_removed:
            self._queued[consumer] = None
            self._arm(COLLECT_SECONDS)

    def remove(self, webhook_id: str, keys: list[Key]) -> None:
        self._queued = {one: None for one in self._queued if one.webhook_id != webhook_id}
        self._removed_keys[webhook_id] = keys
        self._arm(COLLECT_SECONDS)

    async def flush(self) -> None:
        # Write only as many webhooks as are queued now, the oldest first. Otherwise this might never end, because new
        # changes may arrive continuously.
        left = len(self._queued)
        while self._removed_keys or (self._queued and left > 0):
            left -= self._write_some()
            await asyncio.sleep(0)
        if self._end_offset == 0:
            return
        reached: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def set_reached(error: KafkaError | None) -> None:
            if not reached.done():
                reached.set_result(error)

        self._log.on_committed(SHARD, self._end_offset, set_reached)
        error = await reached
        if error is not None:
            raise error

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.flush()
        except (KafkaError, TimeoutError):
            log.exception("the state of webhooks could not be stored: some events will be delivered again")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- writing

    def _arm(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._write_some()
        except KafkaError as error:
            self.failures += 1
            log.warning("the state of webhooks could not be stored, the write is retried: %s", error)
            self._arm(PAUSE_SECONDS)
            return
        if self._queued or self._removed_keys:
            self._arm(BATCH_PAUSE_SECONDS)

    def _write_some(self) -> int:
        """Write one batch of changes. Returns the number of webhooks whose changes were taken from the queue.

        Raises KafkaError if the batch cannot be appended. Its changes are then scheduled again.
        """
        taken: list[tuple[Consumer, list[tuple[Key, Any]]]] = []
        removed_keys: dict[str, list[Key]] = {}
        # Encoded records without their deltas. A batch is built many times faster from these than from record objects.
        records: list[bytes] = []
        while self._removed_keys and len(records) < BATCH_RECORDS:
            # The records of a removed webhook may be removed in several batches: its state need not be consistent.
            webhook_id, all_keys = self._removed_keys.popitem()
            keys, later = all_keys[:BATCH_RECORDS], all_keys[BATCH_RECORDS:]
            if later:
                self._removed_keys[webhook_id] = later
            removed_keys[webhook_id] = [*removed_keys.get(webhook_id, ()), *keys]
            records += [encode_record_body(_encode((webhook_id, *key)), None, 0, b"") for key in keys]
        while self._queued and len(records) < BATCH_RECORDS:
            consumer = next(iter(self._queued))
            del self._queued[consumer]
            changes = consumer.take_changes()
            taken.append((consumer, changes))
            for key, value in changes:
                raw_value = None if value is None else _encode(value)
                records.append(encode_record_body(_encode((consumer.webhook_id, *key)), raw_value, 0, b""))
        if not records:
            return len(taken)
        try:
            appended = self._partition().append(*build_batch_from_bodies(records, self._clock.now_ms()))
            self._end_offset = appended.last_offset + 1
        except (StorageError, KafkaError, LookupError) as error:
            for consumer, changes in taken:
                consumer.restore_changes(changes)
                self._queued[consumer] = None
            for webhook_id, keys in removed_keys.items():
                self._removed_keys[webhook_id] = [*keys, *self._removed_keys.get(webhook_id, ())]
            raise _as_kafka_error(error) from error
        return len(taken)

    def _partition(self) -> Partition:
        topic = self._topics.get(WEBHOOKS_TOPIC)
        if topic is None:
            raise LookupError(f"{WEBHOOKS_TOPIC} does not exist")
        return topic.partitions[SHARD]


def _as_kafka_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, StorageError):
        return KafkaError(code_of(error), str(error))
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
