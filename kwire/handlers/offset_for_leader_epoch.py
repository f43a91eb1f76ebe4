"""OffsetForLeaderEpoch 2-4: where a leader epoch ended, so that a reader can see whether its log was cut.

- The answer is the largest epoch not above the one asked for, and the offset behind its last record. The epoch in force
  ends at the log end. An epoch older than the log ends where the log begins; one that is not known yet, or -1, is
  answered with -1 for both, and no error.
- Every start of this node leads in a new epoch, also before it has written anything.
- The client's own epoch must be that of the leader, unless it is -1: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
- Version 3 tells who asks (a replica, or -1 or -2 for a consumer), which changes nothing here. Version 4 is flexible.
"""

import inspect
from collections.abc import Awaitable, Iterator
from typing import Any

from kwire.broker.chunking import eager
from kwire.broker.partition import Partition, code_of
from kwire.broker.turns import answer_in_turns, open_in_turns, portions
from kwire.errors import KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage.errors import StorageError


def handle(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    return eager(_answer_when_open(context, request))


async def _answer_when_open(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    await open_in_turns(_found_partitions(context, request))
    answer = _answer(context, request)
    return await answer if inspect.isawaitable(answer) else answer


def _found_partitions(context: Context, request: OffsetForLeaderEpochRequest) -> Iterator[Partition | None]:
    """The partitions asked for, and None for each topic, so that a topic without partitions counts as well."""
    for asked in request.topics:
        yield None
        for one in asked.partitions:
            yield context.services.topics.find_partition(asked.topic, one.partition)


def _answer(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    results = (
        OffsetForLeaderTopicResult(
            topic=asked.topic, partitions=[_end_offset(context, asked.topic, one) for one in some]
        )
        for asked in request.topics
        for some in portions(asked.partitions)
    )
    return answer_in_turns(
        results,
        lambda result: 1 + len(result.partitions),
        _response,
        elements_encoder(OffsetForLeaderEpochResponse, "topics", context.api_version),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions))),
    )


def _response(results: Any) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(topics=results)


def _end_offset(context: Context, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.services.topics.leader_of(name, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    except StorageError as error:
        return EpochEndOffset(error_code=code_of(error), partition=asked.partition)
    return EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
