"""CreateTopics 2-7: create topics; the response is sent when they are durable.

- A topic needs CREATE on the cluster or on the topic. The audit topic is TOPIC_AUTHORIZATION_FAILED for every client.
- Without DESCRIBE_CONFIGS on a topic, its result has no partition count, replication factor and configuration, and its
  `topic_config_error_code` is TOPIC_AUTHORIZATION_FAILED.
- A manual assignment must name this node for every partition. Then the partition count and the replication factor must
  be -1.
- A topic that is named twice in one request is refused. Every other topic has its own result. The checks of a topic
  are, in this order: the client's right, its name, whether it exists, its configuration, its replicas and partitions.
- With validate_only the request is checked and nothing is created.
- Version 3 is the same as version 2. From version 4 on, -1 partitions or replicas request the defaults. kwire also
  accepts -1 in older versions, as Kafka does. Version 5 is flexible and returns the configuration. From version 6 on, a
  topic above the client's quota (`controller_mutation_rate`) is THROTTLING_QUOTA_EXCEEDED; in older versions the client
  is throttled afterwards. The quota also counts with validate_only, as in Kafka. Version 7 returns the topic id.
- A request for many topics is checked, committed and answered in chunks, with yields to the event loop between them.
"""

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.broker.topics.catalogue import ADDED_PER_COMMIT_MAX
from kwire.broker.topics.names import check_partition_count
from kwire.broker.topics.topics import NewTopic
from kwire.concurrency.chunking import spread, yield_to_loop
from kwire.config.resources import topic as topic_config
from kwire.errors import ErrorCode, KafkaError, as_value
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.replicas import check_assignments, check_replica_count, check_replication_factor
from kwire.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.wire.types import ZERO_UUID

DEFAULT = -1
FIRST_STRICT_VERSION = 6
# Topics that are handled between two yields to the event loop. Each takes some ten microseconds to check and to create.
# One commit creates the topics of a chunk.
TOPICS_PER_CHUNK = ADDED_PER_COMMIT_MAX
# Many topics have equal configurations. Up to this many descriptions are cached while a response is built.
CACHED_CONFIGS_MAX = 100


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times: Counter[str] = Counter()
    async for asked in spread(request.topics):
        times[asked.name] += 1
    refused: dict[str, KafkaError] = {}
    new: dict[str, NewTopic] = {}
    quota = context.mutation_quota(FIRST_STRICT_VERSION)
    for number, asked in enumerate(request.topics, start=1):
        try:
            if times[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request more than once.")
            topic = _new_topic(context, asked)
            quota.take(topic.partition_count)
            new[asked.name] = topic
        except KafkaError as error:
            refused[asked.name] = as_value(error)
        if number % TOPICS_PER_CHUNK == 0:
            await yield_to_loop()
    ids = dict.fromkeys(new, ZERO_UUID)
    if not request.validate_only:
        left = list(new.values())
        while left:
            await _create(context, left[:TOPICS_PER_CHUNK], ids, refused)
            del left[:TOPICS_PER_CHUNK]
    answer = answer_in_chunks(
        _results(context, times, new, ids, refused),
        lambda result: 1 + len(result.configs or ()),
        _response,
        context.elements_encoder(CreateTopicsResponse, "topics"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )
    response = await answer if inspect.isawaitable(answer) else answer
    response.throttle_time_ms = quota.throttle_ms
    return response


def _response(results: Any) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=results)


async def _create(context: Context, new: list[NewTopic], ids: dict[str, bytes], refused: dict[str, KafkaError]) -> None:
    """Create all topics in one commit. If this fails, create each topic in its own commit.

    The commit of several topics fails if one of them was created in the meantime.
    """
    try:
        for topic in await context.topics.create(new):
            ids[topic.name] = topic.topic_id
    except KafkaError as error:
        if len(new) == 1:
            refused[new[0].name] = as_value(error)
            return
        for one in new:
            await _create(context, [one], ids, refused)


def _results(
    context: Context,
    names: Iterable[str],
    new: Mapping[str, NewTopic],
    ids: Mapping[str, bytes],
    refused: Mapping[str, KafkaError],
) -> Iterator[CreatableTopicResult]:
    """Yield the results in request order. Topics with equal configurations share one description."""
    described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    for name in names:
        error = refused.get(name)
        if error is not None:
            yield CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
            continue
        if not context.topics.permits(Operation.DESCRIBE_CONFIGS, name):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            yield CreatableTopicResult(name=name, topic_id=ids[name], error_code=0, topic_config_error_code=refusal)
            continue
        key = frozenset(new[name].configs.items())
        if key not in described:
            if len(described) >= CACHED_CONFIGS_MAX:
                described.clear()
            described[key] = _configs(context, new[name])
        yield CreatableTopicResult(
            name=name,
            topic_id=ids[name],
            error_code=0,
            num_partitions=new[name].partition_count,
            replication_factor=1,
            configs=described[key],
        )


def _new_topic(context: Context, asked: CreatableTopic) -> NewTopic:
    """Check a topic in Kafka's order: TOPIC_ALREADY_EXISTS takes precedence over later checks."""
    context.topics.check_new_name(asked.name)
    configs = _asked_configs(asked)
    context.services.topics.check_configs(configs)
    return NewTopic(asked.name, _partition_count(context, asked), configs)


def _asked_configs(asked: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in asked.configs if config.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"A topic's settings cannot be null: {', '.join(nulls)}")
    return {config.name: config.value for config in asked.configs if config.value is not None}


def _partition_count(context: Context, asked: CreatableTopic) -> int:
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A replica assignment and a partition or replica count exclude each other."
            )
        assignments = {one.partition_index: one.broker_ids for one in asked.assignments}
        if len(assignments) < len(asked.assignments):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition has more than one assignment.")
        check_assignments(context, assignments.values())
        if sorted(assignments) != list(range(len(assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without a gap.")
        check_partition_count(len(assignments))
        return len(assignments)
    check_replication_factor(asked.replication_factor)
    count = asked.num_partitions
    count = context.services.config.topics.partition_count if count == DEFAULT else count
    check_partition_count(count)
    check_replica_count(asked.replication_factor)
    return count


def _configs(context: Context, new: NewTopic) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in topic_config.describe(new.configs, context.services.config)
    ]
