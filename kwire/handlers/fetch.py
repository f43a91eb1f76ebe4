"""Fetch 4-18: record batches from given offsets, waiting for them if there are too few.

- Answers as soon as `min_bytes` are there, some partition has an error, or `max_wait_ms` are over; then with what is
  there. It does not wait either when it left records behind (the limits are reached, or the segment ends): waiting
  would not bring more of them.
- Whole batches as they were written, the first one even if it is larger than the limits, so that a reader gets on.
- An offset inside a batch gets the whole batch; one outside the log is OFFSET_OUT_OF_RANGE.
- Sessions (7+) are declined: every answer has session id 0 and names every partition asked for.
- Version 9 checks the client's leader epoch. Version 13 names topics by id.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kwire.broker.partition import Partition, code_of
from kwire.broker.turns import OPENS_PER_TURN, open_in_turns
from kwire.broker.waits import LongPoll
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.epochs import check_epoch
from kwire.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from storage.errors import StorageError
from storage.windows import EMPTY

FIRST_TOPIC_ID_VERSION = 13
READ_COMMITTED = 1
NO_SESSION = 0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
# Under memory pressure pages may be gone again before they are sent; after some tries the loop reads them itself.
WARM_UPS_MAX = 3


def handle(context: Context, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    if request.session_id != NO_SESSION or request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    if sum(len(asked.partitions) for asked in request.topics) > OPENS_PER_TURN:
        closed = _closed(context, request)
        if len(closed) > OPENS_PER_TURN:
            return _answer_when_open(context, request, closed)
    return _answer(context, request)


def _answer(context: Context, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    attempt = _Attempt(context, request)
    if attempt.warm_ups:
        return _answer_when_warm(context, request, attempt)
    if attempt.is_enough:
        return attempt.response
    return _answer_when_grown(context, request, attempt)


def _closed(context: Context, request: FetchRequest) -> list[Partition]:
    """The partitions asked for whose log is not open."""
    topics = context.services.topics
    by_id = context.api_version >= FIRST_TOPIC_ID_VERSION
    found = []
    for asked in request.topics:
        topic = topics.get_by_id(asked.topic_id) if by_id else topics.get(asked.topic)
        if topic is not None:
            named = [topic.partition(one.partition) for one in asked.partitions]
            found += [partition for partition in named if partition is not None and not partition.is_open]
    return found


async def _answer_when_open(context: Context, request: FetchRequest, closed: list[Partition]) -> FetchResponse:
    await open_in_turns(closed)
    answer = _answer(context, request)
    return answer if isinstance(answer, FetchResponse) else await answer


class _Attempt:
    """One look at every partition asked for. It is only good for an answer if nothing needs to be warmed up first."""

    __slots__ = (
        "_context",
        "_is_patient",
        "_left_bytes",
        "found_bytes",
        "has_error",
        "has_more",
        "is_enough",
        "partitions",
        "response",
        "warm_ups",
    )

    def __init__(self, context: Context, request: FetchRequest, *, is_patient: bool = False) -> None:
        """A patient one waits for the disk, and the whole loop with it."""
        self._context = context
        self._is_patient = is_patient
        self._left_bytes = min(request.max_bytes, context.services.config.network.fetch_bytes_max)
        self.found_bytes = 0
        self.has_error = False
        self.has_more = False
        self.partitions: list[Partition] = []
        self.warm_ups: list[Callable[[], None]] = []
        self.response = FetchResponse(responses=self._read_topics(request))
        self.is_enough = (
            self.found_bytes >= request.min_bytes
            or self.has_error
            or self.has_more
            or request.max_wait_ms <= 0
            or not self.partitions
        )

    def _read_topics(self, request: FetchRequest) -> list[FetchableTopicResponse]:
        topics = self._context.services.topics
        by_id = self._context.api_version >= FIRST_TOPIC_ID_VERSION
        aborted: list[AbortedTransaction] | None = [] if request.isolation_level == READ_COMMITTED else None
        responses = []
        for asked in request.topics:
            topic = topics.get_by_id(asked.topic_id) if by_id else topics.get(asked.topic)
            answers = []
            for one in asked.partitions:
                try:
                    if topic is None:
                        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        raise KafkaError(unknown)
                    answers.append(self._read(topic.partition(one.partition), one, aborted))
                except KafkaError as error:
                    answers.append(self._failed(one, error.code))
                except StorageError as error:
                    answers.append(self._failed(one, code_of(error)))
            responses.append(FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=answers))
        return responses

    def _read(
        self, partition: Partition | None, asked: FetchPartition, aborted: list[AbortedTransaction] | None
    ) -> PartitionData:
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        check_epoch(partition, asked.current_leader_epoch)
        self.partitions.append(partition)
        cold_start = None if self._is_patient else partition.cold_start(asked.fetch_offset)
        if cold_start is not None:
            self.warm_ups.append(cold_start)
        records = EMPTY if cold_start else self._read_records(partition, asked)
        return PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.high_watermark,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _read_records(self, partition: Partition, asked: FetchPartition) -> memoryview:
        # Only the very first batch of an answer may pass the limits.
        limit = min(asked.partition_max_bytes, self._left_bytes)
        read = partition.read(asked.fetch_offset, limit, at_least_one=not self.found_bytes)
        # A read ends with its segment: what lies behind is there already, so there is nothing to wait for.
        self.has_more = self.has_more or read.next_offset < partition.high_watermark
        size = len(read.view)
        if size:
            self.found_bytes += size
            self._left_bytes = max(0, self._left_bytes - size)
            if not self._is_patient and not read.is_warm():
                self.warm_ups.append(read.warm_up)
        return read.view

    def _failed(self, asked: FetchPartition, code: ErrorCode) -> PartitionData:
        self.has_error = True
        return PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None,
            records=b"",
        )


async def _answer_when_warm(context: Context, request: FetchRequest, attempt: _Attempt) -> FetchResponse:
    """Pages that are not in memory are fetched by threads, then everything is looked at again."""
    for _ in range(WARM_UPS_MAX):
        with suppress(StorageError):  # met again by the read, which tells it of the one partition it is about
            await context.services.cold_reads.do(attempt.warm_ups)
        attempt = _Attempt(context, request)
        if not attempt.warm_ups:
            break
    else:
        attempt = _Attempt(context, request, is_patient=True)
    if attempt.is_enough:
        return attempt.response
    return await _answer_when_grown(context, request, attempt)


def _answer_when_grown(context: Context, request: FetchRequest, attempt: _Attempt) -> Awaitable[FetchResponse]:
    """Look again when enough has been appended or the time is up, and answer with what is there then."""
    answered: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    def look_again() -> None:
        # What was just appended is in memory, so nothing is left to be warmed up but what an idle time evicted.
        if not answered.done():
            answered.set_result(_Attempt(context, request).response)

    missing = request.min_bytes - attempt.found_bytes
    poll = LongPoll(attempt.partitions, missing, request.max_wait_ms, look_again)
    answered.add_done_callback(lambda _: poll.cancel())
    return answered
