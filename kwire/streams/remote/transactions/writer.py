"""TransactionalWriter: stores batches of several partitions, all or none. Each writer fences the earlier ones.

writer = TransactionalWriter(cluster, "kwire.events")
await writer.open()                 fences every other writer with this transactional id
offsets = await writer.write([…])   all batches are committed, or KafkaError is raised and none is
await writer.check()                raises Fenced if another writer was opened
await writer.close()

One transaction is open at a time. A writer that was fenced refuses everything and never fences the other one: it begins
a new epoch only with the producer id and epoch that it has, which the coordinator refuses after a later `open`.

The requests are those of Kafka's clients before KIP-890, which all clusters have: partitions are added explicitly, and
a transaction that was aborted is followed by a new producer epoch, so late batches of it are refused.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.streams.remote.merging import stamp_producer
from kwire.streams.remote.transactions.coordinator import Answer, CoordinatorRequests
from kwire.streams.remote.transactions.partition_writes import (
    BatchLate,
    BatchRefused,
    Deadlines,
    PartitionWrite,
    TopicGone,
    TransactionLost,
    check_exists,
    write_all,
)
from kwire.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kwire.wire.messages.end_txn import END_TXN, EndTxnRequest
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from storage.batch.format import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TRANSACTIONAL_BIT
from storage.batch.record_batch import parse_header

log = logging.getLogger("kwire.streams.remote")

# The highest versions of clients before KIP-890.
_ADD_PARTITIONS_VERSION: Final = 3
_END_TXN_VERSION: Final = 4
_INIT_VERSION: Final = 5
# The cluster aborts a transaction that is open for longer. A cluster that is unavailable for longer than that ends the
# writer, because it cannot tell this from another writer. The second value is for clusters that refuse the first.
TIMEOUTS_MS: Final = (300_000, 60_000)
# How long `open` tries, and how long the batches of one transaction may take. Its end may take longer: it is repeated
# until its outcome is known.
OPEN_SECONDS: Final = 30.0
SEND_SECONDS: Final = 30.0
# The same for a batch while others of the transaction are stored, so that a topic without a leader does not hold up
# the others for long. Apache Kafka takes about 10 s to notice that a broker has stopped.
OTHERS_WAIT_SECONDS: Final = 15.0
# How long a check may hold up a transaction.
CHECK_SECONDS: Final = 5.0
# A transaction is begun again at most this often, if the cluster no longer knows the producer or the transaction.
RENEWALS_MAX: Final = 3
# The transactional ids of bridges begin with this. Users of a bridge cannot take them over.
WRITER_PREFIX: Final = "kwire."
# Partitions whose sequence numbers are kept. Beyond it, a new epoch begins, in which all of them are 0.
SEQUENCES_MAX: Final = 10_000
_SEQUENCES: Final = 1 << 31
_ATTRIBUTES: Final = 22

_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
# The coordinator does not know the producer or the transaction: nothing of it is or will be stored.
_LOST: Final = (*_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class Fenced(KafkaError):
    """Another writer has opened the same transactional id. This writer can not be used any longer."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"another process has taken over the writer {transactional_id!r}, "
            "or the cluster was unavailable for longer than a transaction may take",
        )


