"""DeleteShareGroupOffsets, key 92: delete the offsets of an empty share group in topics (KIP-932)."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int16, Int32, TopicName, Uuid


@struct()
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: TopicName = field("0+")


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: GroupId = field("0+")
    topics: Array[DeleteShareGroupOffsetsRequestTopic] = field("0+")


@struct()
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: TopicName = field("0+")
    topic_id: Uuid = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    responses: Array[DeleteShareGroupOffsetsResponseTopic] = field("0+")


DELETE_SHARE_GROUP_OFFSETS = Api(DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse)
