"""OffsetFetch, key 9: the committed offsets of one or more groups.

From version 2 on null topics request all topics, and the response has an error for the whole group. Version 5 adds the
leader epoch. Version 7 adds require_stable. Version 8 adds several groups. Version 9 adds member epochs. Version 10 has
topic ids instead of names.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, Bool, GroupId, Int16, Int32, Int64, String, TopicName, Uuid


@struct()
class OffsetFetchRequestTopic:
    name: TopicName = field("0-7", default="")
    partition_indexes: Array[Int32] = field("0-7", default=list)


@struct()
class OffsetFetchRequestTopics:
    name: TopicName = field("8-9", default="")
    topic_id: Uuid = field("10+", default=ZERO_UUID)
    partition_indexes: Array[Int32] = field("8+", default=list)


@struct()
class OffsetFetchRequestGroup:
    group_id: GroupId = field("8+", default="")
    member_id: String | None = field("9+", default=None)
    member_epoch: Int32 = field("9+", default=-1)
    topics: Array[OffsetFetchRequestTopics] | None = field("8+", default=list)


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: GroupId = field("0-7", default="")
    topics: Array[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7", default=list)
    groups: Array[OffsetFetchRequestGroup] = field("8+", default=list)
    require_stable: Bool = field("7+", default=False)


@struct()
class OffsetFetchResponsePartition:
    partition_index: Int32 = field("0-7", default=0)
    committed_offset: Int64 = field("0-7", default=0)
    committed_leader_epoch: Int32 = field("5-7", default=-1)
    metadata: String | None = field("0-7", default="")
    error_code: Int16 = field("0-7", default=0)


@struct()
class OffsetFetchResponseTopic:
    name: TopicName = field("0-7", default="")
    partitions: Array[OffsetFetchResponsePartition] = field("0-7", default=list)


@struct()
class OffsetFetchResponsePartitions:
    partition_index: Int32 = field("8+", default=0)
    committed_offset: Int64 = field("8+", default=0)
    committed_leader_epoch: Int32 = field("8+", default=-1)
    metadata: String | None = field("8+", default="")
    error_code: Int16 = field("8+", default=0)


@struct()
class OffsetFetchResponseTopics:
    name: TopicName = field("8-9", default="")
    topic_id: Uuid = field("10+", default=ZERO_UUID)
    partitions: Array[OffsetFetchResponsePartitions] = field("8+", default=list)


@struct()
class OffsetFetchResponseGroup:
    group_id: GroupId = field("8+", default="")
    topics: Array[OffsetFetchResponseTopics] = field("8+", default=list)
    error_code: Int16 = field("8+", default=0)


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: Array[OffsetFetchResponseTopic] = field("0-7", default=list)
    error_code: Int16 = field("2-7", default=0)
    groups: Array[OffsetFetchResponseGroup] = field("8+", default=list)


OFFSET_FETCH = Api(OffsetFetchRequest, OffsetFetchResponse)
