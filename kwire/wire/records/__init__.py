"""The records of Kafka's internal topics, one file per family: the same language as `messages/`, another place.

They are written to logs and never asked for, so they have no API key and no handler. They stand here, below the
coordinators that write them, because tools that read a log need them too. The formats are those of Kafka 4.3, so that
Kafka's tools read our topics and we read Kafka's.

A key is a 16-bit record type and a body, always in version 0; a value is a 16-bit version and a body; a null value is a
tombstone. `RECORD_TYPES` says what each type of each topic holds.
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
    """The classes of a key and of its value."""

    key: type[Any]
    value: type[Any]


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
