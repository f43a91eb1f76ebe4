"""CreateTopics, DeleteTopics and CreatePartitions on a bridge.

Topics that the client may not change are refused here, and the others are sent to the cluster. Internal topics, whose
names begin with two underscores, are never changed.
"""

from collections.abc import Iterable

from kwire.access.acl import Operation
from kwire.access.audit.entries import TOPIC
from kwire.bridge.kafka_requests.context import RequestContext, check_is_not_internal
from kwire.bridge.kafka_requests.upstream import WAIT_MS_MAX, FoundTopic
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.remote_events.topic_rules import event_topic_partitions
from kwire.wire.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kwire.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kwire.wire.types import ZERO_UUID

# From these versions on a client above its quota of changes is refused. An earlier one only has to wait (KIP-599).
FIRST_STRICT_CREATION = 6
FIRST_STRICT_DELETION = 5
FIRST_STRICT_PARTITIONS = 3
# The first version of DeleteTopics that takes topic ids.
FIRST_DELETION_BY_ID = 6
# The first version of DeleteTopics with TOPIC_DELETION_DISABLED.
FIRST_VERSION_OF_DISABLED = 3


async def create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    quota = context.mutation_quota(FIRST_STRICT_CREATION)
    allowed: list[CreatableTopic] = []
    refused: list[CreatableTopicResult] = []
    async for one in spread(request.topics):
        try:
            if not context.topics.may_create(one.name):
                context.topics.authorize(Operation.CREATE, one.name)
            check_is_not_internal(one.name)
            if not request.validate_only:
                quota.take(max(1, one.num_partitions, len(one.assignments)))
            allowed.append(one)
        except KafkaError as error:
            refused.append(CreatableTopicResult(name=one.name, error_code=error.code, error_message=error.message))
    response = CreateTopicsResponse(topics=[])
    if allowed:
        request.topics = allowed
        request.timeout_ms = wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
        response = await context.upstream.ask_controller(CREATE_TOPICS, context.api_version, request, wait_ms=wait_ms)
        settings = {one.name: sorted(config.name for config in one.configs) for one in allowed}
        for created in response.topics:
            if created.error_code == ErrorCode.NONE and not request.validate_only:
                facts = {"partitions": created.num_partitions, "settings": settings.get(created.name, [])}
                context.audit.changed("topic.created", TOPIC, created.name, facts)
                context.services.on_topic_change(created.name)
            _hide_configs(context, created)
    response.topics += refused
    response.throttle_time_ms = max(response.throttle_time_ms, quota.throttle_ms)
    return response


def _hide_configs(context: RequestContext, created: CreatableTopicResult) -> None:
    """Remove the settings of a new topic, unless the client may describe them."""
    if created.error_code == ErrorCode.NONE and not context.topics.allows(Operation.DESCRIBE_CONFIGS, created.name):
        created.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        created.num_partitions = created.replication_factor = -1
        created.configs = []


async def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    has_ids = context.api_version >= FIRST_DELETION_BY_ID
    asked = request.topics if has_ids else [DeleteTopicState(name=name) for name in request.topic_names]
    found = await context.upstream.topics(
        [one.name for one in asked if one.name is not None],
        [bytes(one.topic_id) for one in asked if one.topic_id != ZERO_UUID],
    )
    by_name = {one.name: one for one in found}
    by_id = {one.topic_id: one for one in found}
    quota = context.mutation_quota(FIRST_STRICT_DELETION)
    allowed: list[DeleteTopicState] = []
    refused: list[DeletableTopicResult] = []
    names: dict[bytes, str] = {}
    async for one in spread(asked):
        result = DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=0)
        try:
            if (one.name is None) != (one.topic_id != ZERO_UUID):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic must have either a name or an id, not both.")
            topic = by_id.get(bytes(one.topic_id)) if one.name is None else by_name.get(one.name)
            _check_deletion(context, one.name, topic, result)
            if topic is not None:
                quota.take(len(topic.leaders))
                names[topic.topic_id] = topic.name
            allowed.append(one)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            refused.append(result)
    response = DeleteTopicsResponse(responses=[])
    if allowed:
        request.topics = allowed if has_ids else []
        request.topic_names = [] if has_ids else [one.name or "" for one in allowed]
        request.timeout_ms = wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
        response = await context.upstream.ask_controller(DELETE_TOPICS, context.api_version, request, wait_ms=wait_ms)
        for deleted in response.responses:
            if deleted.error_code == ErrorCode.NONE:
                name = deleted.name or names.get(bytes(deleted.topic_id), "")
                context.audit.changed("topic.deleted", TOPIC, name)
                context.services.on_topic_change(name)
    response.responses += refused
    response.throttle_time_ms = max(response.throttle_time_ms, quota.throttle_ms)
    return response


def _check_deletion(
    context: RequestContext, name: str | None, topic: FoundTopic | None, result: DeletableTopicResult
) -> None:
    """Raise KafkaError if the client may not delete a topic. The result gets a name that may be revealed."""
    if not context.services.is_delete_allowed:
        knows = context.api_version >= FIRST_VERSION_OF_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if knows else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false.")
    if name is None:
        # To a client with a scope, the topics of other scopes do not exist.
        if topic is None or not topic.name.startswith(context.prefix):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
        if context.topics.allows(Operation.DESCRIBE, name):
            result.name = name
    if not context.cluster.allows(Operation.DELETE):
        context.topics.authorize(Operation.DESCRIBE, name)
        context.topics.authorize(Operation.DELETE, name)
    check_is_not_internal(name)


async def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    counts = await _partition_counts(context, [one.name for one in request.topics])
    quota = context.mutation_quota(FIRST_STRICT_PARTITIONS)
    allowed: list[CreatePartitionsTopic] = []
    refused: list[CreatePartitionsTopicResult] = []
    async for one in spread(request.topics):
        try:
            context.topics.authorize(Operation.ALTER, one.name)
            check_is_not_internal(one.name)
            if context.services.is_event_topic(one.name):
                raise event_topic_partitions(one.name)
            if not request.validate_only:
                quota.take(max(0, one.count - counts.get(one.name, one.count)))
            allowed.append(one)
        except KafkaError as error:
            refused.append(
                CreatePartitionsTopicResult(name=one.name, error_code=error.code, error_message=error.message)
            )
    response = CreatePartitionsResponse(results=[])
    if allowed:
        request.topics = allowed
        request.timeout_ms = wait_ms = min(max(request.timeout_ms, 0), WAIT_MS_MAX)
        response = await context.upstream.ask_controller(
            CREATE_PARTITIONS, context.api_version, request, wait_ms=wait_ms
        )
        wanted = {one.name: one.count for one in allowed}
        for changed in response.results:
            if changed.error_code == ErrorCode.NONE and not request.validate_only:
                context.audit.changed("topic.extended", TOPIC, changed.name, {"partitions": wanted.get(changed.name)})
                context.services.on_topic_change(changed.name)
    response.results += refused
    response.throttle_time_ms = max(response.throttle_time_ms, quota.throttle_ms)
    return response


async def _partition_counts(context: RequestContext, names: Iterable[str]) -> dict[str, int]:
    return {one.name: len(one.leaders) for one in await context.upstream.topics(names)}
