"""The stored state of webhooks: records of a topic that is compacted and has one partition.

Changes are collected for COLLECT_SECONDS and written together. All changes of one webhook are in one batch, so its
stored state is always consistent. Deliveries do not wait for these writes. If a crash loses changes, some events are
delivered again. If a batch cannot be written, its changes are written later, together with newer ones. One batch is
written at a time.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kwire.clock import Clock
from kwire.errors import KafkaError
from kwire.streams.webhooks.consumer import Consumer, Key
from kwire.streams.webhooks.state_topic import StateTopic
from storage.batch.builder import build_batch_from_bodies, encode_record_body

log = logging.getLogger("kwire.webhooks")

# How long changes are collected before they are written.
COLLECT_SECONDS = 0.1
# Pause after a write that failed.
PAUSE_SECONDS = 5.0
# Changes of further webhooks are added to a batch until it has this many records. Writing such a batch takes some
# milliseconds. A pause follows each batch.
BATCH_RECORDS = 250
BATCH_PAUSE_SECONDS = 0.02
# How long `close` waits for the last write.
CLOSE_SECONDS = 10.0

CallLater = Callable[..., "asyncio.TimerHandle"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

StoredRecords = dict[str, dict[Key, Any]]


class StateLog(Protocol):
    """A store for the state of webhooks."""

    @property
    def exists(self) -> bool:
        """Whether any state was ever stored."""
        ...

    async def open(self) -> StoredRecords:
        """Return all stored records by webhook. Raises KafkaError if they cannot be read."""
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

    exists = False

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
    """Stores the state in a topic. Use it only in the event loop's thread."""

    def __init__(self, topic: StateTopic, clock: Clock, call_later: CallLater) -> None:
        self._topic = topic
        self._clock = clock
        self._call_later = call_later
        # Webhooks with changes to write, and the record keys of removed webhooks.
        self._queued: dict[Consumer, None] = {}
        self._removed_keys: dict[str, list[Key]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The write that the timer has begun.
        self._task: asyncio.Task[None] | None = None
        # Held during each write, so that batches are stored in order and a failed one can be repeated.
        self._write_lock = asyncio.Lock()
        self.failures = 0

    @property
    def exists(self) -> bool:
        return self._topic.exists

    async def open(self) -> StoredRecords:
        stored: StoredRecords = {}
        async for raw_key, raw_value in self._topic.records():
            if raw_key is None:
                continue
            webhook_id, *parts = _decode(raw_key)
            records = stored.setdefault(webhook_id, {})
            if raw_value is None:
                records.pop(tuple(parts), None)
            else:
                records[tuple(parts)] = _decode(raw_value)
        return {webhook_id: records for webhook_id, records in stored.items() if records}

    async def prepare(self) -> None:
        if not self._topic.exists:
            await self._topic.create()

    def enqueue(self, consumer: Consumer) -> None:
        if consumer.has_changes and not consumer.is_removed:
            self._queued[consumer] = None
            self._arm(COLLECT_SECONDS)

    def remove(self, webhook_id: str, keys: list[Key]) -> None:
        self._queued = {one: None for one in self._queued if one.webhook_id != webhook_id}
        self._removed_keys[webhook_id] = keys
        self._arm(COLLECT_SECONDS)

    async def flush(self) -> None:
        async with self._write_lock:
            # Write only as many webhooks as are queued now, the oldest first. Otherwise this might never end, because
            # new changes may arrive continuously.
            left = len(self._queued)
            while self._removed_keys or (self._queued and left > 0):
                left -= await self._write_some()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.flush()
        except (KafkaError, TimeoutError) as error:
            log.error("the state of webhooks could not be stored, some events will be delivered again: %r", error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # --- writing

    def _arm(self, seconds: float) -> None:
        if self._timer is None and self._task is None:
            self._timer = self._call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._write_in_background())

    async def _write_in_background(self) -> None:
        pause_seconds = BATCH_PAUSE_SECONDS
        try:
            async with self._write_lock:
                await self._write_some()
        except KafkaError as error:
            self.failures += 1
            pause_seconds = PAUSE_SECONDS
            log.warning("the state of webhooks could not be stored, the write is retried: %s", error)
        finally:
            self._task = None
        if self._queued or self._removed_keys:
            self._arm(pause_seconds)

    async def _write_some(self) -> int:
        """Write one batch of changes. Returns the number of webhooks whose changes were taken from the queue.

        Raises KafkaError if the batch could not be stored. Its changes are then scheduled again.
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
            await self._topic.append(*build_batch_from_bodies(records, self._clock.now_ms()))
        except BaseException:
            # It may have been stored: the same records again, with the values of then, do no harm.
            for consumer, changes in taken:
                if not consumer.is_removed:
                    consumer.restore_changes(changes)
                    self._queued[consumer] = None
            for webhook_id, keys in removed_keys.items():
                self._removed_keys[webhook_id] = [*keys, *self._removed_keys.get(webhook_id, ())]
            raise
        return len(taken)
