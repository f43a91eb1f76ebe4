"""CreatePartitions 0-3: raise the partition count of topics. The count cannot be lowered.

- A manual assignment has one entry for each new partition, and each entry names only this node.
- A topic needs ALTER. The audit topic is TOPIC_AUTHORIZATION_FAILED for every client.
- The partition counts of internal topics cannot be changed, because the hash of a group id or transactional id, modulo
  this count, is the partition that stores its state.
- A topic that is named twice in one request is refused and has one result. Every other topic has its own result.
- With validate_only the request is checked and nothing is changed.
- Version 1 is the same as version 0. Version 2 is flexible. From version 3 on, a topic above the client's quota
  (`controller_mutation_rate`) is THROTTLING_QUOTA_EXCEEDED; in older versions the client is throttled afterwards.
"""

from collections import Counter

from kwire.access.acl import Operation
from kwire.broker.topics.names import PARTITIONS_MAX
from kwire.broker.topics.topics import Topic, protected_topic
from kwire.concurrency.chunking import yield_to_loop
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.replicas import check_assignments
from kwire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

FIRST_STRICT_VERSION = 3
# Topics that are checked between two yields to the event loop. A check takes some microseconds.
TOPICS_PER_CHUNK = 500


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(asked.name for asked in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    quota = context.mutation_quota(FIRST_STRICT_VERSION)
    for number, asked in enumerate(request.topics, start=1):
        if asked.name in results:
            continue
        result = results[asked.name] = CreatePartitionsTopicResult(name=asked.name, error_code=0)
        try:
            if times[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request more than once.")
            topic = _check(context, asked)
            quota.take(asked.count - len(topic.partitions))
            if not request.validate_only:
                await context.services.topics.create_partitions(topic, asked.count)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        if number % TOPICS_PER_CHUNK == 0:
            await yield_to_loop()
    return CreatePartitionsResponse(throttle_time_ms=quota.throttle_ms, results=list(results.values()))


def _check(context: Context, asked: CreatePartitionsTopic) -> Topic:
    topic = context.topics.get(Operation.ALTER, asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
    now = len(topic.partitions)
    if topic.is_protected:
        raise protected_topic(topic.name)
    if topic.is_internal:
        # With another count the coordinators would look for most groups and transactional ids in the wrong partition.
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"The partition count of {topic.name} cannot be changed.")
    if topic.settings.is_event_topic:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.name}' of the event store must have one partition."
        )
    if asked.count <= now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{topic.name}' has {now} partitions; the new count {asked.count} must be greater.",
        )
    if asked.count > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"A topic can have at most {PARTITIONS_MAX} partitions.")
    if asked.assignments is not None:
        more = asked.count - now
        if len(asked.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"There are {len(asked.assignments)} assignments for {more} new partitions.",
            )
        check_assignments(context, (one.broker_ids for one in asked.assignments))
    return topic
