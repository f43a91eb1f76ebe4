"""The state of share groups in `__share_group_state`: which records of a partition are acquired or acknowledged.

Record types: 0 is a snapshot of one partition. 1 is the changes since the snapshot.
"""

from kwire.wire.schema import field, message, struct
from kwire.wire.types import Array, Int8, Int16, Int32, Int64, String, Uuid


@message(versions="0", flexible="none")
class ShareSnapshotKey:
    group_id: String = field("0")
    topic_id: Uuid = field("0")
    partition: Int32 = field("0")


@struct()
class StateBatch:
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_state: Int8 = field("0+")
    delivery_count: Int16 = field("0+")


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("0+", tag=0, default=-1)
    create_timestamp: Int64 = field("0+")
    write_timestamp: Int64 = field("0+")
    state_batches: Array[StateBatch] = field("0+")


@message(versions="0", flexible="none")
class ShareUpdateKey:
    group_id: String = field("0")
    topic_id: Uuid = field("0")
    partition: Int32 = field("0")


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("0+", tag=0, default=-1)
    state_batches: Array[StateBatch] = field("0+")
