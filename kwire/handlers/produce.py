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
- A batch the producer already wrote (same id, epoch and sequence) is answered with its first offset.
- Version 3 is the first with today's record batches, and brought the transactional id; 5 tells the start of the log; 7
  is the first that may bring zstd; 8 names single bad records and says what is wrong; 9 is flexible; 10 tells where the
  leader is. 11 knows TRANSACTION_ABORTABLE; from 12 on a transaction gets its partitions by what is produced to them
  (KIP-890), before they have to be added first. Version 13 names topics by id.
- The first batch of a transaction in a partition waits for the coordinator: `transactional_produce.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kwire.broker.partition import Partition
from kwire.broker.store.commit import Outcome, Stored
from kwire.broker.store.event_store import EventStore
from kwire.broker.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context, DropConnection
from kwire.handlers.produce_errors import refuse, refused
from kwire.handlers.transactional_produce import TransactionalProduce
from kwire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from storage.batch import BatchHeader, check_batch
from storage.errors import StorageError
from storage.format import TRANSACTIONAL_BIT, ZSTD
from storage.log import Appended

FIRST_SERVED_VERSION = 3
FIRST_ZSTD_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13
ALL, NONE = -1, 0
ACKS = (ALL, NONE, 1)
# A commit that is under way is waited for so long at least: a producer in a hurry would only send it again.
COMMIT_MS_MIN = 1000


def handle(context: Context, request: ProduceRequest) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    version = context.api_version
    topics = context.services.topics
    refusal = _refusal(version, request)
    unsafe: list[_Unsafe] = []
    commits: _Commits | None = None
    transactional: TransactionalProduce | None = None
    responses = []
    for data in request.topic_data:
        topic = topics.get(data.name) if version < FIRST_TOPIC_ID_VERSION else topics.get_by_id(data.topic_id)
        answers = []
        for one in data.partition_data:
            try:
                if refusal is not None:
                    raise refusal
                if topic is None:
                    raise KafkaError(_unknown_topic(version))
                if topic.settings.is_event_topic:
                    commits = commits or _Commits(context.services.event_store, version, request.timeout_ms)
                    answers.append(commits.add(topic, one))
                    continue
                partition, batch, header = _checked(topic, one, version)
                if header.attributes & TRANSACTIONAL_BIT:
                    transactional = transactional or TransactionalProduce(context, request)
                    answers.append(transactional.add(topic.name, partition, batch, header))
                else:
                    appended = partition.append(batch, header)
                    answer = PartitionProduceResponse(index=one.index, error_code=0, base_offset=-1)
                    _tell(answer, partition, appended)
                    answers.append(answer)
                    if partition.high_watermark <= appended.last_offset:
                        unsafe.append((partition, appended.last_offset + 1, answer))
            except (KafkaError, StorageError) as error:
                answers.append(refused(one.index, error))
        responses.append(TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers))
    if transactional is not None and not transactional.count:
        transactional = None
    if request.acks == NONE:
        if transactional is not None:
            transactional.append(_tell_nobody, _nobody_asks)
        _drop_on_failure(responses)
        return None
    response = ProduceResponse(responses=responses)
    if transactional is not None or unsafe or (commits is not None and commits.left):
        return _answer_when_safe(response, unsafe, commits, transactional, request)
    return response


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
    answer.log_start_offset = partition.log.log_start_offset


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
        self._timeout_ms = max(timeout_ms, COMMIT_MS_MIN)

    def add(self, topic: Topic, data: PartitionProduceData) -> PartitionProduceResponse:
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

        self._store.produce(topic, batch, header, done, self._timeout_ms)
        self.left += 1
        return answer


def _fill_in(answer: PartitionProduceResponse, topic: Topic, outcome: Outcome) -> None:
    if isinstance(outcome, Stored):
        [placed] = outcome.parts
        answer.base_offset, answer.log_append_time_ms = placed.base_offset, outcome.append_time_ms
        partition = topic.partitions[0]
        if partition.is_open:
            answer.log_start_offset = partition.log.log_start_offset
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
