"""Produce 0-13: append record batches and respond when they are as durable as `acks` requires.

- A topic needs WRITE, and the transactional id needs WRITE. Without the right on the id no batch of the request is
  appended. The audit topic is TOPIC_AUTHORIZATION_FAILED for every client.
- Versions 0-2 are advertised, but have record formats that are no longer stored. Each of their partitions has
  UNSUPPORTED_VERSION.
- A request has one batch per partition, as in Kafka. The header and the CRC of a batch are checked, its offset is set,
  and it is written. Its records are usually not read.
- With acks=0 nothing is sent, and an error closes the connection, because the producer can detect no other error
  report. With acks=1 and acks=all the response is sent when the records are readable and as durable as the topic's
  `kwire.log.sync` requires. With one replica acks=1 and acks=all are the same. If a request waits longer than its
  timeout, the error is REQUEST_TIMED_OUT. The timeout begins when the request begins to wait.
- A batch for a topic of the event store is checked against its schemas and committed through the event journal.
- If a batch is refused because of its records (no key in a compacted topic, a timestamp outside the topic's limits, an
  event that violates its schema), the response lists at most 1,000 of these records (KIP-467). Codes and messages are
  Kafka's.
- A large request is handled in chunks, with yields to the event loop between its partitions. The connection handles
  its next request only when all batches of this request are appended, so that the order is kept.
- The records of a batch must be read if the topic is compacted, has timestamp limits or has another codec than the
  batch. If that would block the event loop, a worker process validates the batch. If the validation takes longer than
  the request's timeout (at least 1 second, at most 30 seconds), the error is REQUEST_TIMED_OUT.
- The response for a duplicate batch (same producer id, epoch and sequence) has the offset of the first append.
- Version 3 is the first with the current record batch format and the transactional id. Version 5 adds the log start
  offset. Version 7 is the first that allows zstd. Version 8 adds the list of invalid records and error messages.
  Version 9 is flexible. Version 10 adds the current leader. Version 11 adds TRANSACTION_ABORTABLE. From version 12 on a
  Produce request adds its partitions to the transaction (KIP-890). Before version 12 they must be added with
  AddPartitionsToTxn. Version 13 names topics by id.
- The first batch of a transaction in a partition waits for the coordinator, at most for the request's timeout or 1
  second, whichever is longer.
- If the client's key has limits, the records of the request are counted first (`limits.py`).
- Copies of batches that wait for the coordinator or for the event store are limited by `queued.max.request.bytes`.
  Batches beyond this limit are refused with NOT_ENOUGH_REPLICAS, which producers retry.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from itertools import chain
from typing import Any

from kwire.access.quotas.client_quota import MS
from kwire.broker.batch_validation import (
    RECORDS_ON_LOOP_MAX,
    TooLongForLoop,
    Validate,
    Validated,
    skip_validation,
    validate_on_loop,
)
from kwire.broker.partition import WAIT_MS_MAX
from kwire.broker.topics.topics import Topic
from kwire.concurrency.chunking import yield_to_loop
from kwire.concurrency.work_allowance import LIGHT_WEIGHT_MAX
from kwire.config.resources.topic import TopicSettings
from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.handlers.produce.admission import NONE, admit, admit_request, find_topic
from kwire.handlers.produce.append import PartitionAppend, memory_exhausted, refused, unsettled, when_settled
from kwire.handlers.produce.limits import Admission, CountedRecords
from kwire.handlers.produce.transactions import TransactionAppends
from kwire.handlers.shared.context import BlockingContinuation, Context, DropConnection
from kwire.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from storage.batch.format import TRANSACTIONAL_BIT
from storage.batch.record_batch import BatchHeader
from storage.errors import StorageError

# Minimum timeout of commits, validations and requests to the coordinator. If a shorter timeout of a producer were used,
# the producer would only send the batch again.
WORK_MS_MIN = 1000
# Weights as in `work_allowance.py`: of a partition (the bytes of its batch are added), of a validated record, and of
# the decompression of a batch.
PARTITION_WEIGHT = 8 * 1024
RECORD_WEIGHT = 512
DECOMPRESSION_WEIGHT = 128 * 1024
_NO_RECORDS = memoryview(b"")

Response = ProduceResponse | Awaitable[ProduceResponse] | None


def handle(context: Context, request: ProduceRequest) -> Response | BlockingContinuation:
    return _ProduceOperation(context, request).begin()


# One partition of a request: its topic (None if unknown), the error if the client may not write to the topic, its data,
# and the list to which its append is added.
_Part = tuple[Topic | None, KafkaError | None, PartitionProduceData, list[PartitionAppend]]


# The name and the id of a topic, as in the request, and the appends to this topic.
_TopicAppends = tuple[str, bytes, list[PartitionAppend]]


class _ProduceOperation:
    """The ordered phase of one request: appends its batches one after the other, in chunks if there are many."""

    __slots__ = (
        "_context",
        "_copied_bytes",
        "_counted",
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
        # An error of the whole request, which the response reports for each partition.
        self._refusal: KafkaError | None = None
        try:
            admit_request(context, request)
        except KafkaError as error:
            self._refusal = as_value(error)
        self._topics: list[_TopicAppends] = []
        # Appends whose outcome was not known immediately.
        self._waiting: list[PartitionAppend] = []
        self._transaction: TransactionAppends | None = None
        self._copied_bytes = 0
        # The records of a client whose key has limits.
        self._counted: CountedRecords | None = None
        # The weight of the work since the last yield to the event loop.
        self._weight = 0

    def begin(self) -> Response | BlockingContinuation:
        limits = self._context.limits
        if limits is not None and self._refusal is None:
            self._counted = CountedRecords(limits, self._request, min(self._work_ms_max, WAIT_MS_MAX))
            try:
                admission = self._counted.admit()
            except KafkaError as error:
                self._refusal = as_value(error)
            else:
                if admission is not None:
                    return self._continue_in_chunks(self._parts(), admission)
        return self._append_all()

    def _append_all(self) -> Response | BlockingContinuation:
        allowance, validate = self._context.services.work_allowance, self._validate_here
        weight_max = allowance.left
        parts = self._parts()
        for part in parts:
            if self._weight > weight_max:
                return self._continue_in_chunks(chain((part,), parts))
            try:
                self._append(part, validate)
            except TooLongForLoop:
                return self._continue_in_chunks(chain((part,), parts))
        if self._weight >= LIGHT_WEIGHT_MAX:
            allowance.note(self._weight)
        return self._answer()

    def _parts(self) -> Iterator[_Part]:
        topics, version = self._context.views.topics, self._version
        for data in self._request.topic_data:
            topic, refusal = None, None
            try:
                topic = find_topic(topics, data, version)
            except KafkaError as error:
                refusal = as_value(error)
            appends: list[PartitionAppend] = []
            self._topics.append((data.name, data.topic_id, appends))
            for one in data.partition_data:
                yield topic, refusal, one, appends

    @property
    def _work_ms_max(self) -> int:
        return max(self._request.timeout_ms, WORK_MS_MIN)

    # --- the rest of a large request

    def _continue_in_chunks(self, parts: Iterator[_Part], admission: Admission | None = None) -> BlockingContinuation:
        """Append the other batches in chunks, after `admission` has ended. It raises KafkaError if it refuses them."""
        self._context.services.work_allowance.note(self._weight)
        if self._context.peer.is_frame_shared:
            parts = iter([self._copied(one) for one in parts])
        return BlockingContinuation(self._finish(parts, admission))

    def _copied(self, part: _Part) -> _Part:
        _, _, data, _ = part
        if data.records:
            data.records = memoryview(bytearray(data.records))
            self._copied_bytes += len(data.records)
        return part

    async def _finish(self, parts: Iterator[_Part], admission: Admission | None) -> Response:
        peer, copied_bytes = self._context.peer, self._copied_bytes
        if copied_bytes and not peer.reserve(copied_bytes):
            self._refusal, copied_bytes = memory_exhausted(), 0
        try:
            if admission is not None:
                try:
                    await admission()
                except KafkaError as error:
                    self._refusal = self._refusal or as_value(error)
            await self._append_in_chunks(parts)
        except BaseException:
            self._settle_count()
            raise
        finally:
            if copied_bytes:
                peer.release(copied_bytes)
        return self._answer()

    async def _append_in_chunks(self, parts: Iterator[_Part]) -> None:
        allowance = self._context.services.work_allowance
        deadline = asyncio.get_running_loop().time() + min(self._work_ms_max, WAIT_MS_MAX) / 1000
        await yield_to_loop()
        self._weight = 0
        for part in parts:
            if self._weight > allowance.left:
                allowance.note(self._weight)
                await yield_to_loop()
                self._weight = 0
            try:
                self._append(part, self._validate_here)
            except TooLongForLoop:
                await self._append_validated_by_worker(part, deadline)
        allowance.note(self._weight)

    async def _append_validated_by_worker(self, part: _Part, deadline: float) -> None:
        """Admit a batch, validate it in a worker process, and store it."""
        services, (topic, _, data, appends) = self._context.services, part
        try:
            append = admit(topic, data.index, memoryview(data.records or b""), self._version)
            assert topic is not None
            async with asyncio.timeout_at(deadline):
                batch, append.header = await services.validation.validate(
                    append.batch, append.header, topic.settings, services.clock.now_ms()
                )
            append.is_copy, append.batch = batch is not append.batch, batch
            self._store(topic, append, skip_validation)
        except TimeoutError:
            timed_out = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the records could not be validated within the request's timeout; send fewer records in a request",
            )
            append = refused(data.index, timed_out)
        except (KafkaError, StorageError) as error:
            append = refused(data.index, error)
        appends.append(append)

    # --- one partition

    def _append(self, part: _Part, validate: Validate) -> None:
        """Admit and store a batch, or refuse it. Raises TooLongForLoop, without effect, if `validate` raises it."""
        topic, refusal, data, appends = part
        batch: Any = data.records or _NO_RECORDS  # a view of the frame or of a copy
        self._weight += PARTITION_WEIGHT + len(batch)
        try:
            if self._refusal is not None:
                raise self._refusal
            if refusal is not None:
                raise refusal
            append = admit(topic, data.index, batch, self._version)
            assert topic is not None
            self._store(topic, append, validate)
        except (KafkaError, StorageError) as error:
            append = refused(data.index, error)
        appends.append(append)

    def _validate_here(self, batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
        self._weight += RECORD_WEIGHT * min(header.record_count, RECORDS_ON_LOOP_MAX)
        if header.compression:
            self._weight += DECOMPRESSION_WEIGHT
        return validate_on_loop(batch, header, settings, now_ms)

    def _store(self, topic: Topic, append: PartitionAppend, validate: Validate) -> None:
        """Append a batch to its log, or pass it to the event store or to its transaction."""
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
        """End the ordered phase. Return the response, an awaitable of it, or None with acks=0."""
        # If the ordered phase was long, the outcomes of the first batches may be known by now.
        waiting = unsettled(self._waiting) if self._waiting else []
        if self._transaction is not None:
            waiting += self._transaction.append()
        topics, is_answered = self._topics, self._request.acks != NONE
        if not waiting or not is_answered:
            self._settle_count()
        throttle_ms = 0
        if self._counted is not None and (throttle_ms := self._counted.throttle_ms()):
            self._context.peer.mute(throttle_ms / MS)
        if not is_answered:
            _drop_on_failure(topics)
            return None
        if not waiting:
            return _response(topics, throttle_ms)
        answered: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            self._settle_count()
            if not answered.done():  # it is done (cancelled) if the connection was closed
                answered.set_result(_response(topics, throttle_ms))

        when_settled(waiting, self._request.timeout_ms, answer)
        return answered

    def _settle_count(self) -> None:
        if self._counted is not None:
            self._counted.settle(chain.from_iterable(appends for _, _, appends in self._topics))


def _response(topics: Iterable[_TopicAppends], throttle_ms: int) -> ProduceResponse:
    responses = []
    for name, topic_id, appends in topics:
        answers = [one.response() for one in appends]
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers))
    return ProduceResponse(responses=responses, throttle_time_ms=throttle_ms)


def _drop_on_failure(topics: Iterable[_TopicAppends]) -> None:
    for name, _, appends in topics:
        for one in appends:
            if one.failure is not None:
                raise DropConnection(f"{name}-{one.index}: {one.failure.code.name} with acks=0")
