"""DescribeQuorum, key 55: leader, voters and observers of the metadata log.

Version 1 adds the times of a replica's last fetch and last catch-up (KIP-836). Version 2 adds error messages, replica
directories, and the nodes with their listeners (KIP-853).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, ErrorText, Int16, Int32, Int64, String, TopicName, UInt16, Uuid


@struct()
class PartitionData:
    partition_index: Int32 = field("0+")


@struct()
class TopicData:
    topic_name: TopicName = field("0+")
    partitions: Array[PartitionData] = field("0+")


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: Array[TopicData] = field("0+")


@struct()
class ReplicaState:
    replica_id: Int32 = field("0+")
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: Int64 = field("0+")
    last_fetch_timestamp: Int64 = field("1+", default=-1)
    last_caught_up_timestamp: Int64 = field("1+", default=-1)


@struct()
class QuorumPartitionData:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("2+", default="")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    high_watermark: Int64 = field("0+")
    current_voters: Array[ReplicaState] = field("0+")
    observers: Array[ReplicaState] = field("0+")


@struct()
class QuorumTopicData:
    topic_name: TopicName = field("0+")
    partitions: Array[QuorumPartitionData] = field("0+")


@struct()
class Listener:
    name: String = field("2+", default="")
    host: String = field("2+", default="")
    port: UInt16 = field("2+", default=0)


@struct()
class Node:
    node_id: Int32 = field("2+", default=0)
    listeners: Array[Listener] = field("2+", default=list)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("2+", default="")
    topics: Array[QuorumTopicData] = field("0+")
    nodes: Array[Node] = field("2+", default=list)


DESCRIBE_QUORUM = Api(DescribeQuorumRequest, DescribeQuorumResponse)
