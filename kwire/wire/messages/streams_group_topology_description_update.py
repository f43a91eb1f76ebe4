"""StreamsGroupTopologyDescriptionUpdate, key 93: a member sends the description of its topology (KIP-1331).

The server requests the description in a response of StreamsGroupHeartbeat.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, ErrorText, GroupId, Int8, Int16, Int32, String, TopicName


@struct()
class TopologyDescriptionNode:
    name: String = field("0+")
    node_type: Int8 = field("0+")
    source_topics: Array[TopicName] = field("0+")
    sink_topic: TopicName | None = field("0+", default=None)
    stores: Array[String] = field("0+")
    successors: Array[String] = field("0+")


@struct()
class TopologyDescriptionSubtopology:
    subtopology_id: String = field("0+")
    nodes: Array[TopologyDescriptionNode] = field("0+")


@struct()
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = field("0+")
    processor: TopologyDescriptionNode = field("0+")


@struct()
class TopologyDescription:
    subtopologies: Array[TopologyDescriptionSubtopology] = field("0+")
    global_stores: Array[TopologyDescriptionGlobalStore] = field("0+")


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: GroupId = field("0+")
    member_id: String = field("0+")
    topology_epoch: Int32 = field("0+")
    topology_description: TopologyDescription = field("0+")


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)


STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = Api(
    StreamsGroupTopologyDescriptionUpdateRequest, StreamsGroupTopologyDescriptionUpdateResponse
)
