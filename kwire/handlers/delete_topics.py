"""DeleteTopics 1-6: gone from the catalogue durably, then from the disk.

- A name or an id that comes twice in one request is refused, and answered once. A name and an id that mean the same
  topic are one refusal, with both. Every other topic is judged on its own.
- Internal topics cannot be deleted. `delete.topic.enable=false` refuses all.
- Version 2 is as 1. Version 3 knows TOPIC_DELETION_DISABLED, earlier ones get INVALID_REQUEST. Version 4 is flexible,
  5 has error messages. Version 6 names topics by name or by id; by both, or by neither, is INVALID_REQUEST.
"""

from collections import Counter
from collections.abc import Iterator

from kwire.broker.chunking import next_turn, spread
from kwire.broker.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kwire.wire.types import ZERO_UUID

FIRST_VERSION_OF_DISABLED = 3
# To look one up takes some microseconds; after this many the loop gets its turn.
TOPICS_PER_TURN = 500


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) async for name in spread(request.topic_names)]
    times: Counter[tuple[str | None, bytes]] = Counter()
    async for one in spread(asked):
        times[one.name, one.topic_id] += 1
    topics = context.services.topics
    same_ids = {
        facts.topic_id
        async for name, topic_id in spread(times)
        if name is not None
        and topic_id == ZERO_UUID
        and times[name, topic_id] == 1
        and (facts := topics.catalogue.find(name)) is not None
        and (None, facts.topic_id) in times
    }
    responses = []
    for number, one in enumerate(_once(asked), start=1):
        result = DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=0)
        try:
            _check(context, one, times)
            topic = _find(context, one)
            if topic.topic_id in same_ids and one.name is None:
                continue  # refused under its name
            result.name, result.topic_id = topic.name, topic.topic_id
            if topic.topic_id in same_ids:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request by its id as well.")
            await topics.delete(topic)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        responses.append(result)
        if number % TOPICS_PER_TURN == 0:
            await next_turn()
    return DeleteTopicsResponse(responses=responses)


def _once(asked: list[DeleteTopicState]) -> Iterator[DeleteTopicState]:
    """Each name and each id once; what names no topic is refused as often as it comes."""
    seen = set()
    for one in asked:
        key = (one.name, one.topic_id)
        if key not in seen or not _is_either(one):
            yield one
        seen.add(key)


def _is_either(one: DeleteTopicState) -> bool:
    return (one.name is None) != (one.topic_id == ZERO_UUID)


def _check(context: Context, one: DeleteTopicState, times: Counter[tuple[str | None, bytes]]) -> None:
    if not context.services.config.topics.is_delete_allowed:
        knows = context.api_version >= FIRST_VERSION_OF_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if knows else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false.")
    if not _is_either(one):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id.")
    if times[one.name, one.topic_id] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request more than once.")


def _find(context: Context, asked: DeleteTopicState) -> Topic:
    topics = context.services.topics
    topic = topics.get_by_id(asked.topic_id) if asked.name is None else topics.get(asked.name)
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if asked.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(unknown, "This server does not host this topic.")
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The internal topic {topic.name} cannot be deleted.")
    return topic
