"""CreateTopics 2-7: new topics, durable before the answer.

- -1 partitions or replicas asks for the defaults (4+); a manual assignment must name this node for every partition.
- Names that come twice in one request are refused, both of them; every other topic is judged on its own.
- validate_only checks and creates nothing. Version 5 returns the configuration, version 7 the topic id.
"""

from collections import Counter

from kwire import topic_config
from kwire.broker.topics import NewTopic, Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.replicas import check_assignments, check_replication_factor
from kwire.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.wire.types import ZERO_UUID

DEFAULT = -1


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    topics = context.services.topics
    times = Counter(asked.name for asked in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    new: dict[str, NewTopic] = {}
    for asked in request.topics:
        try:
            if times[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request more than once.")
            one = _new_topic(context, asked)
            topics.check(one)
            new[asked.name] = one
        except KafkaError as error:
            results[asked.name] = _failed(asked.name, error)
    if request.validate_only:
        results |= {name: _created(context, one, ZERO_UUID) for name, one in new.items()}
    elif new:
        results |= await _create(context, new)
    return CreateTopicsResponse(topics=[results[name] for name in dict.fromkeys(one.name for one in request.topics)])


async def _create(context: Context, new: dict[str, NewTopic]) -> dict[str, CreatableTopicResult]:
    """All in one commit; if somebody was faster with one of them, each on its own."""
    topics = context.services.topics
    try:
        created: list[Topic] = await topics.create(new.values())
        return {topic.name: _created(context, new[topic.name], topic.topic_id) for topic in created}
    except KafkaError as error:
        if len(new) == 1:
            return {name: _failed(name, error) for name in new}
    results: dict[str, CreatableTopicResult] = {}
    for name, one in new.items():
        results |= await _create(context, {name: one})
    return results


def _new_topic(context: Context, asked: CreatableTopic) -> NewTopic:
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        configs[config.name] = config.value
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A replica assignment and a partition or replica count exclude each other."
            )
        assignments = {one.partition_index: one.broker_ids for one in asked.assignments}
        if sorted(assignments) != list(range(len(asked.assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without a gap.")
        check_assignments(context, assignments.values())
        return NewTopic(asked.name, len(assignments), configs)
    check_replication_factor(asked.replication_factor)
    count = asked.num_partitions
    return NewTopic(asked.name, context.services.config.topics.partition_count if count == DEFAULT else count, configs)


def _created(context: Context, new: NewTopic, topic_id: bytes) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=new.name,
        topic_id=topic_id,
        error_code=0,
        num_partitions=new.partition_count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_config.describe(new.configs, context.services.config)
        ],
    )


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
