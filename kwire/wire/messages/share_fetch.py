"""ShareFetch, key 78: acquire records as a member of a share group, and acknowledge earlier records (KIP-932).

Version 0 was early access and is no longer supported. Version 2 adds how strictly the record limit is applied
(KIP-1206). In version 2 the locks of acquired records can also be renewed (KIP-1222).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, GroupId, Int8, Int16, Int32, Int64, Records, String, Uuid


@struct()
class AcknowledgementBatch:
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    acknowledge_types: Array[Int8] = field("0+")


@struct()
class FetchPartition:
    partition_index: Int32 = field("0+")
    acknowledgement_batches: Array[AcknowledgementBatch] = field("0+")


@struct()
class FetchTopic:
    topic_id: Uuid = field("0+")
    partitions: Array[FetchPartition] = field("0+")


@struct()
class ForgottenTopic:
    topic_id: Uuid = field("0+")
    partitions: Array[Int32] = field("0+")


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: GroupId | None = field("0+", default=None)
    member_id: String | None = field("0+")
    share_session_epoch: Int32 = field("0+")
    max_wait_ms: Int32 = field("0+")
    min_bytes: Int32 = field("0+")
    max_bytes: Int32 = field("0+", default=2147483647)
    max_records: Int32 = field("1+")
    batch_size: Int32 = field("1+")
    share_acquire_mode: Int8 = field("2+", default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: Array[FetchTopic] = field("0+")
    forgotten_topics_data: Array[ForgottenTopic] = field("0+")


@struct()
class LeaderIdAndEpoch:
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


@struct()
class AcquiredRecords:
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_count: Int16 = field("0+")


@struct()
class PartitionData:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    acknowledge_error_code: Int16 = field("0+")
    acknowledge_error_message: ErrorText | None = field("0+", default=None)
    current_leader: LeaderIdAndEpoch = field("0+")
    records: Records = field("0+")
    acquired_records: Array[AcquiredRecords] = field("0+")


@struct()
class ShareFetchableTopicResponse:
    topic_id: Uuid = field("0+")
    partitions: Array[PartitionData] = field("0+")


@struct()
class NodeEndpoint:
    node_id: Int32 = field("0+")
    host: String = field("0+")
    port: Int32 = field("0+")
    rack: String | None = field("0+", default=None)


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("1+")
    responses: Array[ShareFetchableTopicResponse] = field("0+")
    node_endpoints: Array[NodeEndpoint] = field("0+")


SHARE_FETCH = Api(ShareFetchRequest, ShareFetchResponse)
