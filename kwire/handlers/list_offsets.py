"""ListOffsets 1-11: find offsets by position or by timestamp.

- Negative timestamps request a position: -1 the latest readable offset, -2 the earliest offset, -3 the largest
  timestamp (version 7), -4 the earliest offset on local disk (version 8), -5 the latest tiered offset (version 9), -6
  the earliest offset that is not yet tiered (version 11). kwire has no tiered storage: -4 is the earliest offset, and
  for -5 and -6 the offset is -1.
- If no record has the requested timestamp or a later one, offset and timestamp are -1. Only records below the high
  watermark are searched, also for the largest timestamp. With isolation level read_committed only records below the
  last stable offset are searched, and the latest offset is the last stable offset.
- A topic needs DESCRIBE. A partition that is named twice in one request is refused, as in Kafka.
- Version 2 adds the isolation level. Version 4 checks the client's leader epoch, and returns the leader epoch of the
  found offset. At the log end offset, which has no record yet, this is the current epoch. Version 5 adds
  OFFSET_NOT_AVAILABLE. Version 6 is flexible. Version 10 adds a timeout for searches in tiered storage, which has no
  effect.
"""

from collections.abc import Awaitable, Iterator
from typing import NamedTuple

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import open_in_chunks
from kwire.broker.partition import Partition, TimeSearch, code_of
from kwire.concurrency.chunking import eager, spread, spread_nested
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError
from storage.segment.time_search import TimestampAndOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
READ_COMMITTED = 1
# Searches that are started between two yields to the event loop. Each takes tens of microseconds to start.
SEARCHES_PER_CHUNK = 100
# Maximum number of searches for one partition. A search is repeated if retention or compaction replaced the files.
SEARCHES_MAX = 3
FIRST_OFFSET_NOT_AVAILABLE_VERSION = 5
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Lookup(NamedTuple):
    """A search by timestamp, which runs in a thread, and the position of its result in the topic's `answers`."""

    topic: str
    answers: list[ListOffsetsPartitionResponse]
    position: int
    asked: ListOffsetsPartition
    partition: Partition
    is_committed: bool


class _Outdated(Exception):
    """The record that was found may no longer exist."""


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    return eager(_answer_all(context, request))


