"""DeleteTopics 1-6: gone from the catalogue durably, then from the disk.

Version 6 may name topics by id. `delete.topic.enable=false` refuses all, with a code of its own since version 3;
internal topics cannot be deleted. A name or an id that comes twice in one request is refused, and answered once.
"""

from collections import Counter

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


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter((one.name, one.topic_id) for one in asked)
    responses = []
    for (name, topic_id), count in times.items():
        one = DeleteTopicState(name=name, topic_id=topic_id)
        result = DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=0)
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is in the request more than once.")
            topic = _find(context, one)
            result.name, result.topic_id = topic.name, topic.topic_id
            await context.services.topics.delete(topic)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        responses.append(result)
    return DeleteTopicsResponse(responses=responses)


def _find(context: Context, asked: DeleteTopicState) -> Topic:
    if not context.services.config.topics.is_delete_allowed:
        knows = context.api_version >= FIRST_VERSION_OF_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if knows else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false.")
    if (asked.name is None) == (asked.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id.")
    topics = context.services.topics
    topic = topics.get_by_id(asked.topic_id) if asked.name is None else topics.get(asked.name)
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if asked.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(unknown, "This server does not host this topic.")
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The internal topic {topic.name} cannot be deleted.")
    return topic
