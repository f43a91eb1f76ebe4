"""ListOffsets 1-11: an offset by position or by time.

- Timestamps below zero ask for a position: -1 latest a reader may see, -2 earliest, -3 the largest timestamp (7+),
  -4 earliest on local disk (8+), -5 latest tiered (9+), -6 earliest not yet tiered (11+). Nothing is tiered here: -4 is
  the earliest, -5 and -6 find nothing.
- A time with no record at or after it finds offset -1 with timestamp -1, never a watermark. Nothing at or above the
  high watermark is found, and the largest timestamp is the largest a reader may see. For who reads committed data both
  end at the last stable offset, and that is the latest.
- A partition named twice in one request is refused, as in Kafka.
- Version 2 adds the isolation level. Version 4 checks the client's leader epoch, and tells the epoch of what was found;
  where no record is yet, that is the epoch in force. Version 5 knows OFFSET_NOT_AVAILABLE, 6 is flexible, and 10 has a
  time limit for searches in tiered storage, which there is none of.
"""

from collections.abc import Awaitable, Iterator
from typing import NamedTuple

from kwire.broker.chunking import eager, spread, spread_nested
from kwire.broker.partition import Partition, TimeSearch, code_of
from kwire.broker.turns import open_in_turns
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError
from storage.times import TimestampAndOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
READ_COMMITTED = 1
# To begin a search takes the loop tens of microseconds; after this many it gets its turn.
SEARCHES_PER_TURN = 100
# Retention or compaction exchanged the files under a search; that often in a row is no chance any more.
SEARCHES_MAX = 3
FIRST_OFFSET_NOT_AVAILABLE_VERSION = 5
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Wanted(NamedTuple):
    """An answer that a thread has to look for, and its place among the others."""

    topic: str
    answers: list[ListOffsetsPartitionResponse]
    place: int
    asked: ListOffsetsPartition
    partition: Partition
    is_committed: bool


class _Outdated(Exception):
    """What was found may not be there any more."""


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    return eager(_answer_all(context, request))


async def _answer_all(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    await open_in_turns(_found_partitions(context, request))
    answers = [ListOffsetsTopicResponse(name=asked.name, partitions=[]) async for asked in spread(request.topics)]
    wanted: list[_Wanted] = []
    named_twice = await _named_twice(request)
    is_committed = request.isolation_level == READ_COMMITTED
    pairs = zip(answers, request.topics, strict=True)
    async for (answer, _), one in spread_nested(pairs, lambda pair: pair[1].partitions):
        partitions = answer.partitions
        try:
            if (answer.name, one.partition_index) in named_twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            partition = context.services.topics.leader_of(answer.name, one.partition_index, one.current_leader_epoch)
            _check_version(context, one)
            if one.timestamp >= 0 or one.timestamp == MAX_TIMESTAMP:
                wanted.append(_Wanted(answer.name, partitions, len(partitions), one, partition, is_committed))
            partitions.append(_position(partition, one, is_committed))
        except KafkaError as error:
            partitions.append(_failed(one, error.code))
        except StorageError as error:
            partitions.append(_failed(one, code_of(error)))
    response = ListOffsetsResponse(topics=answers)
    return await _answer_when_found(context, response, wanted) if wanted else response


def _found_partitions(context: Context, request: ListOffsetsRequest) -> Iterator[Partition | None]:
    """The partitions asked for, and None for each topic, so that a topic without partitions counts as well."""
    for asked in request.topics:
        yield None
        for one in asked.partitions:
            yield context.services.topics.find_partition(asked.name, one.partition_index)


async def _named_twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    async for asked, one in spread_nested(request.topics, lambda asked: asked.partitions):
        name = (asked.name, one.partition_index)
        (twice if name in seen else seen).add(name)
    return twice


async def _answer_when_found(
    context: Context, response: ListOffsetsResponse, wanted: list[_Wanted]
) -> ListOffsetsResponse:
    """A search reads from the disk and unpacks batches, so threads do it."""
    for _ in range(SEARCHES_MAX):
        again: list[_Wanted] = []
        for first in range(0, len(wanted), SEARCHES_PER_TURN):
            again += await _search(context, wanted[first : first + SEARCHES_PER_TURN])
        wanted = again
        if not wanted:
            break
    return response


async def _search(context: Context, wanted: list[_Wanted]) -> list[_Wanted]:
    """Fills in the answers; returns what should be looked for again."""
    searches: list[tuple[_Wanted, TimeSearch]] = []
    for one in wanted:
        try:
            searches.append((one, _begin(one)))
        except StorageError as error:
            one.answers[one.place] = _failed(one.asked, code_of(error))
    again = []
    found = await context.services.cold_reads.find([search for _, search in searches])
    for (one, search), outcome in zip(searches, found, strict=True):
        try:
            one.answers[one.place] = _found(context, one, search, outcome)
        except _Outdated:
            # The answer if this was the last try.
            code = code_of(outcome) if isinstance(outcome, StorageError) else _not_available(context)
            one.answers[one.place] = _failed(one.asked, code)
            again.append(one)
        except StorageError as error:
            one.answers[one.place] = _failed(one.asked, code_of(error))
    return again


def _begin(one: _Wanted) -> TimeSearch:
    if one.asked.timestamp == MAX_TIMESTAMP:
        return one.partition.search_largest_time(is_committed=one.is_committed)
    return one.partition.search_time(one.asked.timestamp, is_committed=one.is_committed)


def _found(
    context: Context, one: _Wanted, search: TimeSearch, outcome: TimestampAndOffset | StorageError | None
) -> ListOffsetsPartitionResponse:
    partition = one.partition
    if context.services.topics.find_partition(one.topic, partition.index) is not partition:
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
    """What makes a client ask again, in words that its version knows."""
    if context.api_version >= FIRST_OFFSET_NOT_AVAILABLE_VERSION:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _check_version(context: Context, asked: ListOffsetsPartition) -> None:
    wanted = asked.timestamp
    if wanted < EARLIEST_PENDING_UPLOAD or context.api_version < FIRST_VERSION_OF.get(wanted, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _position(partition: Partition, asked: ListOffsetsPartition, is_committed: bool) -> ListOffsetsPartitionResponse:
    partition.open()  # one that cannot be opened is an error, whatever is asked for
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
