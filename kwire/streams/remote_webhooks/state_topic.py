"""RemoteStateTopic: the StateTopic of a bridge, and whether the bridge still owns it.

topic = RemoteStateTopic(logs, "__kwire_webhooks", owner)
if await topic.read(): await topic.take_over()      other bridges stop to deliver; all of their state is read
await topic.lost                                    another bridge has taken over, or the topic was deleted
await topic.close()

Each batch is a transaction of one transactional id, so the bridge that opened it last is the only one that can store
state. A bridge without changes to store writes its owner record every CHECK_SECONDS, and so notices that it was fenced.

A bridge that takes over writes its owner record outside of a transaction first. So a bridge that was fenced finds the
owner record of the other one, and does not take the topic back as if the cluster had ended its writer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final, NoReturn

from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.events.replay import KeyValue
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.transactions.partition_writes import TopicGone
from kwire.streams.remote.transactions.writer import (
    WRITER_PREFIX,
    TransactionalWriter,
    TransactionBatch,
    UnknownTransaction,
)
from kwire.streams.remote_webhooks.stored_state import OWNER, Owner, StoredState, encode
from kwire.streams.remote_webhooks.topic_setup import PARTITION, create_state_topic, find_state_topic
from kwire.streams.webhooks.definition_secrets import Value
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from storage.batch.record_batch import BatchHeader

log = logging.getLogger("kwire.webhooks")

# How often a bridge that has nothing to store checks that it was not fenced.
CHECK_SECONDS: Final = 5.0
# How long a caller waits for a write. The write itself goes on until its outcome is known.
WRITE_SECONDS: Final = 60.0
# How long the transactions of earlier bridges may take to end after this one has fenced them.
SETTLE_SECONDS: Final = 10.0
# The same before. The owner may have been killed in a transaction, which ends only when it is fenced.
GLANCE_SECONDS: Final = 1.0


class RemoteStateTopic:
    """Use it in the event loop's thread. Methods raise KafkaError."""

    def __init__(self, logs: RemoteLogs, name: str, owner: Owner, clock: Clock) -> None:
        self.name = name
        self.owner = owner
        # Done when this bridge must not deliver any longer.
        self.lost: asyncio.Future[KafkaError] = asyncio.get_running_loop().create_future()
        self._logs = logs
        self._clock = clock
        self._log: RemoteLog | None = None
        self._stored = StoredState()
        self._writer: TransactionalWriter | None = None
        self._offset_min = 0
        self._written_at = 0.0
        self._checking: asyncio.Task[None] | None = None

    @property
    def exists(self) -> bool:
        return self._writer is not None

    @property
    def definitions(self) -> Mapping[str, Value]:
        """The definitions that were read, as they are stored."""
        return self._stored.definitions

    @property
    def stored_owner(self) -> Owner | None:
        """The owner that was read."""
        return self._stored.owner

    async def read(self, *, is_complete: bool = False) -> bool:
        """Read what is stored and was not read before, without taking over. Returns False if there is no topic.

        A transaction may be open, and what follows it cannot be read. With `is_complete` this raises KafkaError.
        """
        if self._log is None:
            self._log = await find_state_topic(self._logs, self.name)
        if self._log is None:
            return False
        if not await self._settle(self._log, GLANCE_SECONDS) and is_complete:
            raise self._open_transaction()
        await self._stored.read(self._log)
        return True

    async def take_over(self) -> None:
        """Fence the bridge that has written to the topic, and read the rest of what it has stored."""
        assert self._log is not None
        writer = TransactionalWriter(self._logs.cluster, f"{WRITER_PREFIX}webhooks.{self.name}")
        await self._announce_owner(self._log)
        try:
            await writer.open()
            self._writer = writer
            self._offset_min = self._log.committed_end
            await self._write_owner()
            if not await self._settle(self._log, SETTLE_SECONDS):
                raise self._open_transaction()
            await self._stored.read(self._log)
        except BaseException:
            self._writer = None
            await writer.close()
            raise
        self._checking = asyncio.get_running_loop().create_task(self._check_regularly())

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        if self._writer is not None:
            await self._writer.close()

    # --- as the StateTopic

    async def records(self) -> AsyncIterator[KeyValue]:
        """Generate what was read. It is not kept any longer."""
        state, self._stored.state = self._stored.state, {}
        for record in state.items():
            yield record

    async def create(self) -> None:
        self._log = await create_state_topic(self._logs, self.name)
        await self._stored.read(self._log)
        if self._stored.owner not in (None, self.owner) or self._has_records:
            self._give_way()
        await self.take_over()
        if self._has_records:
            # They were stored since the last look. `records` was called before, so they have to be read anew.
            self._give_way()

    @property
    def _has_records(self) -> bool:
        return bool(self._stored.state or self._stored.definitions)

    async def append(self, batch: memoryview, header: BatchHeader) -> None:
        """Store a batch. Raises UnknownTransaction if it is not known whether it is stored."""
        log, writer = self._log, self._writer
        if log is None or writer is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self.name!r} does not exist")
        written = TransactionBatch(self.name, log.topic_id, PARTITION, batch, self._offset_min)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                (offset,) = await writer.write([written])
        except TimeoutError:
            reason = f"the cluster has not answered for {WRITE_SECONDS:g} s"
            raise UnknownTransaction(writer.transactional_id, reason) from None
        except KafkaError as error:
            if writer.is_fenced or isinstance(error, TopicGone):
                self._lose(error)
            raise
        self._offset_min = max(self._offset_min, offset + 1)
        self._written_at = asyncio.get_running_loop().time()

    # --- ownership

    async def _announce_owner(self, log: RemoteLog) -> None:
        """Store the owner record while another bridge may still own the topic."""
        appended: asyncio.Future[int | KafkaError] = asyncio.get_running_loop().create_future()
        log.append(*self._owner_batch(), lambda outcome: None if appended.done() else appended.set_result(outcome))
        outcome = await appended
        if isinstance(outcome, KafkaError):
            raise outcome

    async def _write_owner(self) -> None:
        await self.append(*self._owner_batch())

    def _owner_batch(self) -> tuple[memoryview, BatchHeader]:
        record = encode_record_body(encode([OWNER]), encode(self.owner), 0, b"")
        return build_batch_from_bodies([record], self._clock.now_ms())

    async def _check_regularly(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.lost.done():
            await asyncio.sleep(CHECK_SECONDS)
            if loop.time() - self._written_at >= CHECK_SECONDS:
                try:
                    await self._write_owner()
                except KafkaError as error:
                    log.debug("the owner of topic %r was not written: %s", self.name, error)

    def _give_way(self) -> NoReturn:
        error = KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"another bridge has begun to store webhooks in topic {self.name!r}"
        )
        self._lose(error)
        raise error

    def _open_transaction(self) -> KafkaError:
        return KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"topic {self.name!r} has a transaction that does not end: does something else write to it?",
        )

    def _lose(self, error: KafkaError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    async def _settle(self, log: RemoteLog, seconds: float) -> bool:
        """Wait until the transactions that the topic has now have ended. Returns False if one has not in time."""
        backoff = self._logs.cluster.backoff()
        deadline = asyncio.get_running_loop().time() + seconds
        await log.ask_bounds(is_exact=True)
        end = log.high_watermark
        while log.committed_end < end:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(backoff.next_seconds())
            await log.ask_bounds(is_exact=True)
        return True
