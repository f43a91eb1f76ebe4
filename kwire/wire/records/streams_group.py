"""Streams groups (KIP-1071) in `__consumer_offsets`, types 17 and 19 to 23. Type 18 is no longer used.

Record types: 17 is the group and its epoch. 19 is the metadata of a member. 20 is the epoch of the target assignment.
21 is the target tasks of a member. 22 is the current tasks of a member. 23 is the topology.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Int8, Int16, Int32, Int64, String, UInt16


@message(versions="0", flexible="none")
class StreamsGroupMetadataKey:
    group_id: String = field("0")


@struct()
class LastAssignmentConfig:
    key: String = field("0+")
    value: String = field("0+")


@message(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+")
    validated_topology_epoch: Int32 = field("0+", tag=0, default=-1)
    last_assignment_configs: Array[LastAssignmentConfig] | None = field("0+", tag=1, default=list)


@message(versions="0", flexible="none")
class StreamsGroupMemberMetadataKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class Endpoint:
    host: String = field("0+")
    port: UInt16 = field("0+")


@struct()
class KeyValue:
    key: String = field("0+")
    value: String = field("0+")


@message(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: String | None = field("0+")
    rack_id: String | None = field("0+")
    client_id: String = field("0+")
    client_host: String = field("0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology_epoch: Int32 = field("0+")
    process_id: String = field("0+")
    user_endpoint: Endpoint | None = field("0+", default=None)
    client_tags: Array[KeyValue] = field("0+")


@message(versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: String = field("0")


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, default=0)


@message(versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class TaskIds:
    subtopology_id: String = field("0+")
    partitions: Array[Int32] = field("0+")


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: Array[TaskIds] = field("0+")
    standby_tasks: Array[TaskIds] = field("0+")
    warmup_tasks: Array[TaskIds] = field("0+")


@message(versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: String = field("0")
    member_id: String = field("0")


@struct()
class AssignedTaskIds:
    subtopology_id: String = field("0+")
    partitions: Array[Int32] = field("0+")
    assignment_epochs: Array[Int32] | None = field("0+", tag=0, default=list)


@message(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    active_tasks: Array[AssignedTaskIds] = field("0+")
    standby_tasks: Array[AssignedTaskIds] = field("0+")
    warmup_tasks: Array[AssignedTaskIds] = field("0+")
    active_tasks_pending_revocation: Array[AssignedTaskIds] = field("0+")
    standby_tasks_pending_revocation: Array[AssignedTaskIds] = field("0+")
    warmup_tasks_pending_revocation: Array[AssignedTaskIds] = field("0+")


@message(versions="0", flexible="none")
class StreamsGroupTopologyKey:
    group_id: String = field("0")


@struct()
class TopicConfig:
    key: String = field("0+")
    value: String = field("0+")


@struct()
class TopicInfo:
    name: String = field("0+")
    partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    topic_configs: Array[TopicConfig] = field("0+")


@struct()
class CopartitionGroup:
    source_topics: Array[Int16] = field("0+")
    source_topic_regex: Array[Int16] = field("0+")
    repartition_source_topics: Array[Int16] = field("0+")


@struct()
class Subtopology:
    subtopology_id: String = field("0+")
    source_topics: Array[String] = field("0+")
    source_topic_regex: Array[String] = field("0+")
    state_changelog_topics: Array[TopicInfo] = field("0+")
    repartition_sink_topics: Array[String] = field("0+")
    repartition_source_topics: Array[TopicInfo] = field("0+")
    copartition_groups: Array[CopartitionGroup] = field("0+")


@message(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: Int32 = field("0+")
    subtopologies: Array[Subtopology] = field("0+")
