"""DeleteTopics, key 20: delete topics.

Version 5 adds error messages. Version 6 adds topic ids.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, ErrorText, Int16, Int32, TopicName, Uuid


@struct()
class DeleteTopicState:
    name: TopicName | None = field("6+", default=None)
    topic_id: Uuid = field("6+", default=ZERO_UUID)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: Array[DeleteTopicState] = field("6+", default=list)
    topic_names: Array[TopicName] = field("0-5", default=list)
    timeout_ms: Int32 = field("0+")


@struct()
class DeletableTopicResult:
    name: TopicName | None = field("0+", nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("5+", default=None)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    responses: Array[DeletableTopicResult] = field("0+")


DELETE_TOPICS = Api(DeleteTopicsRequest, DeleteTopicsResponse)
