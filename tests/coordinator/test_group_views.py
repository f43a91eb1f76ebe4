"""Read-only views of groups of both protocols."""

from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.members import Member
from kwire.coordinator.group.commands import NO_LEADER_EPOCH
from kwire.coordinator.group.consumer.members import ConsumerMember, CurrentAssignment, Subscription
from kwire.coordinator.group.group_interface import CLASSIC
from kwire.coordinator.group.offsets.committed import CommittedOffsets
from kwire.coordinator.group.records import OffsetCommitKey, OffsetCommitRecord, OffsetCommitValue
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.views import GroupView, MemberView, ViewedGroup, find_group, group_ids
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, TopicPartition

TOPIC_ID = b"sixteen bytes id"


class Shard:
    """A shard with just what is looked at."""

    def __init__(self) -> None:
        self.groups: dict[str, ViewedGroup] = {}
        self.offsets = CommittedOffsets(GroupSettings())

    def commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        value = OffsetCommitValue(offset=offset, leader_epoch=NO_LEADER_EPOCH, metadata="", commit_timestamp=7)
        self.offsets.apply(OffsetCommitRecord(key, value))

    def find(self, group_id: str) -> GroupView:
        found = find_group(self, group_id)
        assert found is not None
        return found


class ConsumerGroup:
    """A group of the consumer protocol, as far as it is looked at."""

    kind = "consumer"
    state = "Reconciling"

    def __init__(self, *members: ConsumerMember) -> None:
        self.members = {member.member_id: member for member in members}


def classic_member(assignment: bytes) -> Member:
    member = Member("m-1", "instance", "client", "/192.0.2.1", 1000, 2000, (("range", b""),))
    member.assignment = assignment
    return member


def classic_group(*members: Member) -> ClassicGroup:
    group = ClassicGroup("g", GroupSettings())
    group.members = {member.member_id: member for member in members}
    return group


def assignment(version: int, tail: bytes = b"") -> bytes:
    assigned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[2, 0])])
    return version.to_bytes(2, "big", signed=True) + encode_message(assigned, min(max(version, 0), 3)) + tail


def test_a_group_that_nobody_joined_is_classic_and_empty() -> None:
    shard = Shard()
    shard.commit("g", "t", 0, 5)
    shard.commit("g", "t", 1, 6)
    group = shard.find("g")
    assert (group.kind, group.state, group.member_count, group.offset_count) == (CLASSIC, "Empty", 0, 2)
    assert group.members() == []
    assert [(topic, partition, one.offset) for topic, partition, one in group.offsets()] == [("t", 0, 5), ("t", 1, 6)]


def test_what_is_neither_a_group_nor_has_offsets_is_not_found() -> None:
    assert find_group(Shard(), "g") is None


def test_every_group_is_named_once() -> None:
    shard = Shard()
    shard.groups["both"] = shard.groups["members"] = classic_group()
    shard.commit("both", "t", 0, 1)
    shard.commit("offsets", "t", 0, 1)
    assert sorted(group_ids(shard)) == ["both", "members", "offsets"]


def test_the_assignment_of_a_classic_member_is_read_in_every_version() -> None:
    for version in range(6):
        shard = Shard()
        shard.groups["g"] = classic_group(classic_member(assignment(version)))
        expected = MemberView("m-1", "instance", "client", "/192.0.2.1", {"t": [0, 2]})
        assert shard.find("g").members() == [expected]


def test_a_classic_member_without_partitions_or_of_another_protocol_has_no_assignment() -> None:
    for data in (b"", b"\x00", assignment(-1), b"\x00\x00no consumer speaks so"):
        shard = Shard()
        shard.groups["g"] = classic_group(classic_member(data))
        (member,) = shard.find("g").members()
        assert member.assignment == {}


def test_a_member_of_the_consumer_protocol_has_partitions_by_topic_id() -> None:
    member = ConsumerMember("m-1")
    member.subscription = Subscription(instance_id="instance", client_id="client", client_host="/192.0.2.1")
    member.current = CurrentAssignment(assigned={TOPIC_ID: {3: 5, 1: 4}})
    shard = Shard()
    shard.groups["g"] = ConsumerGroup(member)
    group = shard.find("g")
    assert (group.kind, group.state, group.member_count) == ("consumer", "Reconciling", 1)
    assert group.members() == [MemberView("m-1", "instance", "client", "/192.0.2.1", {TOPIC_ID: [1, 3]})]
