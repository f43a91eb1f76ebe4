"""DescribeProducers 0: the idempotent producers that partitions know, and what they wrote last.

- Producers that were silent for `producer.id.expiration.ms` are forgotten.
- The last timestamp is that of the producer's last batch. The coordinator epoch is that of its last marker; it and the
  start of the current transaction are -1 if there is none.
- Partitions are judged each on its own; one that is named twice is answered once. A topic with very many producers is
  told in several portions, each under its name, so that others get their turn.
"""

import inspect
from collections.abc import Awaitable, Iterator
from typing import Any

from kwire.broker.chunking import eager
from kwire.broker.partition import Partition, code_of
from kwire.broker.topic_names import check_name
from kwire.broker.turns import answer_in_turns, open_in_turns
from kwire.errors import KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from storage.errors import StorageError
from storage.transactions import OpenTransaction

NOWHERE = -1
# A portion of a topic's partitions ends with this many producers, or partitions.
WEIGHT_PER_PORTION = 2000


def handle(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    return eager(_answer_when_open(context, request))


async def _answer_when_open(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    await open_in_turns(_found_partitions(context, request))
    answer = _answer(context, request)
    return await answer if inspect.isawaitable(answer) else answer


def _answer(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    return answer_in_turns(
        _portions(context, request),
        _weight,
        _response,
        elements_encoder(DescribeProducersResponse, "topics", context.api_version),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions))),
    )


def _found_partitions(context: Context, request: DescribeProducersRequest) -> Iterator[Partition | None]:
    """The partitions asked for, and None for each topic, so that a topic without partitions counts as well."""
    for asked in request.topics:
        yield None
        for index in asked.partition_indexes:
            yield context.services.topics.find_partition(asked.name, index)


def _response(topics: Any) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=topics)


def _weight(topic: TopicResponse) -> int:
    return 1 + sum(map(_weight_of_partition, topic.partitions))


def _weight_of_partition(partition: PartitionResponse) -> int:
    return 1 + len(partition.active_producers)


def _portions(context: Context, request: DescribeProducersRequest) -> Iterator[TopicResponse]:
    told: set[tuple[str, int]] = set()
    for asked in request.topics:
        portion = TopicResponse(name=asked.name, partitions=[])
        weight = 0
        for index in asked.partition_indexes:
            if (asked.name, index) in told:
                # A partition may have very many producers, and a request very many names.
                continue
            told.add((asked.name, index))
            if weight >= WEIGHT_PER_PORTION:
                yield portion
                portion, weight = TopicResponse(name=asked.name, partitions=[]), 0
            described = _describe(context, asked.name, index)
            portion.partitions.append(described)
            weight += _weight_of_partition(described)
        yield portion


def _describe(context: Context, name: str, index: int) -> PartitionResponse:
    try:
        check_name(name)
        partition = context.services.topics.leader_of(name, index)
        return PartitionResponse(partition_index=index, error_code=0, active_producers=_producers(partition))
    except StorageError as failure:
        error = KafkaError(code_of(failure), str(failure))
    except KafkaError as refusal:
        error = refusal
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )


def _start_of(transaction: OpenTransaction | None) -> int:
    return NOWHERE if transaction is None else transaction.first_offset


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
