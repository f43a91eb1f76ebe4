"""Records of consumer groups: Kafka's bytes, and what older and newer servers wrote."""

import pytest

from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat
from kwire.coordinator.group.consumer.members import CurrentAssignment, MemberState, Subscription
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
from kwire.coordinator.group.records import decode_record
from kwire.coordinator.log_records import KeyValue
from kwire.wire.codec import encode_message
from kwire.wire.records import consumer_group as formats
from kwire.wire.records.consumer_group import ClassicMemberMetadata, ClassicProtocol
from tests.coordinator.world import World

TOPIC = b"0123456789abcdef"
OTHER = b"fedcba9876543210"


def decoded(record: KeyValue) -> ConsumerGroupRecord:
    found = decode_record(*record)
    assert isinstance(found, ConsumerGroupRecord)
    return found


def test_group_record_has_kafkas_bytes() -> None:
    key, value = records.group_epoch_record("g", 5, 258)
    # Type 3 and the group; version 0, the epoch, and one tagged field of eight bytes: the hash.
    assert key == bytes.fromhex("0003 0001 67")
    assert value == bytes.fromhex("0000 00000005 01 00 08 0000000000000102")


def test_target_record_has_kafkas_bytes() -> None:
    key, value = records.target_record("g", "m", {TOPIC: frozenset({2, 0})})
    assert key == bytes.fromhex("0007 0001 67 0001 6d")
    assert value == bytes.fromhex("0000 02") + TOPIC + bytes.fromhex("03 00000000 00000002 00 00")


def test_assignment_record_has_kafkas_bytes() -> None:
    current = CurrentAssignment(
        member_epoch=3,
        previous_member_epoch=2,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={TOPIC: {1: 3, 0: 2}},
        revoking={},
    )
    key, value = records.assignment_record("g", "m", current)
    assert key == bytes.fromhex("0008 0001 67 0001 6d")
    partitions = TOPIC + bytes.fromhex("03 00000000 00000001 01 00 09 03 00000002 00000003")
    assert value == bytes.fromhex("0000 00000003 00000002 01 02") + partitions + bytes.fromhex("01 00")


def test_tombstones_of_a_member_come_in_the_order_that_kafkas_replay_relies_on() -> None:
    kinds = [decoded(record).kind for record in records.member_tombstones("g", "m")]
    assert kinds == [records.MEMBER_ASSIGNMENT, records.MEMBER_TARGET, records.MEMBER_SUBSCRIPTION]
    assert all(value is None for _, value in records.member_tombstones("g", "m"))


@pytest.mark.parametrize(
    "said",
    [
        Subscription(),
        Subscription(
            instance_id="i",
            rack_id="r",
            client_id="c",
            client_host="/h",
            topic_names=frozenset({"a", "b"}),
            topic_regex="x.*",
            server_assignor="range",
            rebalance_timeout_ms=7,
            classic=ClassicMemberMetadata(
                session_timeout_ms=9, supported_protocols=[ClassicProtocol(name="range", metadata=b"m")]
            ),
        ),
    ],
)
def test_subscription_is_read_as_it_was_written(said: Subscription) -> None:
    record = decoded(records.subscription_record("g", "m", said))
    assert (record.kind, record.group_id, record.subject) == (records.MEMBER_SUBSCRIPTION, "g", "m")
    assert records.subscription_of(record.value) == said


def test_assignment_is_read_as_it_was_written() -> None:
    current = CurrentAssignment(
        member_epoch=-2,
        previous_member_epoch=4,
        state=MemberState.UNRELEASED_PARTITIONS,
        assigned={TOPIC: {0: 1, 5: 4}, OTHER: {2: 4}},
        revoking={OTHER: {3: 1}},
    )
    record = decoded(records.assignment_record("g", "m", current))
    assert records.current_assignment_of(record.value) == current


def test_assignment_without_epochs_was_there_from_the_beginning() -> None:
    """Kafka before 4.3 did not write when a partition was given."""
    value = formats.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3,
        previous_member_epoch=2,
        state=99,
        assigned_partitions=[formats.TopicPartitions(topic_id=TOPIC, partitions=[4, 1])],
        partitions_pending_revocation=[],
    )
    current = records.current_assignment_of(value)
    assert current.assigned == {TOPIC: {4: 0, 1: 0}}
    assert current.state is MemberState.UNKNOWN


def test_group_that_kafka_4_0_wrote_goes_on() -> None:
    """It has a record of its topics instead of a hash: the next epoch takes it back."""
    world = World().with_topics()
    world.topics.put("t", 1)
    key = formats.ConsumerGroupPartitionMetadataKey(group_id="g")
    value = formats.ConsumerGroupPartitionMetadataValue(topics=[])
    shard = world.log.shards.setdefault(world.groups.shard_of("g"), [])
    shard.append((b"\x00\x04" + encode_message(key, 0), b"\x00\x00" + encode_message(value, 0)))
    shard.append(records.group_epoch_record("g", 7, 0))
    shard.append(records.subscription_record("g", "m", Subscription(topic_names=frozenset({"t"}))))
    shard.append(records.target_epoch_record("g", 7, 0))
    shard.append(records.assignment_record("g", "m", CurrentAssignment(member_epoch=7, previous_member_epoch=6)))
    answers: list[object] = []
    world.groups.submit(ConsumerHeartbeat(group_id="g", member_id="m", member_epoch=7), answers.append)
    (group,) = world.groups.consumer_groups()
    assert (group.group_epoch, group.target_epoch) == (8, 8)
    assert not group.has_partition_metadata
    assert group.members["m"].current.assigned == {world.topics.shapes["t"].topic_id: {0: 8}}
    assert world.durable() == world.replayed()


def test_records_of_other_kinds_of_groups_are_left_alone() -> None:
    for kind in (9, 10, 13, 17, 23):
        assert decode_record(kind.to_bytes(2, "big") + b"\x00\x01g", b"\x00\x00") is None
