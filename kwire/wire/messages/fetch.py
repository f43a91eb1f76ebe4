"""Fetch, key 1: read record batches, with long polling.

Version 4 adds the isolation level. Version 5 adds the log start offset. Version 7 adds fetch sessions. Version 9 adds
leader epochs. Version 10 allows zstd. Version 11 adds the rack. Version 12 adds diverging epochs. Version 13 has topic
ids instead of names. Version 15 adds the replica state. Version 16 adds node endpoints. Versions 17 and 18 add fields
for followers.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, Int8, Int16, Int32, Int64, Records, String, TopicName, Uuid


@struct()
class ReplicaState:
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


@struct()
class FetchPartition:
    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("9+", default=-1)
    fetch_offset: Int64 = field("0+")
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    partition_max_bytes: Int32 = field("0+")
    replica_directory_id: Uuid = field("17+", tag=0, default=ZERO_UUID)
    high_watermark: Int64 = field("18+", tag=1, default=9223372036854775807)


@struct()
class FetchTopic:
    topic: TopicName = field("0-12", default="")
    topic_id: Uuid = field("13+", default=ZERO_UUID)
    partitions: Array[FetchPartition] = field("0+")


@struct()
class ForgottenTopic:
    topic: TopicName = field("7-12", default="")
    topic_id: Uuid = field("13+", default=ZERO_UUID)
    partitions: Array[Int32] = field("7+", default=list)


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: String | None = field("12+", tag=0, default=None)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", tag=1, default=ReplicaState)
    max_wait_ms: Int32 = field("0+")
    min_bytes: Int32 = field("0+")
    max_bytes: Int32 = field("3+", default=2147483647)
    isolation_level: Int8 = field("4+", default=0)
    session_id: Int32 = field("7+", default=0)
    session_epoch: Int32 = field("7+", default=-1)
    topics: Array[FetchTopic] = field("0+")
    forgotten_topics_data: Array[ForgottenTopic] = field("7+", default=list)
    rack_id: String = field("11+", default="")


@struct()
class EpochEndOffset:
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


@struct()
class LeaderIdAndEpoch:
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


@struct()
class SnapshotId:
    end_offset: Int64 = field("0+", default=-1)
    epoch: Int32 = field("0+", default=-1)


@struct()
class AbortedTransaction:
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


@struct()
class PartitionData:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    high_watermark: Int64 = field("0+")
    last_stable_offset: Int64 = field("4+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset = field("12+", tag=0, default=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = field("12+", tag=1, default=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = field("12+", tag=2, default=SnapshotId)
    aborted_transactions: Array[AbortedTransaction] | None = field("4+")
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None = field("0+")


@struct()
class FetchableTopicResponse:
    topic: TopicName = field("0-12", default="")
    topic_id: Uuid = field("13+", default=ZERO_UUID)
    partitions: Array[PartitionData] = field("0+")


@struct()
class NodeEndpoint:
    node_id: Int32 = field("16+", default=0)
    host: String = field("16+", default="")
    port: Int32 = field("16+", default=0)
    rack: String | None = field("16+", default=None)


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("7+", default=0)
    session_id: Int32 = field("7+", default=0)
    responses: Array[FetchableTopicResponse] = field("0+")
    node_endpoints: Array[NodeEndpoint] = field("16+", tag=0, default=list)


FETCH = Api(FetchRequest, FetchResponse)
