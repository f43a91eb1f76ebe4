"""Migration of unusual groups between the protocols."""

import pytest

from kwire.coordinator.decisions import Moment
from kwire.coordinator.group import migration
from kwire.coordinator.group.classic.embedded_protocol import write_assignment
from kwire.coordinator.group.classic.group import ClassicGroup
from kwire.coordinator.group.classic.members import Member
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.coordinator.group.consumer.routing import ConsumerGroups
from kwire.coordinator.group.records import GroupMetadataValue
from kwire.coordinator.group.settings import GroupSettings
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.coordinator.world import MemoryTopics

NOW = Moment(1_000, 1_000)
SUBSCRIPTION = b"\x00\x00" + encode_message(ConsumerProtocolSubscription(topics=["t"]), 0)


def topics_with(partition_count: int) -> MemoryTopics:
    topics = MemoryTopics()
    topics.put("t", partition_count)
    return topics


def classic_group(**given: list[int]) -> ClassicGroup:
    """A stable group at generation 5 whose leader gave each member these partitions of `t`."""
    group = ClassicGroup("g", GroupSettings())
    members = []
    for member_id, indexes in given.items():
        member = Member(member_id, None, "c", "/host", 30_000, 10_000, (("range", SUBSCRIPTION),))
        members.append(member.to_record("range", write_assignment({"t": indexes, "gone": [0]}, 1)))
    group.apply(
        GroupMetadataValue(
            protocol_type="consumer",
            generation=5,
            protocol="range",
            leader=next(iter(given)),
            current_state_timestamp=0,
            members=members,
        )
    )
    return group


def upgraded(classic: ClassicGroup, topics: MemoryTopics) -> ConsumerGroup:
    group = ConsumerGroups(topics).new("g")
    migration.upgrade(classic, group, NOW)
    return group


def held(group: ConsumerGroup) -> dict[str, list[int]]:
    return {
        one.member_id: sorted(index for indexes in one.current.assigned.values() for index in indexes)
        for one in group.members.values()
    }


def test_a_group_goes_there_and_back_and_everybody_has_what_it_had() -> None:
    topics = topics_with(4)
    group = upgraded(classic_group(a=[0, 1], b=[2, 3]), topics)
    assert (group.group_epoch, group.target_epoch) == (5, 5)
    assert held(group) == {"a": [0, 1], "b": [2, 3]}
    back = migration.downgrade(group, GroupSettings(), (), NOW).group
    assert back.generation_id == 5
    assert held(upgraded(back, topics)) == {"a": [0, 1], "b": [2, 3]}


def test_a_partition_that_a_leader_gave_to_two_members_stays_with_the_first() -> None:
    group = upgraded(classic_group(a=[0, 1], b=[1, 2]), topics_with(3))
    assert held(group) == {"a": [0, 1], "b": [2]}
    assert {index: owner for (_, index), owner in group.owners.items()} == {0: "a", 1: "a", 2: "b"}


def test_a_member_keeps_what_it_may_still_hold_when_a_rebalance_was_begun_anew() -> None:
    classic = classic_group(a=[0, 1])
    classic.members["a"].assignment = b""
    assert held(upgraded(classic, topics_with(2))) == {"a": [0, 1]}


def test_a_group_that_does_not_fit_into_a_batch_stays_classic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "CONVERSION_BYTES_MAX", 300)
    with pytest.raises(KafkaError, match="do not fit into one batch") as refused:
        upgraded(classic_group(a=[0], b=[1]), topics_with(2))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    monkeypatch.setattr(migration, "CONVERSION_BYTES_MAX", 1_000_000)
    group = upgraded(classic_group(a=[0], b=[1]), topics_with(2))
    monkeypatch.setattr(migration, "CONVERSION_BYTES_MAX", 300)
    assert not migration.fits_in_one_batch(migration.downgrade(group, GroupSettings(), (), NOW).records)
