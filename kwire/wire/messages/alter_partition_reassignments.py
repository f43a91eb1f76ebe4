"""AlterPartitionReassignments, key 45: change the replicas of partitions, or cancel such a change.

Version 1 adds whether the replication factor may change.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Int16, Int32, TopicName


@struct()
class ReassignablePartition:
    partition_index: Int32 = field("0+")
    replicas: Array[Int32] | None = field("0+", default=None)


@struct()
class ReassignableTopic:
    name: TopicName = field("0+")
    partitions: Array[ReassignablePartition] = field("0+")


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = field("0+", default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: Array[ReassignableTopic] = field("0+")


@struct()
class ReassignablePartitionResponse:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


@struct()
class ReassignableTopicResponse:
    name: TopicName = field("0+")
    partitions: Array[ReassignablePartitionResponse] = field("0+")


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    allow_replication_factor_change: Bool = field("1+", default=True)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    responses: Array[ReassignableTopicResponse] = field("0+")


ALTER_PARTITION_REASSIGNMENTS = Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
