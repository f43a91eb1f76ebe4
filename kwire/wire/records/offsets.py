"""Committed offsets in `__consumer_offsets`, types 0 and 1: the offset of a group in a partition.

Old brokers wrote type 0, which has the same key as type 1, and values of version 0. Only version 1 of the value has an
expiry time. Version 3 adds the leader epoch. Version 4 is flexible and adds the topic id as a tagged field.
"""

from kwire.wire.schema import field, message
from kwire.wire.types import ZERO_UUID, Int32, Int64, String, Uuid


@message(versions="0", flexible="none")
class OffsetCommitKey:
    group: String = field("0")
    topic: String = field("0")
    partition: Int32 = field("0")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: Int64 = field("0+")
    leader_epoch: Int32 = field("3+", default=-1)
    metadata: String = field("0+")
    commit_timestamp: Int64 = field("0+")
    expire_timestamp: Int64 = field("1", default=-1)
    topic_id: Uuid = field("4+", tag=0, default=ZERO_UUID)
