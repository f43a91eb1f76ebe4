"""DescribeProducers 0: the state of the idempotent producers of partitions.

- The state of a producer is removed after `producer.id.expiration.ms` without a record.
- The last timestamp is that of the producer's last batch. The coordinator epoch is that of the producer's last marker,
  or -1 without a marker. The start offset of the current transaction is -1 without a transaction.
- A topic needs READ. Each partition has its own result. A repeated partition has one result. A topic with very many
  producers is returned in several entries with the same name, so that the handler can yield to the event loop between
  them.
"""

import inspect
from collections.abc import Awaitable, Iterator
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks, open_in_chunks
from kwire.broker.partition import Partition, code_of
from kwire.broker.topics.names import check_name
from kwire.concurrency.chunking import eager
from kwire.errors import KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from storage.errors import StorageError
from storage.log.transactions import OpenTransaction

NO_OFFSET = -1
# A topic's entry in the response ends after this many producers or partitions, and the next entry begins.
WEIGHT_PER_ENTRY = 2000


def handle(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    return eager(_answer_when_open(context, request))


async def _answer_when_open(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    await open_in_chunks(_found_partitions(context, request))
    answer = _answer(context, request)
    return await answer if inspect.isawaitable(answer) else answer


def _answer(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    return answer_in_chunks(
        _entries(context, request),
        _weight,
        _response,
        context.elements_encoder(DescribeProducersResponse, "topics"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )


def _found_partitions(context: Context, request: DescribeProducersRequest) -> Iterator[Partition | None]:
    """For each topic, yield None and then its requested partitions.

    The None counts as one unit of work, so a request with many topics but no partitions is also divided into chunks.
    """
    for asked in request.topics:
        yield None
        for index in asked.partition_indexes:
            yield context.topics.allowed_partition(Operation.READ, asked.name, index)


def _response(topics: Any) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=topics)


def _weight(topic: TopicResponse) -> int:
    return 1 + sum(map(_weight_of_partition, topic.partitions))


def _weight_of_partition(partition: PartitionResponse) -> int:
    return 1 + len(partition.active_producers)


def _entries(context: Context, request: DescribeProducersRequest) -> Iterator[TopicResponse]:
    seen: set[tuple[str, int]] = set()
    for asked in request.topics:
        entry = TopicResponse(name=asked.name, partitions=[])
        weight = 0
        for index in asked.partition_indexes:
            if (asked.name, index) in seen:
                # A partition may have very many producers, so it is described only once.
                continue
            seen.add((asked.name, index))
            if weight >= WEIGHT_PER_ENTRY:
                yield entry
                entry, weight = TopicResponse(name=asked.name, partitions=[]), 0
            described = _describe(context, asked.name, index)
            entry.partitions.append(described)
            weight += _weight_of_partition(described)
        yield entry


def _describe(context: Context, name: str, index: int) -> PartitionResponse:
    try:
        check_name(name)
        partition = context.topics.leader_of(Operation.READ, name, index)
        return PartitionResponse(partition_index=index, error_code=0, active_producers=_producers(partition))
    except StorageError as failure:
        error = KafkaError(code_of(failure), str(failure))
    except KafkaError as refusal:
        error = refusal
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )


def _start_of(transaction: OpenTransaction | None) -> int:
    return NO_OFFSET if transaction is None else transaction.first_offset


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=_start_of(transaction),
        )
        for producer_id, state, transaction in partition.producers()
    ]
