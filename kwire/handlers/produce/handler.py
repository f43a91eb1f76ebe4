"""Produce 0-13: append record batches, answer when they are as safe as `acks` asks.

- Versions 0-2 are advertised but carry formats that are no longer stored: each partition answers UNSUPPORTED_VERSION.
- One batch per partition, as Kafka demands; it stays opaque: header and CRC checked, offset patched, written.
- acks 0 gets no answer (an error closes the connection, the only sign such a producer understands). acks 1 and all are
  answered when the records are readable and as durable as the topic's `kwire.log.sync` says: with one copy of each
  partition the two are the same. A request that waits longer than its timeout is answered with REQUEST_TIMED_OUT; the
  time counts from the moment at which this request began to wait.
- A batch for a topic of the event store is checked by its schemas and committed through the journal.
- Where records are the reason for a refusal (no key in a compacted topic, a time outside the topic's limits, an event
  that violates its schema) the answer names them (KIP-467), at most 1,000 of a batch. Codes and messages are Kafka's.
- A large request is handled in chunks and yields to others between its partitions. A batch whose records have to be
  read (compacted topics, limits of times, another codec) and that would hold the event loop is validated by a worker
  process, within the request's timeout and at most 30 seconds; then the answer is REQUEST_TIMED_OUT. Until all batches
  are appended the connection handles no later request: nothing overtakes them.
- A batch the producer already wrote (same id, epoch and sequence) is answered with its first offset.
- Version 3 is the first with today's record batches, and brought the transactional id; 5 adds the start of the log; 7
  is the first that may carry zstd; 8 names single bad records and adds messages; 9 is flexible; 10 adds the current
  leader. 11 knows TRANSACTION_ABORTABLE; from 12 on a transaction gets its partitions by what is produced to them
  (KIP-890), before they have to be added first. Version 13 names topics by id.
- The first batch of a transaction in a partition waits for the coordinator, at most for the request's timeout.
- Copies of batches that wait for the coordinator or for the event store count against `queued.max.request.bytes`. When
  that is used up they are refused with NOT_ENOUGH_REPLICAS, and producers try again.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from itertools import chain
from typing import Any

from kwire.broker.batch_validation import (
    RECORDS_HERE_MAX,
    TooLongForLoop,
    Validate,
    Validated,
    as_validated,
    validate_here,
)
from kwire.broker.chunking import next_turn
from kwire.broker.partition import WAIT_MS_MAX
from kwire.broker.topics import Topic
from kwire.broker.work_allowance import LIGHT_WEIGHT_MAX
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context, DropConnection, Held
from kwire.handlers.produce.admission import FIRST_TOPIC_ID_VERSION, NONE, admit, admit_request
from kwire.handlers.produce.append import PartitionAppend, no_memory, refused, unsettled, when_settled
from kwire.handlers.produce.transactions import TransactionAppends
from kwire.topic_config import TopicSettings
from kwire.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from storage.batch import BatchHeader
from storage.errors import StorageError
from storage.format import TRANSACTIONAL_BIT

# Commits, validations and questions to the coordinator get at least this time: a producer that waits for less would
# only send the batch again.
WORK_MS_MIN = 1000
# The weights of `work_allowance.py`: of a partition besides the bytes of its batch, of a record that is validated, and
# of a batch that is decompressed for it.
PARTITION_WEIGHT = 8 * 1024
RECORD_WEIGHT = 512
UNFOLD_WEIGHT = 128 * 1024
_NO_RECORDS = memoryview(b"")

Response = ProduceResponse | Awaitable[ProduceResponse] | None


def handle(context: Context, request: ProduceRequest) -> Response | Held:
    return _Production(context, request).begin()


# One partition of a request: its topic, if that is known, what is produced to it, and where its append goes.
_Part = tuple[Topic | None, PartitionProduceData, list[PartitionAppend]]


# The batches for one topic, and the name and id by which the request and its answer call it.
_TopicAppends = tuple[str, bytes, list[PartitionAppend]]


class _Production:
    """One request in its ordered phase: the batches are appended one after the other, in chunks if there is much."""

    __slots__ = (
        "_context",
        "_copied_bytes",
        "_refusal",
        "_request",
        "_topics",
        "_transaction",
        "_version",
        "_waiting",
        "_weight",
    )

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._version = context.api_version
        # What is wrong with the request as a whole: the answer for each of its partitions.
        self._refusal: KafkaError | None = None
        try:
            admit_request(self._version, request.acks)
        except KafkaError as error:
            self._refusal = error
        self._topics: list[_TopicAppends] = []
        # Batches whose outcome was not known at once.
        self._waiting: list[PartitionAppend] = []
        self._transaction: TransactionAppends | None = None
        self._copied_bytes = 0
        # What was done in this iteration of the event loop.
        self._weight = 0

    def begin(self) -> Response | Held:
        allowance, validate = self._context.services.work_allowance, self._validate_here
        weight_max = allowance.left
        parts = self._parts()
        for part in parts:
            if self._weight > weight_max:
                return self._hold(part, parts)
            try:
                self._take(part, validate)
            except TooLongForLoop:
                return self._hold(part, parts)
        if self._weight >= LIGHT_WEIGHT_MAX:
            allowance.note(self._weight)
        return self._answer()

    def _parts(self) -> Iterator[_Part]:
        topics, version = self._context.services.topics, self._version
        for data in self._request.topic_data:
            topic = topics.get(data.name) if version < FIRST_TOPIC_ID_VERSION else topics.get_by_id(data.topic_id)
            appends: list[PartitionAppend] = []
            self._topics.append((data.name, data.topic_id, appends))
            for one in data.partition_data:
                yield topic, one, appends

    @property
    def _work_ms_max(self) -> int:
        return max(self._request.timeout_ms, WORK_MS_MIN)

    # --- the rest of a request that takes long

    def _hold(self, part: _Part, parts: Iterator[_Part]) -> Held:
        self._context.services.work_allowance.note(self._weight)
        parts = chain((part,), parts)
        if self._context.peer.is_frame_shared:
            parts = iter([self._copied(one) for one in parts])
        return Held(self._finish(parts))

    def _copied(self, part: _Part) -> _Part:
        _, data, _ = part
        if data.records:
            data.records = memoryview(bytearray(data.records))
            self._copied_bytes += len(data.records)
        return part

    async def _finish(self, parts: Iterator[_Part]) -> Response:
        peer, copied_bytes = self._context.peer, self._copied_bytes
        if copied_bytes and not peer.hold(copied_bytes):
            self._refusal, copied_bytes = no_memory(), 0
        try:
            await self._take_in_chunks(parts)
        finally:
            if copied_bytes:
                peer.release(copied_bytes)
        return self._answer()

    async def _take_in_chunks(self, parts: Iterator[_Part]) -> None:
        allowance = self._context.services.work_allowance
        deadline = asyncio.get_running_loop().time() + min(self._work_ms_max, WAIT_MS_MAX) / 1000
        await next_turn()
        self._weight = 0
        for part in parts:
            if self._weight > allowance.left:
                allowance.note(self._weight)
                await next_turn()
                self._weight = 0
            try:
                self._take(part, self._validate_here)
            except TooLongForLoop:
                await self._take_elsewhere(part, deadline)
        allowance.note(self._weight)

    async def _take_elsewhere(self, part: _Part, deadline: float) -> None:
        """Admit a batch, let the worker process validate it, and store it."""
        services, (topic, data, appends) = self._context.services, part
        try:
            append = admit(topic, data.index, memoryview(data.records or b""), self._version)
            assert topic is not None
            async with asyncio.timeout_at(deadline):
                batch, append.header = await services.validation.validate(
                    append.batch, append.header, topic.settings, services.clock.now_ms()
                )
            append.is_copy, append.batch = batch is not append.batch, batch
            self._store(topic, append, as_validated)
        except TimeoutError:
            timed_out = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the records could not be validated within the request's timeout, send fewer of them in a request",
            )
            append = refused(data.index, timed_out)
        except (KafkaError, StorageError) as error:
            append = refused(data.index, error)
        appends.append(append)

    # --- one partition

    def _take(self, part: _Part, validate: Validate) -> None:
        """Admit and store a batch, or refuse it; raises TooLongForLoop if `validate` does: then nothing is done."""
        topic, data, appends = part
        batch: Any = data.records or _NO_RECORDS  # a view, of the frame or of a copy
        self._weight += PARTITION_WEIGHT + len(batch)
        try:
            if self._refusal is not None:
                raise self._refusal
            append = admit(topic, data.index, batch, self._version)
            assert topic is not None
            self._store(topic, append, validate)
        except (KafkaError, StorageError) as error:
            append = refused(data.index, error)
        appends.append(append)

    def _validate_here(self, batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
        self._weight += RECORD_WEIGHT * min(header.record_count, RECORDS_HERE_MAX)
        if header.compression:
            self._weight += UNFOLD_WEIGHT
        return validate_here(batch, header, settings, now_ms)

    def _store(self, topic: Topic, append: PartitionAppend, validate: Validate) -> None:
        """Append a batch to its log, or leave it to the event store or to its transaction to do so."""
        if topic.settings.is_event_topic:
            store = self._context.services.event_store
            append.commit_event(store, topic, self._context.peer, self._work_ms_max, validate)
            self._waiting.append(append)
        elif append.header.attributes & TRANSACTIONAL_BIT:
            if self._transaction is None:
                self._transaction = TransactionAppends(self._context, self._request, self._work_ms_max)
            self._transaction.add(append, validate)
        elif not append.append_to_log(validate):
            self._waiting.append(append)

    def _answer(self) -> Response:
        """The end of the ordered phase."""
        # If that took long, the outcome of the first batches may be known by now.
        waiting = unsettled(self._waiting) if self._waiting else []
        if self._transaction is not None:
            waiting += self._transaction.append()
        topics = self._topics
        if self._request.acks == NONE:
            _drop_on_failure(topics)
            return None
        if not waiting:
            return _response(topics)
        answered: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            if not answered.done():  # else the connection is gone
                answered.set_result(_response(topics))

        when_settled(waiting, self._request.timeout_ms, answer)
        return answered


def _response(topics: Iterable[_TopicAppends]) -> ProduceResponse:
    responses = []
    for name, topic_id, appends in topics:
        answers = [one.response() for one in appends]
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers))
    return ProduceResponse(responses=responses)


def _drop_on_failure(topics: Iterable[_TopicAppends]) -> None:
    for name, _, appends in topics:
        for one in appends:
            if one.failure is not None:
                raise DropConnection(f"{name}-{one.index}: {one.failure.code.name} with acks=0")
