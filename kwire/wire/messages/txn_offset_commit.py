"""TxnOffsetCommit, key 28: commit a group's offsets as part of a transaction.

Version 2 adds the leader epoch. Version 3 is flexible and adds the member id, the generation and static members.
Version 4 adds TRANSACTION_ABORTABLE. From version 5 on the request adds the group to the transaction (KIP-890). Version
6 has topic ids instead of names, and adds member epochs (KIP-1319).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import ZERO_UUID, Array, GroupId, Int16, Int32, Int64, String, TopicName, TransactionalId, Uuid


@struct()
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("2+", default=-1)
    committed_metadata: String | None = field("0+")


@struct()
class TxnOffsetCommitRequestTopic:
    name: TopicName = field("0-5", default="")
    topic_id: Uuid = field("6+", default=ZERO_UUID)
    partitions: Array[TxnOffsetCommitRequestPartition] = field("0+")


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: TransactionalId = field("0+")
    group_id: GroupId = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: Array[TxnOffsetCommitRequestTopic] = field("0+")


@struct()
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


@struct()
class TxnOffsetCommitResponseTopic:
    name: TopicName = field("0-5", default="")
    topic_id: Uuid = field("6+", default=ZERO_UUID)
    partitions: Array[TxnOffsetCommitResponsePartition] = field("0+")


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: Array[TxnOffsetCommitResponseTopic] = field("0+")


TXN_OFFSET_COMMIT = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse)
