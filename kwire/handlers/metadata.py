"""Metadata 0-13: this node, its topics and their partitions; creates unknown topics if it may.

- Null topics (an empty list in version 0) asks for all, an empty list for none.
- The node is named by the address the client connected to, unless `advertised.listeners` says otherwise.
- An unknown topic is created if server and client both allow it; the answer waits until that is durable, so a client
  need not ask twice.
- Version 10 gives topic ids, version 12 can ask by them; a topic without a name before that makes the whole request
  invalid.
"""

from collections.abc import Awaitable

from kwire.broker.topics import Topic, check_name
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.wire.types import ZERO_UUID

FIRST_VERSION_BY_ID = 12

# Every operation Kafka knows on a topic and on the cluster, as bits: without authorisation, everyone may do everything.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    topics = context.services.topics
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        return _response(context, request, [_describe(context, request, topic) for topic in topics])
    by_id = any(one.name is None or one.topic_id != ZERO_UUID for one in asked)
    if by_id and context.api_version < FIRST_VERSION_BY_ID:
        return _response(context, request, [_invalid(one) for one in asked])
    may_create = request.allow_auto_topic_creation and context.services.config.topics.is_auto_create
    if may_create and any(one.name and topics.get(one.name) is None for one in asked):
        return _create_and_answer(context, request, asked)
    return _response(context, request, [_lookup(context, request, one) for one in asked])


async def _create_and_answer(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> MetadataResponse:
    answers = []
    for one in asked:
        refusal = None
        if one.name and one.topic_id == ZERO_UUID and context.services.topics.get(one.name) is None:
            try:
                await context.services.topics.get_or_create(one.name)
            except KafkaError as error:
                refusal = _failed(one, error.code)
        answers.append(refusal or _lookup(context, request, one))
    return _response(context, request, answers)


def _lookup(context: Context, request: MetadataRequest, one: MetadataRequestTopic) -> MetadataResponseTopic:
    if one.topic_id != ZERO_UUID:
        topic = context.services.topics.get_by_id(one.topic_id)
        return _describe(context, request, topic) if topic else _failed(one, ErrorCode.UNKNOWN_TOPIC_ID)
    if one.name is None:
        return _failed(one, ErrorCode.UNKNOWN_TOPIC_ID)
    topic = context.services.topics.get(one.name)
    if topic is not None:
        return _describe(context, request, topic)
    try:
        check_name(one.name)
    except KafkaError as error:
        return _failed(one, error.code)
    return _failed(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _failed(one: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=one.name, topic_id=one.topic_id, partitions=[])


def _invalid(one: MetadataRequestTopic) -> MetadataResponseTopic:
    # Before version 12 an answer always has a name.
    return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=one.name or "", partitions=[])


def _describe(context: Context, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    node_id = context.services.node.node_id
    answer = MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=partition.index,
                leader_id=node_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
            )
            for partition in topic.partitions
        ],
    )
    if request.include_topic_authorized_operations:
        answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def _response(context: Context, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    node = context.services.node
    host, port = context.endpoint
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.node_id, host=host, port=port, rack=node.rack)],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer
