"""DeleteTopics 1-6: delete topics durably from the catalogue, then delete their files.

- A name or an id that is repeated in one request is refused and has one result. If a request has the name of a topic
  and also its id, the topic is refused and has one result with name and id. Every other topic has its own result.
- A topic needs DELETE on the cluster or on the topic. Otherwise it is TOPIC_AUTHORIZATION_FAILED. If the client may not
  describe the topic, the result reveals neither whether a name exists nor which name an id has.
- Internal topics cannot be deleted. The audit topic is TOPIC_AUTHORIZATION_FAILED for every client. With
  `delete.topic.enable=false` no topic can be deleted.
- Version 2 is the same as version 1. Version 3 adds TOPIC_DELETION_DISABLED, which is INVALID_REQUEST in earlier
  versions. Version 4 is flexible. Version 5 adds error messages. From version 5 on, a topic above the client's quota
  (`controller_mutation_rate`) is THROTTLING_QUOTA_EXCEEDED; in older versions the client is throttled afterwards.
  Version 6 names a topic either by name or by id; an entry with both or neither is INVALID_REQUEST.
"""

from collections import Counter
from collections.abc import Iterator

from kwire.access.acl import Operation
from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.topics import Topic, protected_topic
from kwire.concurrency.chunking import spread, yield_to_loop
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kwire.wire.types import ZERO_UUID

FIRST_VERSION_OF_DISABLED = 3
FIRST_STRICT_VERSION = 5
# Topics that are looked up between two yields to the event loop. A lookup takes some microseconds.
TOPICS_PER_CHUNK = 500


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) async for name in spread(request.topic_names)]
    times: Counter[tuple[str | None, bytes]] = Counter()
    async for one in spread(asked):
        times[one.name, one.topic_id] += 1
    same_ids = {
        facts.topic_id
        async for name, topic_id in spread(times)
        if name is not None
        and topic_id == ZERO_UUID
        and times[name, topic_id] == 1
        and (facts := _deletable(context, name)) is not None
        and (None, facts.topic_id) in times
    }
    responses = []
    quota = context.mutation_quota(FIRST_STRICT_VERSION)
    for number, one in enumerate(_without_repeats(asked), start=1):
        result = DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=0)
        try:
            _check(context, one, times)
            topic = _find(context, one, result)
            if topic.topic_id in same_ids and one.name is None:
                continue  # the entry with the name has the result
            result.name, result.topic_id = topic.name, topic.topic_id
            if topic.topic_id in same_ids:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request by its id as well.")
            quota.take(len(topic.partitions))
            await context.services.topics.delete(topic)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        responses.append(result)
        if number % TOPICS_PER_CHUNK == 0:
            await yield_to_loop()
    return DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms, responses=responses)


def _without_repeats(asked: list[DeleteTopicState]) -> Iterator[DeleteTopicState]:
    """Yield each name and each id once. Invalid entries (both name and id, or neither) are all yielded."""
    seen = set()
    for one in asked:
        key = (one.name, one.topic_id)
        if key not in seen or not _is_valid(one):
            yield one
        seen.add(key)


def _is_valid(one: DeleteTopicState) -> bool:
    return (one.name is None) != (one.topic_id == ZERO_UUID)


def _check(context: Context, one: DeleteTopicState, times: Counter[tuple[str | None, bytes]]) -> None:
    if not context.services.config.topics.is_delete_allowed:
        knows = context.api_version >= FIRST_VERSION_OF_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if knows else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false.")
    if not _is_valid(one):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic must have either a name or an id, not both.")
    if times[one.name, one.topic_id] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request more than once.")


def _deletable(context: Context, name: str) -> TopicFacts | None:
    """Return the catalogue's entry of a topic, or None if it does not exist or the client may not delete it."""
    if context.cluster.allows(Operation.DELETE):
        return context.cluster.topics(Operation.DELETE).catalogue.find(name)
    topics = context.topics
    is_allowed = topics.allows(Operation.DESCRIBE, name) and topics.allows(Operation.DELETE, name)
    return topics.find(Operation.DELETE, name) if is_allowed else None


def _find(context: Context, asked: DeleteTopicState, result: DeletableTopicResult) -> Topic:
    """Return the topic if the client may delete it. Otherwise raise KafkaError, and set a name that may be revealed."""
    topics = context.topics
    if context.cluster.allows(Operation.DELETE):
        everything = context.cluster.topics(Operation.DELETE)
        topic = everything.get_by_id(asked.topic_id) if asked.name is None else everything.get(asked.name)
    elif asked.name is None:
        name = topics.name_of(asked.topic_id)
        if name is not None and topics.allows(Operation.DESCRIBE, name):
            result.name = name
        topic = topics.get_by_id(Operation.DELETE, asked.topic_id)
    else:
        topic = topics.get(Operation.DESCRIBE, asked.name)
        if topic is not None:
            topics.authorize(Operation.DELETE, asked.name)
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if asked.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(unknown, "This server does not host this topic.")
    if topic.is_protected:
        raise protected_topic(topic.name)
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The internal topic {topic.name} cannot be deleted.")
    return topic
