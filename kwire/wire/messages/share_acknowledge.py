"""ShareAcknowledge, key 79: accept, release, reject or renew acquired records (KIP-932).

Version 0 was early access and is no longer supported. In version 2 the locks of acquired records can be renewed
(KIP-1222).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, GroupId, Int8, Int16, Int32, Int64, String, Uuid


@struct()
class AcknowledgementBatch:
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    acknowledge_types: Array[Int8] = field("0+")


@struct()
class AcknowledgePartition:
    partition_index: Int32 = field("0+")
    acknowledgement_batches: Array[AcknowledgementBatch] = field("0+")


@struct()
class AcknowledgeTopic:
    topic_id: Uuid = field("0+")
    partitions: Array[AcknowledgePartition] = field("0+")


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: GroupId | None = field("0+", default=None)
    member_id: String | None = field("0+")
    share_session_epoch: Int32 = field("0+")
    is_renew_ack: Bool = field("2+", default=False)
    topics: Array[AcknowledgeTopic] = field("0+")


@struct()
class LeaderIdAndEpoch:
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


@struct()
class PartitionData:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    current_leader: LeaderIdAndEpoch = field("0+")


@struct()
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@struct()
class NodeEndpoint:
    node_id: Int32 = field("0+")
    host: String = field("0+")
    port: Int32 = field("0+")
    rack: String | None = field("0+", default=None)


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0)
    responses: Array[ShareAcknowledgeTopicResponse] = field("0+")
    node_endpoints: Array[NodeEndpoint] = field("0+")


SHARE_ACKNOWLEDGE = Api(ShareAcknowledgeRequest, ShareAcknowledgeResponse)
