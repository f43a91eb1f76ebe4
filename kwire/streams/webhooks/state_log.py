"""What webhooks have to remember, as records of the internal topic `__webhooks`: compacted, one partition.

Changes are gathered for a moment and written together, all those of one webhook in one batch, so what a start finds is
a state that the webhook really was in. Nobody waits for it: what a crash takes back is delivered again. A batch that
the disk refuses is tried again with what has changed meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kwire.broker.catalogue import WEBHOOKS_TOPIC
from kwire.broker.cold_reads import ColdReads
from kwire.broker.coordinator_log import CoordinatorLog
from kwire.broker.internal_records import Paused
from kwire.broker.internal_topics import webhooks_topic
from kwire.broker.partition import Partition, code_of
from kwire.broker.topics import NewTopic, Topics
from kwire.broker.webhooks.consumer import Consumer, Key
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from storage.batch_writing import batch_of_tails, record_tail
from storage.errors import StorageError

log = logging.getLogger("kwire.webhooks")

# How long a change may wait for others.
GATHER_SECONDS = 0.1
# After a failure.
PAUSE_SECONDS = 5.0
# Records of several webhooks share a batch up to so many, which takes some milliseconds; then others get their turn.
BATCH_RECORDS = 250
PORTION_PAUSE_SECONDS = 0.02
# While stored records are read from the disk, and after how many of them other work has its turn.
READ_PAUSE_SECONDS = 0.005
RECORDS_PER_TURN = 500
# A stop waits so long for the disk.
SETTLE_SECONDS = 10.0
SHARD = 0

CallLater = Callable[..., "asyncio.TimerHandle"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Stored = dict[str, dict[Key, Any]]


class StateLog(Protocol):
    """Where changes go: the topic, or nowhere."""

    async def open(self) -> Stored:
        """All records there are, by webhook. Raises StorageError if they cannot be read."""
        ...

    async def prepare(self) -> None:
        """There is going to be something to remember; raises KafkaError."""
        ...

    def note(self, consumer: Consumer) -> None:
        """It may have changes; they are taken soon."""
        ...

    def forget(self, webhook_id: str, keys: list[Key]) -> None:
        """A webhook is gone, and so are its records."""
        ...

    async def settle(self) -> None:
        """Everything noted so far is on disk when this returns; raises KafkaError."""
        ...

    async def close(self) -> None: ...


class NoStateLog:
    """For webhooks that live in memory only."""

    async def open(self) -> Stored:
        return {}

    async def prepare(self) -> None:
        """Nothing is written."""

    def note(self, consumer: Consumer) -> None:
        consumer.take_changes()

    def forget(self, webhook_id: str, keys: list[Key]) -> None:
        """Nothing was written."""

    async def settle(self) -> None:
        """There is nothing to wait for."""

    async def close(self) -> None:
        """There is nothing to put away."""


class TopicStateLog:
    """Called from the event loop."""

    def __init__(self, topics: Topics, clock: Clock, call_later: CallLater) -> None:
        self._topics = topics
        self._clock = clock
        self._call_later = call_later
        self._log = CoordinatorLog(topics, WEBHOOKS_TOPIC, ColdReads(topics.lanes.read))
        # Whose changes are to be taken; keys of those that are gone.
        self._noted: dict[Consumer, None] = {}
        self._forgotten: dict[str, list[Key]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._end_offset = 0
        self.failures = 0

    async def open(self) -> Stored:
        stored: Stored = {}
        for number, one in enumerate(self._log.replay(SHARD), start=1):
            if isinstance(one, Paused):
                await asyncio.sleep(READ_PAUSE_SECONDS)
            elif number % RECORDS_PER_TURN == 0:
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

    def note(self, consumer: Consumer) -> None:
        if consumer.has_changes and not consumer.is_removed:
            self._noted[consumer] = None
            self._arm(GATHER_SECONDS)

    def forget(self, webhook_id: str, keys: list[Key]) -> None:
        self._noted = {one: None for one in self._noted if one.webhook_id != webhook_id}
        self._forgotten[webhook_id] = keys
        self._arm(GATHER_SECONDS)

    async def settle(self) -> None:
        # As many as there are now, the oldest first: those that come meanwhile are somebody else's, and may never end.
        left = len(self._noted)
        while self._forgotten or (self._noted and left > 0):
            left -= self._flush()
            await asyncio.sleep(0)
        if self._end_offset == 0:
            return
        reached: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def tell(error: KafkaError | None) -> None:
            if not reached.done():
                reached.set_result(error)

        self._log.on_committed(SHARD, self._end_offset, tell)
        error = await reached
        if error is not None:
            raise error

    async def close(self) -> None:
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self.settle()
        except (KafkaError, TimeoutError):
            log.exception("where webhooks stand could not be written down: some events will be delivered again")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- writing

    def _arm(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._call_later(seconds, self._flush_in_time)

    def _flush_in_time(self) -> None:
        self._timer = None
        try:
            self._flush()
        except KafkaError as error:
            self.failures += 1
            log.warning("where webhooks stand could not be written down, it is tried again: %s", error)
            self._arm(PAUSE_SECONDS)
            return
        if self._noted or self._forgotten:
            self._arm(PORTION_PAUSE_SECONDS)

    def _flush(self) -> int:
        """Write a portion of the changes; of how many webhooks. Raises KafkaError, and then they are noted again."""
        taken: list[tuple[Consumer, list[tuple[Key, Any]]]] = []
        forgotten: dict[str, list[Key]] = {}
        # Records without their places: a batch is made of them many times faster than of objects.
        records: list[bytes] = []
        while self._forgotten and len(records) < BATCH_RECORDS:
            # In portions: of one that is gone no state has to be whole.
            webhook_id, all_keys = self._forgotten.popitem()
            keys, later = all_keys[:BATCH_RECORDS], all_keys[BATCH_RECORDS:]
            if later:
                self._forgotten[webhook_id] = later
            forgotten[webhook_id] = [*forgotten.get(webhook_id, ()), *keys]
            records += [record_tail(_encode((webhook_id, *key)), None, 0, b"") for key in keys]
        while self._noted and len(records) < BATCH_RECORDS:
            consumer = next(iter(self._noted))
            del self._noted[consumer]
            changes = consumer.take_changes()
            taken.append((consumer, changes))
            for key, value in changes:
                raw_value = None if value is None else _encode(value)
                records.append(record_tail(_encode((consumer.webhook_id, *key)), raw_value, 0, b""))
        if not records:
            return len(taken)
        try:
            appended = self._partition().append(*batch_of_tails(records, self._clock.now_ms()))
            self._end_offset = appended.last_offset + 1
        except (StorageError, KafkaError, LookupError) as error:
            for consumer, changes in taken:
                consumer.give_back(changes)
                self._noted[consumer] = None
            for webhook_id, keys in forgotten.items():
                self._forgotten[webhook_id] = [*keys, *self._forgotten.get(webhook_id, ())]
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
