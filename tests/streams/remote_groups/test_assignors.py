"""The assignors of HTTP members: formats, results, and what other clients write."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from kwire.coordinator.group.classic.embedded_protocol import read_subscription, version_of
from kwire.kafka_client.groups.membership import JoinedMember
from kwire.streams.remote_groups.assignors import assign, protocols, read_partitions, written_assignments
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription, OwnedTopicPartition


def member(
    name: str, protocol: str = "range", last: dict[str, list[int]] | None = None, generation: int = -1
) -> JoinedMember:
    """An HTTP member that reads the topic t."""
    return JoinedMember(name, None, dict(protocols("t", "range", last or {}, generation))[protocol])


def cooperative(name: str, owned: list[int], generation: int = 5) -> JoinedMember:
    """A member of another client, which keeps its partitions while the group rebalances."""
    subscription = ConsumerProtocolSubscription(
        topics=["t"],
        owned_partitions=[OwnedTopicPartition(topic="t", partitions=owned)],
        generation_id=generation,
    )
    return JoinedMember(name, None, b"\0\2" + encode_message(subscription, 2))


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        ("range", ["range", "roundrobin", "cooperative-sticky", "sticky"]),
        ("round_robin", ["roundrobin", "range", "cooperative-sticky", "sticky"]),
        ("sticky", ["sticky", "range", "roundrobin", "cooperative-sticky"]),
    ],
)
def test_the_strategy_of_the_group_is_preferred(strategy: str, names: list[str]) -> None:
    offered = protocols("t", strategy, {"t": [1]}, 3)
    assert [name for name, _ in offered] == names
    for name, metadata in offered:
        assert version_of(metadata) == 1
        subscription = read_subscription(metadata)
        assert subscription.topics == ["t"]
        assert subscription.owned_partitions == []
        assert bool(subscription.user_data) == (name == "sticky")


def test_all_assignors_assign_every_partition_once() -> None:
    for protocol in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        members = [member(name, protocol) for name in ("a", "b", "c")]
        assigned = assign(protocol, members, {"t": 7})
        assert sorted(one for topics in assigned.values() for one in topics.get("t", [])) == list(range(7))
        assert sorted(len(topics["t"]) for topics in assigned.values()) == [2, 2, 3]
        decoded = {name: read_partitions(data) for name, data in written_assignments(assigned).items()}
        assert decoded == assigned


def test_sticky_members_keep_what_they_had_in_the_newest_generation() -> None:
    members = [
        member("a", "sticky", {"t": [0, 1, 2, 3]}, 4),
        member("b", "sticky", {"t": [2, 3]}, 5),
        member("c", "sticky"),
    ]
    assigned = assign("sticky", members, {"t": 6})
    assert assigned["a"]["t"] == [0, 1]
    assert assigned["b"]["t"] == [2, 3]
    assert assigned["c"]["t"] == [4, 5]


def test_a_partition_that_another_member_still_has_is_not_assigned_yet() -> None:
    members = [cooperative("java", [0, 1, 2, 3]), member("web", "cooperative-sticky")]
    assigned = assign("cooperative-sticky", members, {"t": 4})
    assert assigned == {"java": {"t": [0, 1]}, "web": {}}
    members = [cooperative("java", [0, 1]), member("web", "cooperative-sticky")]
    assert assign("cooperative-sticky", members, {"t": 4}) == {"java": {"t": [0, 1]}, "web": {"t": [2, 3]}}


def test_a_damaged_subscription_gets_nothing_and_a_topic_without_partitions_is_left_out() -> None:
    members = [member("a"), JoinedMember("b", None, b"\0"), JoinedMember("c", None, b"")]
    assert assign("range", members, {"t": 2}) == {"a": {"t": [0, 1]}, "b": {}, "c": {}}
    assert assign("range", [member("a")], {}) == {"a": {}}
    assert read_partitions(b"") == {}


class _Metadata:
    """What the assignors of kafka-python ask."""

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(7))


@pytest.mark.parametrize(
    ("protocol", "theirs"),
    [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)],
)
def test_the_result_is_that_of_another_client(protocol: str, theirs: Any) -> None:
    members = [member(name, protocol) for name in ("b", "a", "c")]
    asked = [
        SimpleNamespace(member_id=one.member_id, group_instance_id=None, metadata=read_subscription(one.metadata))
        for one in members
    ]
    expected = {
        name: read_partitions(assignment.encode()) for name, assignment in theirs.assign(_Metadata(), asked).items()
    }
    assert assign(protocol, members, {"t": 7}) == expected


def test_the_user_data_of_the_sticky_assignor_is_that_of_another_client() -> None:
    subscription = read_subscription(member("a", "sticky", {"t": [3, 1]}, 9).metadata)
    expected = struct.pack(">ih1siiii", 1, 1, b"t", 2, 3, 1, 9)
    assert subscription.user_data == expected
