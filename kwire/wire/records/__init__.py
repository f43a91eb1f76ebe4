"""The declarations of the records of Kafka's internal topics, one module per group type or topic.

The formats are those of Kafka 4.3. A key consists of a 16-bit record type and a body of version 0. A value consists of
a 16-bit version and a body.
"""

from typing import Any, NamedTuple

from kwire.wire.records.classic_group import GroupMetadataKey, GroupMetadataValue
from kwire.wire.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kwire.wire.records.offsets import OffsetCommitKey, OffsetCommitValue
from kwire.wire.records.share_group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from kwire.wire.records.share_state import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from kwire.wire.records.streams_group import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from kwire.wire.records.transaction_log import TransactionLogKey, TransactionLogValue


class RecordType(NamedTuple):
    """The classes of a record's key and value."""

    key: type[Any]
    value: type[Any]


# The record types of each internal topic, by the number in the key. A null value is a tombstone. The declarations are
# in this package, not in that of the coordinators, because tools that read a log use them too.
RECORD_TYPES: dict[str, dict[int, RecordType]] = {
    "__consumer_offsets": {
        0: RecordType(OffsetCommitKey, OffsetCommitValue),
        1: RecordType(OffsetCommitKey, OffsetCommitValue),
        2: RecordType(GroupMetadataKey, GroupMetadataValue),
        3: RecordType(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: RecordType(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: RecordType(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: RecordType(ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: RecordType(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: RecordType(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        10: RecordType(ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: RecordType(ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: RecordType(ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: RecordType(ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: RecordType(ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: RecordType(ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        16: RecordType(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        17: RecordType(StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        19: RecordType(StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        20: RecordType(StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        21: RecordType(StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        22: RecordType(StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        23: RecordType(StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    },
    "__transaction_state": {
        0: RecordType(TransactionLogKey, TransactionLogValue),
    },
    "__share_group_state": {
        0: RecordType(ShareSnapshotKey, ShareSnapshotValue),
        1: RecordType(ShareUpdateKey, ShareUpdateValue),
    },
}
