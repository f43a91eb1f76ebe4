"""StreamsGroupHeartbeat, key 88: join, stay in and leave a streams group (KIP-1071).

A null field has the value of the previous heartbeat. In version 1 the server may request a description of the topology
(KIP-1331) and report missing client tags. In version 1 the acceptable lag is an int64 and has another position in the
response.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, GroupId, Int8, Int16, Int32, Int64, String, TopicName, UInt16


@struct()
class KeyValue:
    key: String = field("0+")
    value: String = field("0+")


@struct()
class TopicInfo:
    name: TopicName = field("0+")
    partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    topic_configs: Array[KeyValue] = field("0+")


@struct()
class CopartitionGroup:
    source_topics: Array[Int16] = field("0+")
    source_topic_regex: Array[Int16] = field("0+")
    repartition_source_topics: Array[Int16] = field("0+")


@struct()
class Subtopology:
    subtopology_id: String = field("0+")
    source_topics: Array[TopicName] = field("0+")
    source_topic_regex: Array[String] = field("0+")
    state_changelog_topics: Array[TopicInfo] = field("0+")
    repartition_sink_topics: Array[TopicName] = field("0+")
    repartition_source_topics: Array[TopicInfo] = field("0+")
    copartition_groups: Array[CopartitionGroup] = field("0+")


@struct()
class Topology:
    epoch: Int32 = field("0+")
    subtopologies: Array[Subtopology] = field("0+")


@struct()
class TaskIds:
    subtopology_id: String = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class Endpoint:
    host: String = field("0+")
    port: UInt16 = field("0+")


@struct()
class TaskOffset:
    subtopology_id: String = field("0+")
    partition: Int32 = field("0+")
    offset: Int64 = field("0+")


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: GroupId = field("0+")
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    endpoint_information_epoch: Int32 = field("0+")
    instance_id: String | None = field("0+", default=None)
    rack_id: String | None = field("0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology: Topology | None = field("0+", default=None)
    active_tasks: Array[TaskIds] | None = field("0+", default=None)
    standby_tasks: Array[TaskIds] | None = field("0+", default=None)
    warmup_tasks: Array[TaskIds] | None = field("0+", default=None)
    process_id: String | None = field("0+", default=None)
    user_endpoint: Endpoint | None = field("0+", default=None)
    client_tags: Array[KeyValue] | None = field("0+", default=None)
    task_offsets: Array[TaskOffset] | None = field("0+", default=None)
    task_end_offsets: Array[TaskOffset] | None = field("0+", default=None)
    shutdown_application: Bool = field("0+", default=False)


@struct()
class Status:
    status_code: Int8 = field("0+")
    status_detail: String = field("0+")


@struct()
class TopicPartition:
    topic: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class EndpointToPartitions:
    user_endpoint: Endpoint = field("0+")
    active_partitions: Array[TopicPartition] = field("0+")
    standby_partitions: Array[TopicPartition] = field("0+")


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    acceptable_recovery_lag_legacy: Int32 = field("0", default=0)
    task_offset_interval_ms: Int32 = field("0+")
    acceptable_recovery_lag: Int64 = field("1+", default=-1)
    status: Array[Status] | None = field("0+")
    active_tasks: Array[TaskIds] | None = field("0+", default=None)
    standby_tasks: Array[TaskIds] | None = field("0+", default=None)
    warmup_tasks: Array[TaskIds] | None = field("0+", default=None)
    topology_description_required: Bool = field("1+", default=False)
    endpoint_information_epoch: Int32 = field("0+")
    partitions_by_user_endpoint: Array[EndpointToPartitions] | None = field("0+", default=None)


STREAMS_GROUP_HEARTBEAT = Api(StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse)
