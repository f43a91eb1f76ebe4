"""CreateTopics 2-7: new topics, durable before the answer.

- A manual assignment must name this node for every partition, and leaves no room for counts.
- Names that come twice in one request are refused, both of them; every other topic is judged on its own: first its
  name, whether it exists, its configuration, then its replicas and partitions.
- validate_only checks and creates nothing.
- Version 3 is as 2. Version 4 lets -1 partitions or replicas ask for the defaults; older clients that send it get them
  too, as from Kafka. Version 5 is flexible and returns the configuration. Version 6 may be throttled, which does not
  happen here. Version 7 returns the topic id.
- A request for many topics is checked, committed and answered some at a time, so that others get their turn.
"""

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kwire import topic_config
from kwire.broker.chunking import next_turn, spread
from kwire.broker.topic_names import check_partition_count
from kwire.broker.topics import NewTopic
from kwire.broker.turns import answer_in_turns
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.replicas import check_assignments, check_replica_count, check_replication_factor
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.wire.types import ZERO_UUID

DEFAULT = -1
# Checking a topic, and making one, take some ten microseconds each.
TOPICS_PER_TURN = 200
# Most topics are configured like many others; so many different ones are remembered while an answer is made.
ALIKE_MAX = 100


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times: Counter[str] = Counter()
    async for asked in spread(request.topics):
        times[asked.name] += 1
    refused: dict[str, KafkaError] = {}
    new: dict[str, NewTopic] = {}
    for number, asked in enumerate(request.topics, start=1):
        try:
            if times[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{asked.name}' is in the request more than once.")
            new[asked.name] = _new_topic(context, asked)
        except KafkaError as error:
            refused[asked.name] = error
        if number % TOPICS_PER_TURN == 0:
            await next_turn()
    ids = dict.fromkeys(new, ZERO_UUID)
    if not request.validate_only:
        left = list(new.values())
        while left:
            await _create(context, left[:TOPICS_PER_TURN], ids, refused)
            del left[:TOPICS_PER_TURN]
    answer = answer_in_turns(
        _results(context, times, new, ids, refused),
        lambda result: 1 + len(result.configs or ()),
        _response,
        lambda some: elements_encoder(CreateTopicsResponse, "topics", context.api_version)(some),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions))),
    )
    return await answer if inspect.isawaitable(answer) else answer


def _response(results: Any) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=results)


async def _create(context: Context, new: list[NewTopic], ids: dict[str, bytes], refused: dict[str, KafkaError]) -> None:
    """All in one commit; if somebody was faster with one of them, each on its own."""
    try:
        for topic in await context.services.topics.create(new):
            ids[topic.name] = topic.topic_id
    except KafkaError as error:
        if len(new) == 1:
            refused[new[0].name] = error
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
    """In the order asked. Topics that are configured alike share what is told of it."""
    told: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    for name in names:
        error = refused.get(name)
        if error is not None:
            yield CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
            continue
        key = frozenset(new[name].configs.items())
        if key not in told:
            if len(told) >= ALIKE_MAX:
                told.clear()
            told[key] = _configs(context, new[name])
        yield CreatableTopicResult(
            name=name,
            topic_id=ids[name],
            error_code=0,
            num_partitions=new[name].partition_count,
            replication_factor=1,
            configs=told[key],
        )


def _new_topic(context: Context, asked: CreatableTopic) -> NewTopic:
    """Checked in Kafka's order: who creates a topic that exists is told so, whatever else is wrong with the request."""
    topics = context.services.topics
    topics.check_new_name(asked.name)
    configs = _asked_configs(asked)
    topics.check_configs(configs)
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
