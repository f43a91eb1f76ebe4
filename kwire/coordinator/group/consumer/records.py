"""Encodes and decodes the records of consumer groups: types 3 to 8 and 16 of `__consumer_offsets`.

`kwire.wire.records.consumer_group` has the formats. `ConsumerGroup.apply` applies the records.
"""

import struct
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from kwire.coordinator.group.consumer.members import CurrentAssignment, MemberState, Partitions, Subscription, Target
from kwire.coordinator.log_records import KeyValue
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.records import consumer_group as formats

GROUP_EPOCH = 3
PARTITION_METADATA = 4
MEMBER_SUBSCRIPTION = 5
TARGET_EPOCH = 6
MEMBER_TARGET = 7
MEMBER_ASSIGNMENT = 8
REGULAR_EXPRESSION = 16

_KEYS: dict[int, type[Any]] = {
    GROUP_EPOCH: formats.ConsumerGroupMetadataKey,
    PARTITION_METADATA: formats.ConsumerGroupPartitionMetadataKey,
    MEMBER_SUBSCRIPTION: formats.ConsumerGroupMemberMetadataKey,
    TARGET_EPOCH: formats.ConsumerGroupTargetAssignmentMetadataKey,
    MEMBER_TARGET: formats.ConsumerGroupTargetAssignmentMemberKey,
    MEMBER_ASSIGNMENT: formats.ConsumerGroupCurrentMemberAssignmentKey,
    REGULAR_EXPRESSION: formats.ConsumerGroupRegularExpressionKey,
}
_VALUES: dict[int, type[Any]] = {
    GROUP_EPOCH: formats.ConsumerGroupMetadataValue,
    PARTITION_METADATA: formats.ConsumerGroupPartitionMetadataValue,
    MEMBER_SUBSCRIPTION: formats.ConsumerGroupMemberMetadataValue,
    TARGET_EPOCH: formats.ConsumerGroupTargetAssignmentMetadataValue,
    MEMBER_TARGET: formats.ConsumerGroupTargetAssignmentMemberValue,
    MEMBER_ASSIGNMENT: formats.ConsumerGroupCurrentMemberAssignmentValue,
    REGULAR_EXPRESSION: formats.ConsumerGroupRegularExpressionValue,
}
_NAMES = {
    GROUP_EPOCH: "consumer-group",
    PARTITION_METADATA: "consumer-partitions",
    MEMBER_SUBSCRIPTION: "consumer-member",
    TARGET_EPOCH: "consumer-target",
    MEMBER_TARGET: "consumer-member-target",
    MEMBER_ASSIGNMENT: "consumer-member-assignment",
    REGULAR_EXPRESSION: "consumer-regex",
}
VALUE_VERSION = 0
# The epoch for partitions in records of older Kafka versions, which did not store the epoch of the assignment.
UNKNOWN_ASSIGNMENT_EPOCH = 0

_PREFIX = struct.Struct(">h")


class ConsumerGroupRecord(Struct, frozen=True):
    """A decoded record. `subject` is the member id or the regular expression; empty in records of a whole group."""

    kind: int
    group_id: str
    subject: str
    value: Any

    @property
    def kind_name(self) -> str:
        return _NAMES[self.kind]


def decode_consumer_record(kind: int, key: memoryview, value: bytes | None) -> ConsumerGroupRecord | None:
    """Decode a record. Returns None if its type does not belong to consumer groups. Raises WireError."""
    if kind not in _KEYS:
        return None
    decoded = decode_message(_KEYS[kind], 0, key)
    subject = ""
    if kind == REGULAR_EXPRESSION:
        subject = decoded.regular_expression
    elif kind in (MEMBER_SUBSCRIPTION, MEMBER_TARGET, MEMBER_ASSIGNMENT):
        subject = decoded.member_id
    body = None
    if value is not None:
        version = int.from_bytes(value[: _PREFIX.size], "big", signed=True)
        body = decode_message(_VALUES[kind], version, memoryview(value)[_PREFIX.size :])
    return ConsumerGroupRecord(kind, decoded.group_id, subject, body)


def _record(kind: int, key: Any, value: Any) -> KeyValue:
    head = _PREFIX.pack(kind) + encode_message(key, 0)
    return head, None if value is None else _PREFIX.pack(VALUE_VERSION) + encode_message(value, VALUE_VERSION)


# Encoding


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    value = formats.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(GROUP_EPOCH, formats.ConsumerGroupMetadataKey(group_id=group_id), value)


def subscription_record(group_id: str, member_id: str, subscription: Subscription) -> KeyValue:
    value = formats.ConsumerGroupMemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.server_assignor,
        classic_member_metadata=subscription.classic,
    )
    return _record(MEMBER_SUBSCRIPTION, _member_key(MEMBER_SUBSCRIPTION, group_id, member_id), value)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> KeyValue:
    value = formats.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return _record(TARGET_EPOCH, formats.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> KeyValue:
    value = formats.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            formats.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(target.items())
        ]
    )
    return _record(MEMBER_TARGET, _member_key(MEMBER_TARGET, group_id, member_id), value)


def assignment_record(group_id: str, member_id: str, current: CurrentAssignment) -> KeyValue:
    value = formats.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned_partitions=list(_topic_partitions(current.assigned)),
        partitions_pending_revocation=list(_topic_partitions(current.revoking)),
    )
    return _record(MEMBER_ASSIGNMENT, _member_key(MEMBER_ASSIGNMENT, group_id, member_id), value)


def regex_record(group_id: str, regex: str, topics: Iterable[str], revision: int, wall_ms: int) -> KeyValue:
    value = formats.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=revision, timestamp=wall_ms)
    key = formats.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return _record(REGULAR_EXPRESSION, key, value)


# Tombstones


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """Return the tombstones of a member, in the order that Kafka's replay needs: assignment, target, subscription."""
    return [
        _record(kind, _member_key(kind, group_id, member_id), None)
        for kind in (MEMBER_ASSIGNMENT, MEMBER_TARGET, MEMBER_SUBSCRIPTION)
    ]


def regex_tombstone(group_id: str, regex: str) -> KeyValue:
    key = formats.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return _record(REGULAR_EXPRESSION, key, None)


def group_tombstone(kind: int, group_id: str) -> KeyValue:
    """Return the tombstone of a record of the whole group. The key of such a record has only the group id."""
    return _record(kind, _KEYS[kind](group_id=group_id), None)


# Decoding


def subscription_of(value: formats.ConsumerGroupMemberMetadataValue) -> Subscription:
    return Subscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        server_assignor=value.server_assignor,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        classic=value.classic_member_metadata,
    )


def target_of(value: formats.ConsumerGroupTargetAssignmentMemberValue) -> Target:
    return {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions}


def current_assignment_of(value: formats.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_partitions(value.assigned_partitions),
        revoking=_partitions(value.partitions_pending_revocation),
    )


def _partitions(stored: Iterable[formats.TopicPartitions]) -> Partitions:
    partitions = {}
    for one in stored:
        epochs = one.assignment_epochs or []
        if len(epochs) != len(one.partitions):
            epochs = [UNKNOWN_ASSIGNMENT_EPOCH] * len(one.partitions)
        partitions[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return partitions


def _topic_partitions(partitions: Partitions) -> Iterable[formats.TopicPartitions]:
    for topic_id, indexes in sorted(partitions.items()):
        yield formats.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(indexes),
            assignment_epochs=[indexes[index] for index in sorted(indexes)],
        )


def _member_key(kind: int, group_id: str, member_id: str) -> Any:
    return _KEYS[kind](group_id=group_id, member_id=member_id)
