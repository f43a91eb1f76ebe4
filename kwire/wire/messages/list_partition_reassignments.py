"""ListPartitionReassignments, key 46: the reassignments in progress."""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int16, Int32, TopicName


@struct()
class ListPartitionReassignmentsTopics:
    name: TopicName = field("0+")
    partition_indexes: Array[Int32] = field("0+")


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = field("0+", default=60000)
    topics: Array[ListPartitionReassignmentsTopics] | None = field("0+", default=None)


@struct()
class OngoingPartitionReassignment:
    partition_index: Int32 = field("0+")
    replicas: Array[Int32] = field("0+")
    adding_replicas: Array[Int32] = field("0+")
    removing_replicas: Array[Int32] = field("0+")


@struct()
class OngoingTopicReassignment:
    name: TopicName = field("0+")
    partitions: Array[OngoingPartitionReassignment] = field("0+")


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    topics: Array[OngoingTopicReassignment] = field("0+")


LIST_PARTITION_REASSIGNMENTS = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