async def _answer_all(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    await open_in_chunks(_found_partitions(context, request))
    answers = [ListOffsetsTopicResponse(name=asked.name, partitions=[]) async for asked in spread(request.topics)]
    wanted: list[_Lookup] = []
    named_twice = await _named_twice(request)
    is_committed = request.isolation_level == READ_COMMITTED
    pairs, topics = zip(answers, request.topics, strict=True), context.topics
    async for (answer, _), one in spread_nested(pairs, lambda pair: pair[1].partitions):
        partitions = answer.partitions
        try:
            topics.authorize(Operation.DESCRIBE, answer.name)
            if one.partition_index in named_twice.get(answer.name, ()):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            partition = topics.leader_of(Operation.DESCRIBE, answer.name, one.partition_index, one.current_leader_epoch)
            _check_version(context, one)
            if one.timestamp >= 0 or one.timestamp == MAX_TIMESTAMP:
                wanted.append(_Lookup(answer.name, partitions, len(partitions), one, partition, is_committed))
            partitions.append(_position(partition, one, is_committed))
        except KafkaError as error:
            partitions.append(_failed(one, error.code))
        except StorageError as error:
            partitions.append(_failed(one, code_of(error)))
    response = ListOffsetsResponse(topics=answers)
    return await _answer_when_found(context, response, wanted) if wanted else response


def _found_partitions(context: Context, request: ListOffsetsRequest) -> Iterator[Partition | None]:
    """For each topic, yield None and then its requested partitions.

    The None counts as one unit of work, so a request with many topics but no partitions is also divided into chunks.
    """
    for asked in request.topics:
        yield None
        for one in asked.partitions:
            yield context.topics.allowed_partition(Operation.DESCRIBE, asked.name, one.partition_index)


async def _named_twice(request: ListOffsetsRequest) -> dict[str, set[int]]:
    """Return the partitions that the request names more than once, by topic."""
    seen: dict[str, set[int]] = {}
    twice: dict[str, set[int]] = {}
    async for asked, one in spread_nested(request.topics, lambda asked: asked.partitions):
        indexes, index = seen.setdefault(asked.name, set()), one.partition_index
        if index in indexes:
            twice.setdefault(asked.name, set()).add(index)
        indexes.add(index)
    return twice


async def _answer_when_found(
    context: Context, response: ListOffsetsResponse, wanted: list[_Lookup]
) -> ListOffsetsResponse:
    """Search in threads, because a search reads from the disk and decompresses batches."""
    for _ in range(SEARCHES_MAX):
        again: list[_Lookup] = []
        for first in range(0, len(wanted), SEARCHES_PER_CHUNK):
            again += await _search(context, wanted[first : first + SEARCHES_PER_CHUNK])
        wanted = again
        if not wanted:
            break
    return response


async def _search(context: Context, wanted: list[_Lookup]) -> list[_Lookup]:
    """Search and set the partition responses. Return the lookups that must be repeated."""
    searches: list[tuple[_Lookup, TimeSearch]] = []
    for one in wanted:
        try:
            searches.append((one, _begin(one)))
        except StorageError as error:
            one.answers[one.position] = _failed(one.asked, code_of(error))
    again = []
    found = await context.services.cold_reads.find([search for _, search in searches])
    for (one, search), outcome in zip(searches, found, strict=True):
        try:
            one.answers[one.position] = _found(context, one, search, outcome)
        except _Outdated:
            # This error is sent only if the search was already made SEARCHES_MAX times.
            code = code_of(outcome) if isinstance(outcome, StorageError) else _not_available(context)
            one.answers[one.position] = _failed(one.asked, code)
            again.append(one)
        except KafkaError as error:
            one.answers[one.position] = _failed(one.asked, error.code)
        except StorageError as error:
            one.answers[one.position] = _failed(one.asked, code_of(error))
    return again


def _begin(one: _Lookup) -> TimeSearch:
    if one.asked.timestamp == MAX_TIMESTAMP:
        return one.partition.search_largest_time(is_committed=one.is_committed)
    return one.partition.search_time(one.asked.timestamp, is_committed=one.is_committed)


def _found(
    context: Context, one: _Lookup, search: TimeSearch, outcome: TimestampAndOffset | StorageError | None
) -> ListOffsetsPartitionResponse:
    partition = one.partition
    context.topics.authorize(Operation.DESCRIBE, one.topic)
    if context.topics.allowed_partition(Operation.DESCRIBE, one.topic, partition.index) is not partition:
        return _failed(one.asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log_start_offset = partition.log_start_offset
    if partition.is_outdated(search) or (isinstance(outcome, TimestampAndOffset) and outcome.offset < log_start_offset):
        raise _Outdated
    if isinstance(outcome, StorageError):
        return _failed(one.asked, code_of(outcome))
    if outcome is None:
        return _answer(one.asked)
    return _answer(one.asked, outcome.timestamp_ms, outcome.offset, partition.epoch_of(outcome.offset))


def _not_available(context: Context) -> ErrorCode:
    """Return a retriable error that clients of this version know."""
    if context.api_version >= FIRST_OFFSET_NOT_AVAILABLE_VERSION:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _check_version(context: Context, asked: ListOffsetsPartition) -> None:
    wanted = asked.timestamp
    if wanted < EARLIEST_PENDING_UPLOAD or context.api_version < FIRST_VERSION_OF.get(wanted, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _position(partition: Partition, asked: ListOffsetsPartition, is_committed: bool) -> ListOffsetsPartitionResponse:
    partition.open()  # a log that cannot be opened is an error for every timestamp
    if asked.timestamp == LATEST:
        end = partition.readable_end(is_committed=is_committed)
        return _answer(asked, offset=end, epoch=partition.leader_epoch)
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return _answer(asked, offset=start, epoch=partition.epoch_of(start))
    return _answer(asked)


def _answer(
    asked: ListOffsetsPartition, timestamp: int = -1, offset: int = -1, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