class UnknownTransaction(KafkaError):
    """A transaction whose outcome this writer cannot learn. `is_fenced` tells whether the writer can be used."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"writer {transactional_id!r}: the outcome of a transaction is unknown: {reason}",
        )


class TransactionBatch(NamedTuple):
    """A batch without producer and without compression of its own choice, in writable memory.

    `offset_min` is an offset that its first record must reach: if a topic was deleted and created again, its offsets
    begin at 0, and the transaction is aborted.
    """

    topic: str
    topic_id: bytes
    partition: int
    data: memoryview
    offset_min: int = 0


class TransactionalWriter:
    """Use it in the event loop's thread. Its transactional id begins with WRITER_PREFIX."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._coordinator = CoordinatorRequests(cluster, transactional_id)
        self._producer_id, self._epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._timeouts_ms = iter(TIMEOUTS_MS)
        self._timeout_ms = next(self._timeouts_ms)
        self._sequences: dict[tuple[str, int], int] = {}
        self._needs_new_epoch = False
        self._turn = asyncio.Lock()
        self._current: asyncio.Task[list[int]] | None = None
        self._is_closed = False
        self.is_fenced = False
        self.committed_count = 0
        self.aborted_count = 0

    async def open(self) -> None:
        """Fence the other writers, and wait until their transactions are committed or aborted. Raises KafkaError."""
        async with self._turn:
            await self._begin_epoch(asyncio.get_running_loop().time() + OPEN_SECONDS)

    async def close(self) -> None:
        """Give up the current transaction. The cluster aborts it when the id is opened again, or after its time."""
        self._is_closed = True
        if self._current is not None:
            self._current.cancel()
            await asyncio.gather(self._current, return_exceptions=True)

    async def write(
        self, batches: Sequence[TransactionBatch], others_wait_seconds: float = OTHERS_WAIT_SECONDS
    ) -> list[int]:
        """Commit the batches, at most one of each partition, and return the offsets of their first records.

        An offset is -1 if the broker does not know it any more. Raises KafkaError if nothing is stored: BatchRefused if
        some batches are the reason, Fenced; and UnknownTransaction if the outcome cannot be learned. A caller that is
        cancelled does not end the transaction. Stored batches wait for the others for `others_wait_seconds`.
        """
        async with self._turn:
            if self._is_closed:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the writer {self.transactional_id!r} is closed")
            if self._current is not None:
                # Of a caller that was cancelled.
                await asyncio.wait([self._current])
            self._current = asyncio.get_running_loop().create_task(self._write(batches, others_wait_seconds))
            self._current.add_done_callback(_ignore_outcome)
            return await asyncio.shield(self._current)

    async def end_unknown(self) -> None:
        """End what a transaction with an unknown outcome has left open: it is committed or aborted afterwards.

        Raises Fenced if another writer was opened, and KafkaError if the coordinator refuses a new epoch.
        """
        async with self._turn:
            if self.is_fenced:
                raise Fenced(self.transactional_id)
            if self._needs_new_epoch:
                await self._begin_epoch(None)

    async def check(self) -> None:
        """Ask whether another writer was opened: then Fenced is raised. Raises KafkaError if that is not known.

        Nothing is written. The end of the last transaction is sent again, which the coordinator accepts or refuses,
        and a writer with an old epoch is fenced by it.
        """
        async with self._turn:
            if self.is_fenced:
                raise Fenced(self.transactional_id)
            if self._is_closed or (self._current is not None and not self._current.done()):
                return
            deadline = asyncio.get_running_loop().time() + CHECK_SECONDS
            if not self._needs_new_epoch:
                # An attempt without an answer must not reach the coordinator later, in the next transaction.
                self._needs_new_epoch = True
                answer = await self._end(is_commit=True, deadline=deadline)
                if answer.code not in _FENCED:
                    self._needs_new_epoch = answer.is_repeated
                    return
            # The cluster may have begun an epoch after a transaction that took too long. Only the next one tells.
            await self._begin_epoch(deadline)

    async def _write(self, batches: Sequence[TransactionBatch], others_wait_seconds: float) -> list[int]:
        for renewals in range(RENEWALS_MAX + 1):
            if self.is_fenced:
                raise Fenced(self.transactional_id)
            if self._needs_new_epoch or len(self._sequences) > SEQUENCES_MAX:
                await self._begin_epoch(None)
            try:
                offsets = await self._send(batches, others_wait_seconds)
                await self._commit()
            except TransactionLost as lost:
                await self._abort()
                if renewals == RENEWALS_MAX:
                    raise
                log.info("a transaction of %r is begun again: %s", self.transactional_id, lost)
            except (Fenced, UnknownTransaction):
                raise
            except KafkaError:
                await self._abort()
                raise
            else:
                return offsets
        raise AssertionError("the last attempt returns or raises")

    # --- steps of a transaction

    async def _begin_epoch(self, deadline: float | None) -> None:
        """Get the producer id and the next epoch; the first time, fence the other writers."""
        while True:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
            )
            answer = await self._coordinator.ask(INIT_PRODUCER_ID, request, _INIT_VERSION, deadline=deadline)
            if not answer.code:
                break
            if answer.code in _FENCED:
                self._fence()
            if answer.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                shorter_ms = next(self._timeouts_ms, None)
                if shorter_ms is not None:
                    self._timeout_ms = shorter_ms
                    continue
            raise refusal(f"InitProducerId of {self.transactional_id!r}", answer.code)
        self._producer_id, self._epoch = answer.response.producer_id, answer.response.producer_epoch
        self._sequences.clear()
        self._needs_new_epoch = False

    async def _send(
        self, batches: Sequence[TransactionBatch], others_wait_seconds: float = OTHERS_WAIT_SECONDS
    ) -> list[int]:
        now = asyncio.get_running_loop().time()
        deadlines = Deadlines(now + SEND_SECONDS, now + others_wait_seconds)
        await self._add_partitions(batches, deadlines)
        writes: list[PartitionWrite] = []
        for number, batch in enumerate(batches):
            partition = batch.topic, batch.partition
            sequence = self._sequences.get(partition, 0)
            batch.data[_ATTRIBUTES] |= TRANSACTIONAL_BIT
            stamp_producer(batch.data, self._producer_id, self._epoch, sequence)
            count = parse_header(batch.data).record_count
            self._sequences[partition] = (sequence + count) % _SEQUENCES
            writes.append(PartitionWrite(number, batch.topic, batch.topic_id, batch.partition, batch.data))
        await write_all(self._cluster, self.transactional_id, writes, deadlines)
        for batch, write in zip(batches, writes, strict=True):
            if 0 <= write.base_offset < batch.offset_min:
                raise TopicGone(
                    write.number,
                    f"topic {batch.topic!r} was deleted and created again: a record got the offset {write.base_offset}",
                )
        return [write.base_offset for write in writes]

    async def _add_partitions(self, batches: Sequence[TransactionBatch], deadlines: Deadlines) -> None:
        numbers: dict[tuple[str, int], int] = {}
        topics: dict[str, list[int]] = {}
        for number, batch in enumerate(batches):
            assert (batch.topic, batch.partition) not in numbers, "a transaction has one batch of each partition"
            numbers[batch.topic, batch.partition] = number
            topics.setdefault(batch.topic, []).append(batch.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        loop, backoff = asyncio.get_running_loop(), self._cluster.backoff()
        while True:
            answer = await self._coordinator.ask(
                ADD_PARTITIONS_TO_TXN, request, _ADD_PARTITIONS_VERSION, deadline=deadlines.all
            )
            if not answer.code:
                return
            if answer.code in _LOST:
                raise TransactionLost(refusal(f"writer {self.transactional_id!r}", answer.code))
            refused = [
                numbers[topic.name, one.partition_index]
                for topic in answer.response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
                if one.partition_error_code == answer.code
            ]
            names = ", ".join(sorted(repr(batches[number].topic) for number in refused))
            if answer.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise BatchRefused(refused, refusal(f"topic {names}", answer.code))
            # The coordinator may not know yet what another broker knows, or the topic is deleted: the metadata tells.
            pause = backoff.next_seconds()
            if loop.time() + pause > deadlines.others:
                raise BatchLate(refused, f"topic {names}: the transaction coordinator does not know it")
            await asyncio.sleep(pause)
            try:
                await self._cluster.refresh({batches[number].topic for number in refused})
            except KafkaError as unreachable:
                log.debug("it is not known whether topic %s exists: %s", names, unreachable)
            for number in refused:
                check_exists(self._cluster.metadata, number, batches[number].topic, batches[number].topic_id)

    async def _commit(self) -> None:
        """Commit, and repeat it until the outcome is known."""
        try:
            answer = await self._end(is_commit=True)
        except KafkaError as failed:
            # An attempt before this error may have committed.
            await self._raise_unknown(failed)
        if not answer.code:
            self.committed_count += 1
            # An attempt without an answer must not reach the coordinator later, in the next transaction.
            self._needs_new_epoch = answer.is_repeated
            return
        error = refusal(f"writer {self.transactional_id!r}", answer.code)
        if answer.is_repeated or answer.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            await self._raise_unknown(error)
        self._needs_new_epoch = True
        raise TransactionLost(error) if answer.code in _LOST else error

    async def _raise_unknown(self, error: KafkaError) -> NoReturn:
        """The transaction may be committed. The next epoch tells whether another writer is the reason."""
        self._needs_new_epoch = True
        reason = str(error)
        try:
            await self._begin_epoch(None)
        except KafkaError as failed:
            reason = str(failed)
        raise UnknownTransaction(self.transactional_id, reason) from None

    async def _abort(self) -> None:
        """Abort what may be open. The next transaction has a new epoch."""
        self.aborted_count += 1
        self._needs_new_epoch = True
        answer = await self._end(is_commit=False)
        if answer.code in _FENCED:
            # The cluster has a later epoch. It refuses the next one, too, if another writer has it.
            await self._begin_epoch(None)
        elif answer.code and answer.code not in _LOST:
            log.warning("a transaction of %r was not aborted: error %d", self.transactional_id, answer.code)

    async def _end(self, *, is_commit: bool, deadline: float | None = None) -> Answer:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        return await self._coordinator.ask(END_TXN, request, _END_TXN_VERSION, deadline=deadline)

    def _fence(self) -> None:
        self.is_fenced = True
        log.error("%s", Fenced(self.transactional_id))
        raise Fenced(self.transactional_id)


def _ignore_outcome(task: "asyncio.Task[list[int]]") -> None:
    """The caller may have been cancelled. Then nobody looks at the error of the task."""
    if not task.cancelled():
        task.exception()
