"""CreatePartitions 0-3: raise a topic's partition count to a total; it never shrinks.

- A manual assignment has one entry for each new partition, and names this node. The partition counts of internal topics
  cannot be changed: they decide where state is kept.
- A topic that comes twice in one request is refused, and answered once; every other one is judged on its own.
- validate_only checks and changes nothing.
- Version 1 is as 0. Version 2 is flexible. Version 3 may be throttled, which does not happen here.
"""

from collections import Counter

from kwire.broker.chunking import next_turn
from kwire.broker.topic_names import PARTITIONS_MAX
from kwire.broker.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.replicas import check_assignments
from kwire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

# Checking one takes some microseconds; after this many the loop gets its turn.
TOPICS_PER_TURN = 500


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(asked.name for asked in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for number, asked in enumerate(request.topics, start=1):
        if asked.name in results:
            continue
        result = results[asked.name] = CreatePartitionsTopicResult(name=asked.name, error_code=0)
        try:
            if times[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request more than once.")
            topic = _check(context, asked)
            if not request.validate_only:
                await context.services.topics.widen(topic, asked.count)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        if number % TOPICS_PER_TURN == 0:
            await next_turn()
    return CreatePartitionsResponse(results=list(results.values()))


def _check(context: Context, asked: CreatePartitionsTopic) -> Topic:
    topic = context.services.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
    now = len(topic.partitions)
    if topic.is_internal:
        # The partition of a group is its hash modulo this count: changing it would lose every group.
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"The partition count of {topic.name} cannot be changed.")
    if topic.settings.is_event_topic:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.name}' is of the event store: it has one for ever."
        )
    if asked.count <= now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.name}' has {now} partitions; {asked.count} is not more."
        )
    if asked.count > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {PARTITIONS_MAX} partitions.")
    if asked.assignments is not None:
        more = asked.count - now
        if len(asked.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"There are {len(asked.assignments)} assignments for {more} new partitions.",
            )
        check_assignments(context, (one.broker_ids for one in asked.assignments))
    return topic
