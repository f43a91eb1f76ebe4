"""Requests about partitions on a bridge: ListOffsets, OffsetForLeaderEpoch, DescribeProducers and DeleteRecords.

The brokers that lead the partitions answer. Each gets its part of the request, and the parts of the answer are joined.
A topic without the right is TOPIC_AUTHORIZATION_FAILED in each of its partitions, whether it exists or not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kwire.access.acl import Operation
from kwire.access.audit.entries import TOPIC
from kwire.bridge.kafka_requests.context import RequestContext, check_is_not_internal
from kwire.bridge.kafka_requests.upstream import WAIT_MS_MAX, code_of, with_fields
from kwire.concurrency.chunking import spread, spread_nested
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kwire.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from kwire.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire.wire.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kwire.wire.schema import Api

# A client is never a replica: the cluster would answer a replica with more rights than the client has.
CONSUMER: Final = -1
NO_LEADER: Final = -1
# Partitions of a topic that an entry of the audit log names.
PARTITIONS_NAMED_MAX: Final = 100


class _Shape(NamedTuple):
    """How topics and partitions are named in the messages of an API, and its results with an error."""

    api: Api
    operation: Operation
    topic_name: Callable[[Any], str]
    # The partitions of a topic of the request, their numbers, and a topic with some of them.
    partitions: Callable[[Any], Sequence[Any]]
    number: Callable[[Any], int]
    with_partitions: Callable[[Any, list[Any]], Any]
    failed: Callable[[int, KafkaError], Any]
    result: Callable[[str, list[Any]], Any]
    # Whether users may not do this to internal topics.
    is_change: bool = False


async def _ask_leaders(context: RequestContext, request: Any, shape: _Shape, *, wait_ms: int = 0) -> list[Any]:
    """Return the results of the topics of a request."""
    results: dict[str, list[Any]] = {}
    allowed: list[Any] = []
    async for topic in spread(request.topics):
        name = shape.topic_name(topic)
        try:
            context.topics.authorize(shape.operation, name)
            if shape.is_change:
                check_is_not_internal(name)
            allowed.append(topic)
        except KafkaError as error:
            _fail(results, shape, name, shape.partitions(topic), error)
    leaders = {one.name: one.leaders for one in await context.upstream.topics(map(shape.topic_name, allowed))}
    parts: dict[int, dict[str, tuple[Any, list[Any]]]] = {}
    async for topic, partition in spread_nested(allowed, shape.partitions):
        name = shape.topic_name(topic)
        leader = _leader(leaders, name, shape.number(partition))
        if isinstance(leader, KafkaError):
            _fail(results, shape, name, [partition], leader)
        else:
            parts.setdefault(leader, {}).setdefault(name, (topic, []))[1].append(partition)

    async def ask(node: int, part: Mapping[str, tuple[Any, list[Any]]]) -> Any:
        topics = [shape.with_partitions(topic, some) for topic, some in part.values()]
        message = with_fields(request, topics=topics)
        return await context.upstream.ask_broker(node, shape.api, context.api_version, message, wait_ms=wait_ms)

    for part, outcome in await context.upstream.ask_each(parts, ask):
        if isinstance(outcome, KafkaError):
            for name, (_, some) in part.items():
                _fail(results, shape, name, some, outcome)
            continue
        async for topic in spread(outcome.topics):
            results.setdefault(shape.topic_name(topic), []).extend(topic.partitions)
    return [shape.result(name, partitions) for name, partitions in results.items()]


def _leader(leaders: Mapping[str, Mapping[int, int]], name: str, index: int) -> int | KafkaError:
    node = leaders.get(name, {}).get(index)
    if node is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) if node == NO_LEADER else node


def _fail(
    results: dict[str, list[Any]], shape: _Shape, name: str, partitions: Iterable[Any], error: KafkaError
) -> None:
    results.setdefault(name, []).extend(shape.failed(shape.number(one), error) for one in partitions)


_LIST_OFFSETS = _Shape(
    LIST_OFFSETS,
    Operation.DESCRIBE,
    lambda topic: topic.name,
    lambda topic: topic.partitions,
    lambda partition: partition.partition_index,
    lambda topic, some: with_fields(topic, partitions=some),
    lambda index, error: ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(error)),
    lambda name, partitions: ListOffsetsTopicResponse(name=name, partitions=partitions),
)
_EPOCHS = _Shape(
    OFFSET_FOR_LEADER_EPOCH,
    Operation.DESCRIBE,
    lambda topic: topic.topic,
    lambda topic: topic.partitions,
    lambda partition: partition.partition,
    lambda topic, some: with_fields(topic, partitions=some),
    lambda index, error: EpochEndOffset(partition=index, error_code=code_of(error)),
    lambda name, partitions: OffsetForLeaderTopicResult(topic=name, partitions=partitions),
)
_PRODUCERS = _Shape(
    DESCRIBE_PRODUCERS,
    Operation.READ,
    lambda topic: topic.name,
    lambda topic: topic.partition_indexes,
    lambda index: index,
    lambda topic, some: with_fields(topic, partition_indexes=some),
    lambda index, error: PartitionResponse(
        partition_index=index, error_code=code_of(error), error_message=error.message, active_producers=[]
    ),
    lambda name, partitions: TopicResponse(name=name, partitions=partitions),
)
_DELETE_RECORDS = _Shape(
    DELETE_RECORDS,
    Operation.DELETE,
    lambda topic: topic.name,
    lambda topic: topic.partitions,
    lambda partition: partition.partition_index,
    lambda topic, some: with_fields(topic, partitions=some),
    lambda index, error: DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=-1, error_code=code_of(error)
    ),
    lambda name, partitions: DeleteRecordsTopicResult(name=name, partitions=partitions),
    is_change=True,
)


async def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    request.replica_id = CONSUMER
    request.timeout_ms = wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
    return ListOffsetsResponse(topics=await _ask_leaders(context, request, _LIST_OFFSETS, wait_ms=wait_ms))


async def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    request.replica_id = CONSUMER
    return OffsetForLeaderEpochResponse(topics=await _ask_leaders(context, request, _EPOCHS))


async def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=await _ask_leaders(context, request, _PRODUCERS))


async def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    request.timeout_ms = wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
    topics = await _ask_leaders(context, request, _DELETE_RECORDS, wait_ms=wait_ms)
    for topic in topics:
        offsets = {
            str(one.partition_index): one.low_watermark
            for one in topic.partitions[:PARTITIONS_NAMED_MAX]
            if one.error_code == ErrorCode.NONE
        }
        if offsets:
            context.audit.changed("topic.records_deleted", TOPIC, topic.name, {"startOffsets": offsets})
    return DeleteRecordsResponse(topics=topics)
