"""OffsetForLeaderEpoch 2-4: the end offset of a leader epoch, with which a consumer detects a truncated log.

- The response has the largest epoch that is not above the requested one, and the offset after its last record. The
  current epoch ends at the log end offset. For an epoch older than the first epoch of the log, the end offset is the
  log start offset. For an unknown newer epoch, or for -1, epoch and offset are -1 without an error.
- Every start of this node begins a new epoch, even if nothing was written since the previous start.
- The client's current epoch must be that of the leader, or -1. An older epoch is FENCED_LEADER_EPOCH, a newer one is
  UNKNOWN_LEADER_EPOCH.
- A topic needs DESCRIBE. With CLUSTER_ACTION on the cluster, the right of brokers, no other right is needed.
- Version 3 adds the replica id (-1 or -2 for a consumer), which has no effect. Version 4 is flexible.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks, open_in_chunks, partition_chunks
from kwire.broker.partition import Partition, code_of
from kwire.concurrency.chunking import eager
from kwire.errors import KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage.errors import StorageError

# Returns a partition by topic name, index and the client's leader epoch. Raises KafkaError.
LeaderLookup = Callable[[str, int, int], Partition]


def handle(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    return eager(_answer_when_open(context, request))


async def _answer_when_open(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    leader_of = _leader_lookup(context)
    await open_in_chunks(_found_partitions(leader_of, request))
    answer = _answer(context, leader_of, request)
    return await answer if inspect.isawaitable(answer) else answer


def _leader_lookup(context: Context) -> LeaderLookup:
    if context.cluster.allows(Operation.CLUSTER_ACTION):
        return context.cluster.topics(Operation.CLUSTER_ACTION).leader_of
    return partial(context.topics.leader_of, Operation.DESCRIBE)


def _found_partitions(leader_of: LeaderLookup, request: OffsetForLeaderEpochRequest) -> Iterator[Partition | None]:
    """For each topic, yield None and then its requested partitions.

    The None counts as one unit of work, so a request with many topics but no partitions is also divided into chunks.
    """
    for asked in request.topics:
        yield None
        for one in asked.partitions:
            try:
                yield leader_of(asked.topic, one.partition, one.current_leader_epoch)
            except KafkaError:
                yield None  # the response has the error


def _answer(
    context: Context, leader_of: LeaderLookup, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    results = (
        OffsetForLeaderTopicResult(
            topic=asked.topic, partitions=[_end_offset(leader_of, asked.topic, one) for one in some]
        )
        for asked in request.topics
        for some in partition_chunks(asked.partitions)
    )
    return answer_in_chunks(
        results,
        lambda result: 1 + len(result.partitions),
        _response,
        context.elements_encoder(OffsetForLeaderEpochResponse, "topics"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )


def _response(results: Any) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(topics=results)


def _end_offset(leader_of: LeaderLookup, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = leader_of(name, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    except StorageError as error:
        return EpochEndOffset(error_code=code_of(error), partition=asked.partition)
    return EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
