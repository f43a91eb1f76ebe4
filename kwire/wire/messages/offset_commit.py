"""OffsetCommit, key 8: commit the offsets of a group.

Version 5 removes the retention time. Version 6 adds the leader epoch. Version 7 adds static members. Version 9 adds
consumer-protocol groups. Version 10 has topic ids instead of names.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, GroupId, Int16, Int32, Int64, String, TopicName, Uuid


@struct()
class OffsetCommitRequestPartition:
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("6+", default=-1)
    committed_metadata: String | None = field("0+")


@struct()
class OffsetCommitRequestTopic:
    name: TopicName = field("0-9", default="")
    topic_id: Uuid = field("10+", default=ZERO_UUID)
    partitions: Array[OffsetCommitRequestPartition] = field("0+")


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: GroupId = field("0+")
    generation_id_or_member_epoch: Int32 = field("1+", default=-1)
    member_id: String = field("1+")
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: Array[OffsetCommitRequestTopic] = field("0+")


@struct()
class OffsetCommitResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


@struct()
class OffsetCommitResponseTopic:
    name: TopicName = field("0-9", default="")
    topic_id: Uuid = field("10+", default=ZERO_UUID)
    partitions: Array[OffsetCommitResponsePartition] = field("0+")


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: Array[OffsetCommitResponseTopic] = field("0+")


OFFSET_COMMIT = Api(OffsetCommitRequest, OffsetCommitResponse)
