"""The records of internal topics: which types there are, and bytes that were worked out by hand."""

from typing import Any

import pytest

from kwire.wire.codec import decode_message, encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from kwire.wire.records import RECORD_TYPES
from kwire.wire.records.consumer_group import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from kwire.wire.records.share_state import ShareSnapshotKey
from kwire.wire.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions
from kwire.wire.schema import Versions, message_of

# Topic, type, name, versions of the value, first flexible version of the value; as Apache Kafka 4.3 has them. Kafka has
# a class of its own for type 0 of __consumer_offsets, with the layout of type 1.
KAFKA_4_3 = [
    ("__consumer_offsets", 0, "OffsetCommit", "0-4", 4),
    ("__consumer_offsets", 1, "OffsetCommit", "0-4", 4),
    ("__consumer_offsets", 2, "GroupMetadata", "0-4", 4),
    ("__consumer_offsets", 3, "ConsumerGroupMetadata", "0", 0),
    ("__consumer_offsets", 4, "ConsumerGroupPartitionMetadata", "0", 0),
    ("__consumer_offsets", 5, "ConsumerGroupMemberMetadata", "0", 0),
    ("__consumer_offsets", 6, "ConsumerGroupTargetAssignmentMetadata", "0", 0),
    ("__consumer_offsets", 7, "ConsumerGroupTargetAssignmentMember", "0", 0),
    ("__consumer_offsets", 8, "ConsumerGroupCurrentMemberAssignment", "0", 0),
    ("__consumer_offsets", 10, "ShareGroupMemberMetadata", "0", 0),
    ("__consumer_offsets", 11, "ShareGroupMetadata", "0", 0),
    ("__consumer_offsets", 12, "ShareGroupTargetAssignmentMetadata", "0", 0),
    ("__consumer_offsets", 13, "ShareGroupTargetAssignmentMember", "0", 0),
    ("__consumer_offsets", 14, "ShareGroupCurrentMemberAssignment", "0", 0),
    ("__consumer_offsets", 15, "ShareGroupStatePartitionMetadata", "0", 0),
    ("__consumer_offsets", 16, "ConsumerGroupRegularExpression", "0", 0),
    ("__consumer_offsets", 17, "StreamsGroupMetadata", "0", 0),
    ("__consumer_offsets", 19, "StreamsGroupMemberMetadata", "0", 0),
    ("__consumer_offsets", 20, "StreamsGroupTargetAssignmentMetadata", "0", 0),
    ("__consumer_offsets", 21, "StreamsGroupTargetAssignmentMember", "0", 0),
    ("__consumer_offsets", 22, "StreamsGroupCurrentMemberAssignment", "0", 0),
    ("__consumer_offsets", 23, "StreamsGroupTopology", "0", 0),
    ("__transaction_state", 0, "TransactionLog", "0-1", 1),
    ("__share_group_state", 0, "ShareSnapshot", "0", 0),
    ("__share_group_state", 1, "ShareUpdate", "0", 0),
]


def test_every_row_is_declared_and_nothing_else() -> None:
    declared = [(topic, number) for topic, types in RECORD_TYPES.items() for number in types]
    assert declared == [(topic, number) for topic, number, _, _, _ in KAFKA_4_3]


@pytest.mark.parametrize(("topic", "number", "name", "versions", "flexible"), KAFKA_4_3)
def test_names_versions_and_flexibility_are_kafkas(
    topic: str, number: int, name: str, versions: str, flexible: int
) -> None:
    key, value = (message_of(cls) for cls in RECORD_TYPES[topic][number])
    assert (key.name, value.name) == (f"{name}Key", f"{name}Value")
    assert (key.versions, key.flexible) == (Versions.parse("0"), Versions.parse("none"))
    assert (str(value.versions), value.flexible) == (versions, Versions.parse(f"{flexible}+"))
    assert key.key == value.key == -1


def check_bytes(value: Any, version: int, expected: str) -> None:
    encoded = bytes.fromhex(expected)
    assert encode_message(value, version).hex(" ") == encoded.hex(" ")
    assert decode_message(type(value), version, encoded) == value


def transaction(**changes: Any) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=4,
        transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[5])],
        transaction_last_update_timestamp_ms=6,
        transaction_start_timestamp_ms=7,
        **changes,
    )


HEAD = "0000000000000001 0002 00000003 04 "
TIMES = "0000000000000006 0000000000000007 "


def test_a_transaction_is_kept_under_its_id() -> None:
    check_bytes(TransactionLogKey(transactional_id="tx"), 0, "0002 7478")


def test_a_transaction_of_version_0_has_no_tagged_fields() -> None:
    check_bytes(transaction(), 0, HEAD + "00000001 0001 74 00000001 00000005" + TIMES)


def test_a_transaction_of_version_1_has_tagged_fields_for_its_other_producer_ids() -> None:
    partitions = "02 0274 02 00000005 00"
    check_bytes(transaction(), 1, HEAD + partitions + TIMES + "00")
    told = transaction(previous_producer_id=8, next_producer_id=9, client_transaction_version=2, next_producer_epoch=3)
    tags = "04 0008 0000000000000008 0108 0000000000000009 0202 0002 0302 0003"
    check_bytes(told, 1, HEAD + partitions + TIMES + tags)


@pytest.mark.parametrize(
    ("classic", "tags"),
    [(None, "01 0001 00"), (ClassicMemberMetadata(), "00"), (ClassicMemberMetadata(session_timeout_ms=1), None)],
)
def test_a_member_without_classic_facts_is_written_with_a_null_because_kafkas_default_is_not_null(
    classic: ClassicMemberMetadata | None, tags: str | None
) -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=1,
        server_assignor=None,
        classic_member_metadata=classic,
    )
    check_bytes(member, 0, "00 00 0263 0268 02 0274 00 00000001 00 " + (tags or "01 0007 01 00000001 01 00"))


def test_share_state_is_kept_by_group_topic_id_and_partition() -> None:
    key = ShareSnapshotKey(group_id="g", topic_id=bytes(range(16)), partition=3)
    check_bytes(key, 0, "0001 67" + bytes(range(16)).hex() + "00000003")


def test_a_subscription_grows_with_its_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=b"u")
    plain = "00000001 0001 74 00000001 75"
    check_bytes(subscription, 0, plain)
    check_bytes(subscription, 1, plain + "00000000")
    check_bytes(subscription, 2, plain + "00000000 ffffffff")
    check_bytes(subscription, 3, plain + "00000000 ffffffff ffff")


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_the_same_in_every_version(version: int) -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[1])])
    check_bytes(assignment, version, "00000001 0001 74 00000001 00000001 ffffffff")
