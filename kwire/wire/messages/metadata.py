"""Metadata, key 3: brokers, topics, partitions and their leaders.

From version 1 on null topics request all topics. Version 4 adds whether topics may be created. Version 7 adds leader
epochs. Versions 8 to 10 have the authorized operations of the cluster. Version 10 adds topic ids. Version 12 adds
requests by topic id. Version 13 adds an error for the whole response, for clients that should rebootstrap.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, Bool, Int16, Int32, String, TopicName, Uuid


@struct()
class MetadataRequestTopic:
    topic_id: Uuid = field("10+", default=ZERO_UUID)
    name: TopicName | None = field("0+", nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: Array[MetadataRequestTopic] | None = field("0+", nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


@struct()
class MetadataResponseBroker:
    node_id: Int32 = field("0+")
    host: String = field("0+")
    port: Int32 = field("0+")
    rack: String | None = field("1+", default=None)


@struct()
class MetadataResponsePartition:
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("7+", default=-1)
    replica_nodes: Array[Int32] = field("0+")
    isr_nodes: Array[Int32] = field("0+")
    offline_replicas: Array[Int32] = field("5+", default=list)


@struct()
class MetadataResponseTopic:
    error_code: Int16 = field("0+")
    name: TopicName | None = field("0+", nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID)
    is_internal: Bool = field("1+", default=False)
    partitions: Array[MetadataResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = field("3+", default=0)
    brokers: Array[MetadataResponseBroker] = field("0+")
    cluster_id: String | None = field("2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: Array[MetadataResponseTopic] = field("0+")
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0)


METADATA = Api(MetadataRequest, MetadataResponse)
