"""Produce 0-13: append record batches, answer when they are as safe as `acks` asks.

- Versions 0-2 are advertised but carry formats that are no longer stored: each partition answers UNSUPPORTED_VERSION.
- One batch per partition, as Kafka demands; it stays opaque: header and CRC checked, offset patched, written.
- acks 0 gets no answer (an error drops the connection, the only sign such a producer understands). acks 1 and all are
  answered when the records are readable and as durable as the topic's `kwire.log.sync` says: with one copy of each
  partition the two are the same. A wait that takes longer than the request's timeout is answered with
  REQUEST_TIMED_OUT.
- A batch for a topic of the event store is checked by its schemas and committed through the journal.
- Where records are the reason for a refusal (no key in a compacted topic, a time outside the topic's limits, an event
  that violates its schema) the answer names them (KIP-467), at most 1,000 of a batch. Codes and words are Kafka's.
- A large request is handled in pieces and yields to others between its partitions. A batch whose records have to be
  read (compacted topics, limits of times, another codec) and that would hold the event loop is validated by a worker
  process, within the request's timeout and at most 30 seconds; then the answer is REQUEST_TIMED_OUT. Until all batches
  are appended the connection handles no later request: nothing overtakes them.
- A batch the producer already wrote (same id, epoch and sequence) is answered with its first offset.
- Version 3 is the first with today's record batches, and brought the transactional id; 5 tells the start of the log; 7
  is the first that may bring zstd; 8 names single bad records and says what is wrong; 9 is flexible; 10 tells where the
  leader is. 11 knows TRANSACTION_ABORTABLE; from 12 on a transaction gets its partitions by what is produced to them
  (KIP-890), before they have to be added first. Version 13 names topics by id.
- The first batch of a transaction in a partition waits for the coordinator: `transactional_produce.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain

from kwire.broker.batch_validation import (
    RECORDS_HERE_MAX,
    TooLongForLoop,
    Validate,
    Validated,
    as_validated,
    validate_here,
)
from kwire.broker.chunking import next_turn
from kwire.broker.partition import WAIT_MS_MAX, Partition
from kwire.broker.store.commit import Outcome, Stored
from kwire.broker.store.event_store import EventStore
from kwire.broker.topics import Topic
from kwire.broker.work_allowance import LIGHT_WEIGHT_MAX
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context, DropConnection, Held
from kwire.handlers.produce_errors import refuse, refused
from kwire.handlers.transactional_produce import TransactionalProduce
from kwire.topic_config import TopicSettings
from kwire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from storage.batch import BatchHeader, check_batch, parse_header
from storage.errors import StorageError
from storage.format import TRANSACTIONAL_BIT, ZSTD
from storage.log import Appended

FIRST_SERVED_VERSION = 3
FIRST_ZSTD_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13
ALL, NONE = -1, 0
ACKS = (ALL, NONE, 1)
# Commits and validations under way get at least this time: a producer in a hurry would only send them again.
WORK_MS_MIN = 1000
# The weights of `work_allowance.py`: of a partition besides the bytes of its batch, of a record that is validated, and
# of a batch that is decompressed for it.
PARTITION_WEIGHT = 8 * 1024
RECORD_WEIGHT = 512
UNFOLD_WEIGHT = 128 * 1024


def handle(context: Context, request: ProduceRequest) -> "ProduceResponse | Awaitable[ProduceResponse] | Held | None":
    return _Production(context, request).begin()


# One partition's share of a request: its topic, what is produced to it, and where its answer goes.
_Part = tuple[Topic | None, PartitionProduceData, list[PartitionProduceResponse]]


class _Production:
    """One request in its ordered phase: the batches are appended one after the other, in pieces if there is much."""

    __slots__ = (
        "_commits",
        "_context",
        "_refusal",
        "_request",
        "_responses",
        "_transactional",
        "_unsafe",
        "_version",
        "_weight",
    )

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._version = context.api_version
        self._refusal = _refusal(self._version, request)
        self._responses: list[TopicProduceResponse] = []
        self._unsafe: list[_Unsafe] = []
        self._commits: _Commits | None = None
        self._transactional: TransactionalProduce | None = None
        # What was done in this pass of the event loop.
        self._weight = 0

    def begin(self) -> "ProduceResponse | Awaitable[ProduceResponse] | Held | None":
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
            answers: list[PartitionProduceResponse] = []
            self._responses.append(
                TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)
            )
            for one in data.partition_data:
                yield topic, one, answers

    # --- the rest of a request that takes long

    def _hold(self, part: _Part, parts: Iterator[_Part]) -> Held:
        self._context.services.work_allowance.note(self._weight)
        if self._context.peer.is_frame_shared:
            for data in self._request.topic_data:
                for one in data.partition_data:
                    if one.records:
                        one.records = memoryview(bytearray(one.records))
        return Held(self._finish(chain((part,), parts)))

    async def _finish(self, parts: Iterator[_Part]) -> ProduceResponse | Awaitable[ProduceResponse] | None:
        allowance = self._context.services.work_allowance
        deadline = asyncio.get_running_loop().time() + validation_ms_max(self._request.timeout_ms) / 1000
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
        return self._answer()

    async def _take_elsewhere(self, part: _Part, deadline: float) -> None:
        """Let the worker process validate a batch, then append it."""
        services, (topic, data, answers) = self._context.services, part
        batch = data.records
        assert topic is not None
        assert isinstance(batch, memoryview)
        try:
            async with asyncio.timeout_at(deadline):
                data.records, _ = await services.validation.validate(
                    batch, parse_header(batch), topic.settings, services.clock.now_ms()
                )
        except TimeoutError:
            timed_out = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the records could not be validated within the request's timeout, send fewer of them in a request",
            )
            answers.append(refused(data.index, timed_out))
        except (KafkaError, StorageError) as error:
            answers.append(refused(data.index, error))
        else:
            self._take(part, as_validated)
            # What the worker made of it is not needed any longer than that.
            data.records = None

    # --- one partition

    def _take(self, part: _Part, validate: Validate) -> None:
        """Append a batch, or answer why not; raises TooLongForLoop if `validate` does, and then nothing is done."""
        topic, data, answers = part
        self._weight += PARTITION_WEIGHT + len(data.records or b"")
        try:
            answers.append(self._appended(topic, data, validate))
        except (KafkaError, StorageError) as error:
            answers.append(refused(data.index, error))

    def _validate_here(self, batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Validated:
        self._weight += RECORD_WEIGHT * min(header.record_count, RECORDS_HERE_MAX)
        if header.compression:
            self._weight += UNFOLD_WEIGHT
        return validate_here(batch, header, settings, now_ms)

    def _appended(
        self, topic: Topic | None, data: PartitionProduceData, validate: Validate
    ) -> PartitionProduceResponse:
        context, request = self._context, self._request
        if self._refusal is not None:
            raise self._refusal
        if topic is None:
            raise KafkaError(_unknown_topic(self._version))
        if topic.settings.is_event_topic:
            if self._commits is None:
                self._commits = _Commits(context.services.event_store, self._version, request.timeout_ms)
            return self._commits.add(topic, data, validate)
        partition, batch, header = _checked(topic, data, self._version)
        if header.attributes & TRANSACTIONAL_BIT:
            batch, header = partition.validated(batch, header, context.services.clock.now_ms(), validate)
            if self._transactional is None:
                self._transactional = TransactionalProduce(context, request)
            return self._transactional.add(topic.name, partition, batch, header)
        appended = partition.append(batch, header, None, validate)
        answer = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
        _tell(answer, partition, appended)
        if partition.high_watermark <= appended.last_offset:
            self._unsafe.append((partition, appended.last_offset + 1, answer))
        return answer

    def _answer(self) -> ProduceResponse | Awaitable[ProduceResponse] | None:
        """The end of the ordered phase."""
        commits, transactional = self._commits, self._transactional
        if transactional is not None and not transactional.count:
            transactional = None
        if self._request.acks == NONE:
            if transactional is not None:
                transactional.append(_tell_nobody, _nobody_asks)
            _drop_on_failure(self._responses)
            return None
        response = ProduceResponse(responses=self._responses)
        if transactional is not None or self._unsafe or (commits is not None and commits.left):
            return _answer_when_safe(response, self._unsafe, commits, transactional, self._request)
        return response


def validation_ms_max(timeout_ms: int) -> int:
    """How long the worker may take for one request: as long as its producer waits, within bounds."""
    return min(max(timeout_ms, WORK_MS_MIN), WAIT_MS_MAX)


# What was appended and may not be read yet: where, up to which offset, and the answer that says it worked.
_Unsafe = tuple[Partition, int, PartitionProduceResponse]


def _checked(topic: Topic, data: PartitionProduceData, version: int) -> tuple[Partition, memoryview, BatchHeader]:
    """Where the batch goes, the batch and its header; raises if it cannot be stored."""
    partition = topic.partition(data.index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients cannot append to the internal topic {topic.name}."
        )
    batch = data.records
    if not batch:
        raise _no_batch()
    assert isinstance(batch, memoryview)
    header = check_batch(batch)
    if header.attributes:
        _check_attributes(header, version)
    return partition, batch, header


def _tell(answer: PartitionProduceResponse, partition: Partition, appended: Appended) -> None:
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = partition.log_start_offset


def _tell_nobody(partition: Partition, appended: Appended, answer: PartitionProduceResponse) -> None:
    """acks=0."""


def _nobody_asks() -> None:
    """acks=0."""


class _Commits:
    """The batches of one request that the event store was given; their answers are filled in when it has told."""

    def __init__(self, store: EventStore, version: int, timeout_ms: int) -> None:
        self.left = 0
        self.on_told: Callable[[], None] | None = None
        self._store = store
        self._version = version
        self._timeout_ms = max(timeout_ms, WORK_MS_MIN)

    def add(self, topic: Topic, data: PartitionProduceData, validate: Validate) -> PartitionProduceResponse:
        if topic.partition(data.index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = data.records
        if not batch:
            raise _no_batch()
        assert isinstance(batch, memoryview)
        header = check_batch(batch)
        if header.attributes and not header.is_transactional:  # that the store refuses, in words of its own
            _check_attributes(header, self._version)
        answer = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)

        def done(outcome: Outcome) -> None:
            _fill_in(answer, topic, outcome)
            self.left -= 1
            if self.on_told is not None:
                self.on_told()

        self._store.produce(topic, batch, header, done, self._timeout_ms, validate)
        self.left += 1
        return answer


def _fill_in(answer: PartitionProduceResponse, topic: Topic, outcome: Outcome) -> None:
    if isinstance(outcome, Stored):
        [placed] = outcome.parts
        answer.base_offset, answer.log_append_time_ms = placed.base_offset, outcome.append_time_ms
        partition = topic.partitions[0]
        if partition.is_open:
            answer.log_start_offset = partition.log_start_offset
        return
    refuse(answer, outcome)


def _answer_when_safe(
    response: ProduceResponse,
    unsafe: list[_Unsafe],
    commits: _Commits | None,
    transactional: TransactionalProduce | None,
    request: ProduceRequest,
) -> Awaitable[ProduceResponse]:
    """The answer for everything, when the last partition is safe or cannot be."""
    answered: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    left = len(unsafe) + (commits.left if commits is not None else 0)
    left += transactional.count if transactional is not None else 0

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left and not answered.done():
            answered.set_result(response)

    def wait_for(partition: Partition, end: int, answer: PartitionProduceResponse) -> None:
        def reached(error: KafkaError | None) -> None:
            if error is not None:
                refuse(answer, error)
            one_less()

        partition.on_reached(end, reached, request.timeout_ms)

    def appended_later(partition: Partition, appended: Appended, answer: PartitionProduceResponse) -> None:
        _tell(answer, partition, appended)
        if partition.high_watermark <= appended.last_offset:
            wait_for(partition, appended.last_offset + 1, answer)
        else:
            one_less()

    if commits is not None:
        commits.on_told = one_less
    for one in unsafe:
        wait_for(*one)
    if transactional is not None:
        transactional.append(appended_later, one_less)
    return answered


def _no_batch() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, "A produce request must carry exactly one batch per partition.")


def _check_attributes(header: BatchHeader, version: int) -> None:
    if header.compression == ZSTD and version < FIRST_ZSTD_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 or later.")


def _unknown_topic(version: int) -> ErrorCode:
    if version < FIRST_TOPIC_ID_VERSION:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.UNKNOWN_TOPIC_ID


def _refusal(version: int, request: ProduceRequest) -> KafkaError | None:
    """What is wrong with the request as a whole; told to each of its partitions."""
    if version < FIRST_SERVED_VERSION:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.acks not in ACKS:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _drop_on_failure(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise DropConnection(f"{topic.name}-{answer.index}: {ErrorCode(answer.error_code).name} with acks=0")
