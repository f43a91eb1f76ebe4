"""ListOffsets 1-11: an offset by position or by time.

- Timestamps below zero ask for a position: -1 latest a reader may see, -2 earliest, -3 the largest timestamp (7+),
  -4 earliest on local disk (8+), -5 latest tiered (9+), -6 earliest not yet tiered (11+). Nothing is tiered here: -4 is
  the earliest, -5 and -6 find nothing.
- A time with no record at or after it finds offset -1 with timestamp -1, never a watermark.
- Version 4 checks the client's leader epoch and tells ours.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from kwire.broker.partition import Partition, code_of
from kwire.broker.time_search import Search, search_largest_time, search_time
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.epochs import check_epoch
from kwire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError
from storage.log import TimestampAndOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# To begin a search takes the loop tens of microseconds; after this many it gets its turn.
SEARCHES_PER_TURN = 100
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _TimeSearch(NamedTuple):
    """An answer that a thread has to look for, and its place among the others."""

    topic: str
    answers: list[ListOffsetsPartitionResponse]
    place: int
    asked: ListOffsetsPartition
    partition: Partition


def handle(
    context: Context, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    answers = []
    searches: list[_TimeSearch] = []
    for asked in request.topics:
        topic = context.services.topics.get(asked.name)
        partitions: list[ListOffsetsPartitionResponse] = []
        for one in asked.partitions:
            try:
                partition = topic.partition(one.partition_index) if topic else None
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                _check(context, partition, one)
                if one.timestamp >= 0 or one.timestamp == MAX_TIMESTAMP:
                    searches.append(_TimeSearch(asked.name, partitions, len(partitions), one, partition))
                partitions.append(_position(partition, one))
            except KafkaError as error:
                partitions.append(_failed(one, error.code))
            except StorageError as error:
                partitions.append(_failed(one, code_of(error)))
        answers.append(ListOffsetsTopicResponse(name=asked.name, partitions=partitions))
    response = ListOffsetsResponse(topics=answers)
    return _answer_when_found(context, response, searches) if searches else response


async def _answer_when_found(
    context: Context, response: ListOffsetsResponse, searches: list[_TimeSearch]
) -> ListOffsetsResponse:
    """A search reads from the disk and unpacks batches, so threads do it."""
    for first in range(0, len(searches), SEARCHES_PER_TURN):
        some = searches[first : first + SEARCHES_PER_TURN]
        found = await context.services.cold_reads.find([_begin(one) for one in some])
        for one, outcome in zip(some, found, strict=True):
            one.answers[one.place] = _found(context, one, outcome)
    return response


def _begin(one: _TimeSearch) -> Search:
    try:
        log = one.partition.log
        return (
            search_largest_time(log) if one.asked.timestamp == MAX_TIMESTAMP else search_time(log, one.asked.timestamp)
        )
    except StorageError as error:
        return partial(_fail, error)


def _fail(error: StorageError) -> None:
    raise error


def _found(
    context: Context, one: _TimeSearch, outcome: TimestampAndOffset | StorageError | None
) -> ListOffsetsPartitionResponse:
    topic = context.services.topics.get(one.topic)
    if topic is None or topic.partition(one.partition.index) is not one.partition:
        return _failed(one.asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(outcome, StorageError):
        return _failed(one.asked, code_of(outcome))
    if outcome is None or outcome.offset >= one.partition.high_watermark:
        return _answer(one.asked)
    epoch = one.partition.log.epochs.epoch_for(outcome.offset)
    return _answer(one.asked, outcome.timestamp_ms, outcome.offset, epoch)


def _check(context: Context, partition: Partition, asked: ListOffsetsPartition) -> None:
    check_epoch(partition, asked.current_leader_epoch)
    wanted = asked.timestamp
    if wanted < EARLIEST_PENDING_UPLOAD or context.api_version < FIRST_VERSION_OF.get(wanted, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _position(partition: Partition, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    log = partition.log
    if asked.timestamp == LATEST:
        return _answer(asked, offset=partition.high_watermark, epoch=partition.leader_epoch)
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _answer(asked, offset=log.log_start_offset, epoch=log.epochs.epoch_for(log.log_start_offset))
    return _answer(asked)


def _answer(
    asked: ListOffsetsPartition, timestamp: int = -1, offset: int = -1, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
