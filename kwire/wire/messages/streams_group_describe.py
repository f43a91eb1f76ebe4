"""StreamsGroupDescribe, key 89: state, topology, members and tasks of streams groups (KIP-1071).

Version 1 adds the description of the topology, on request (KIP-1331), and the assignor (KIP-1357).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, GroupId, Int8, Int16, Int32, Int64, String, TopicName, UInt16


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: Array[GroupId] = field("0+")
    include_authorized_operations: Bool = field("0+")
    include_topology_description: Bool = field("1+", default=False)


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
class Subtopology:
    subtopology_id: String = field("0+")
    source_topics: Array[TopicName] = field("0+")
    repartition_sink_topics: Array[TopicName] = field("0+")
    state_changelog_topics: Array[TopicInfo] = field("0+")
    repartition_source_topics: Array[TopicInfo] = field("0+")


@struct()
class Topology:
    epoch: Int32 = field("0+")
    subtopologies: Array[Subtopology] | None = field("0+", default=None)


@struct()
class Endpoint:
    host: String = field("0+")
    port: UInt16 = field("0+")


@struct()
class TaskOffset:
    subtopology_id: String = field("0+")
    partition: Int32 = field("0+")
    offset: Int64 = field("0+")


@struct()
class TaskIds:
    subtopology_id: String = field("0+")
    partitions: Array[Int32] = field("0+")


@struct()
class Assignment:
    active_tasks: Array[TaskIds] = field("0+")
    standby_tasks: Array[TaskIds] = field("0+")
    warmup_tasks: Array[TaskIds] = field("0+")


@struct()
class Member:
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: String | None = field("0+", default=None)
    rack_id: String | None = field("0+", default=None)
    client_id: String = field("0+")
    client_host: String = field("0+")
    topology_epoch: Int32 = field("0+")
    process_id: String = field("0+")
    user_endpoint: Endpoint | None = field("0+", default=None)
    client_tags: Array[KeyValue] = field("0+")
    task_offsets: Array[TaskOffset] = field("0+")
    task_end_offsets: Array[TaskOffset] = field("0+")
    assignment: Assignment = field("0+")
    target_assignment: Assignment = field("0+")
    is_classic: Bool = field("0+")


@struct()
class TopologyDescriptionNode:
    name: String = field("1+", default="")
    node_type: Int8 = field("1+", default=0)
    source_topics: Array[TopicName] = field("1+", default=list)
    sink_topic: TopicName | None = field("1+", default=None)
    stores: Array[String] = field("1+", default=list)
    successors: Array[String] = field("1+", default=list)


@struct()
class TopologyDescriptionSubtopology:
    subtopology_id: String = field("1+", default="")
    nodes: Array[TopologyDescriptionNode] = field("1+", default=list)


@struct()
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = field("1+", default=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field("1+", default=TopologyDescriptionNode)


@struct()
class TopologyDescription:
    subtopologies: Array[TopologyDescriptionSubtopology] = field("1+", default=list)
    global_stores: Array[TopologyDescriptionGlobalStore] = field("1+", default=list)


@struct()
class DescribedGroup:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    group_id: GroupId = field("0+")
    group_state: String = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    topology: Topology | None = field("0+", default=None)
    members: Array[Member] = field("0+")
    authorized_operations: Int32 = field("0+", default=-2147483648)
    topology_description: TopologyDescription | None = field("1+", default=None)
    topology_description_status: Int8 = field("1+", default=0)
    assignor_name: String | None = field("1+", default=None)


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: Array[DescribedGroup] = field("0+")


STREAMS_GROUP_DESCRIBE = Api(StreamsGroupDescribeRequest, StreamsGroupDescribeResponse)
