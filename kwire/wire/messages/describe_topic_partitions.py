"""DescribeTopicPartitions, key 75: partitions of topics, one page per request.

If a response is incomplete, the client sends the cursor of the response in the next request.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Int16, Int32, TopicName, Uuid


@struct()
class TopicRequest:
    name: TopicName = field("0+")


@struct()
class Cursor:
    topic_name: TopicName = field("0+")
    partition_index: Int32 = field("0+")


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: Array[TopicRequest] = field("0+")
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: Cursor | None = field("0+", default=None)


@struct()
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+", default=-1)
    replica_nodes: Array[Int32] = field("0+")
    isr_nodes: Array[Int32] = field("0+")
    eligible_leader_replicas: Array[Int32] | None = field("0+", default=None)
    last_known_elr: Array[Int32] | None = field("0+", default=None)
    offline_replicas: Array[Int32] = field("0+")


@struct()
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = field("0+")
    name: TopicName | None = field("0+")
    topic_id: Uuid = field("0+")
    is_internal: Bool = field("0+", default=False)
    partitions: Array[DescribeTopicPartitionsResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("0+", default=-2147483648)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: Array[DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: Cursor | None = field("0+", default=None)


DESCRIBE_TOPIC_PARTITIONS = Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
