"""CreatePartitions 0-3: raise a topic's partition count to a total; it never shrinks."""

from collections import Counter

from kwire.broker.topics import PARTITIONS_MAX, Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.replicas import check_assignments
from kwire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(asked.name for asked in request.topics)
    results = []
    for asked in request.topics:
        result = CreatePartitionsTopicResult(name=asked.name, error_code=0)
        try:
            if times[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request more than once.")
            topic = _check(context, asked)
            if not request.validate_only:
                await context.services.topics.widen(topic, asked.count)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(results=results)


def _check(context: Context, asked: CreatePartitionsTopic) -> Topic:
    topic = context.services.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
    now = len(topic.partitions)
    if topic.is_internal:
        # The partition of a group is its hash modulo this count: changing it would lose every group.
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"The partition count of {topic.name} cannot be changed.")
    if not now < asked.count <= PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic has {now} partitions; a new total must be above that and at most {PARTITIONS_MAX}.",
        )
    if asked.assignments is not None:
        if len(asked.assignments) != asked.count - now:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{asked.count - now} assignments are needed.")
        check_assignments(context, (one.broker_ids for one in asked.assignments))
    return topic
