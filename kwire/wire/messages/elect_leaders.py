"""ElectLeaders, key 43: elect the preferred replica, or any live replica, as the leader of partitions.

Version 1 adds election types (KIP-460) and an error for the whole response. Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, Int8, Int16, Int32, TopicName


@struct()
class TopicPartitions:
    topic: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Int8 = field("1+", default=0)
    topic_partitions: Array[TopicPartitions] | None = field("0+")
    timeout_ms: Int32 = field("0+", default=60000)


@struct()
class PartitionResult:
    partition_id: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


@struct()
class ReplicaElectionResult:
    topic: TopicName = field("0+")
    partition_result: Array[PartitionResult] = field("0+")


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: Array[ReplicaElectionResult] = field("0+")


ELECT_LEADERS = Api(ElectLeadersRequest, ElectLeadersResponse)
