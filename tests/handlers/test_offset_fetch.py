"""OffsetFetch of one group and of several, by name and by id."""

import asyncio
from collections import deque

import pytest

from kwire.coordinator.group.commands import CommitOffsets, FetchedTopic, OffsetToCommit
from kwire.coordinator.group.shard import GroupShard
from kwire.errors import ErrorCode
from kwire.handlers.offset_fetch import _existing, handle
from kwire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.coordinator.context import FakeTopics, call, context_of, topic_id
from tests.coordinator.world import World

Found = list[tuple[int, int, int, str | None, int]]


def world_with(*names: str) -> World:
    world = World()
    offsets = [OffsetToCommit(name, 1, 42, 5, "note", topic_id(name)) for name in names]
    world.groups.submit(CommitOffsets(group_id="g", offsets=offsets), lambda errors: None)
    return world


def found(group: OffsetFetchResponseGroup) -> list[Found]:
    return [
        [
            (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
            for one in topic.partitions
        ]
        for topic in group.topics
    ]


@pytest.mark.parametrize("version", range(1, 8))
def test_committed_offset_is_found_and_another_partition_has_none(version: int) -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])], require_stable=version >= 7
    )
    response = call(handle, context_of(world_with("t"), version), request)
    (topic,) = response.topics
    assert [(one.partition_index, one.committed_offset, one.metadata) for one in topic.partitions] == [
        (1, 42, "note"),
        (2, -1, ""),
    ]
    assert [one.committed_leader_epoch for one in topic.partitions] == ([5, -1] if version >= 5 else [-1, -1])


@pytest.mark.parametrize("version", range(2, 8))
def test_null_topics_means_all(version: int) -> None:
    response = call(handle, context_of(world_with("t"), version), OffsetFetchRequest(group_id="g", topics=None))
    assert [(one.name, [p.committed_offset for p in one.partitions]) for one in response.topics] == [("t", [42])]


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_are_answered_together(version: int) -> None:
    topics = [OffsetFetchRequestTopics(name="t", topic_id=topic_id("t"), partition_indexes=[1, 0])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=topics),
            OffsetFetchRequestGroup(group_id="new", topics=topics),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ],
        require_stable=True,
    )
    response = call(handle, context_of(world_with("t"), version), request)
    assert [group.group_id for group in response.groups] == ["g", "new", "g"]
    none: Found = [(1, -1, -1, "", 0), (0, -1, -1, "", 0)]
    assert [found(group) for group in response.groups] == [
        [[(1, 42, 5, "note", 0), none[1]]],
        [none],
        [[(1, 42, 5, "note", 0)]],
    ]
    assert response.groups[2].topics[0].topic_id == (topic_id("t") if version >= 10 else bytes(16))


def test_unknown_topic_id_is_refused_for_its_partitions() -> None:
    topics = [
        OffsetFetchRequestTopics(topic_id=topic_id("gone"), partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=topic_id("t"), partition_indexes=[1]),
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (group,) = call(handle, context_of(world_with("t"), 10), request).groups
    by_id = {topic.topic_id: partitions for topic, partitions in zip(group.topics, found(group), strict=True)}
    assert by_id == {
        topic_id("gone"): [(0, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)],
        topic_id("t"): [(1, 42, 5, "note", 0)],
    }


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_of_a_deleted_topic_do_not_count(version: int) -> None:
    """Neither while the name is free, nor after another topic has taken it."""
    world = world_with("t", "u")
    topics = FakeTopics("u")
    topics.known["u"].topic_id = topic_id("another")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = call(handle, context_of(world, version, topics), request).groups
    assert group.topics == []
    asked = [OffsetFetchRequestTopics(name="u", topic_id=topic_id("another"), partition_indexes=[1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)])
    (group,) = call(handle, context_of(world, version, topics), request).groups
    assert found(group) == [[(1, -1, -1, "", 0)]]


def test_what_was_found_is_released_topic_by_topic() -> None:
    fetched = deque(FetchedTopic(f"t{number}", [(0, None)]) for number in range(3))

    async def left() -> list[int]:
        return [len(fetched) async for _ in _existing(context_of(World(), 7), fetched, asked=())]

    assert asyncio.run(left()) == [2, 1, 0]


@pytest.mark.parametrize("version", [1, 5, 10])
def test_coordinator_that_is_gone_says_so(version: int) -> None:
    world = world_with("t")
    world.groups.close()
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[1])]
    request = OffsetFetchRequest(
        group_id="g", topics=topics, groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]
    )
    response = call(handle, context_of(world, version), request)
    if version == 1:
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    elif version == 5:
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", [1, 2, 3, 7, 8])
def test_group_that_is_loading_has_no_positions_yet(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    world = world_with("t", "u")
    world.restart()
    apply = GroupShard.apply

    def slow(shard: GroupShard, key: bytes, value: bytes | None) -> None:
        world.clock.advance(10)
        apply(shard, key, value)

    monkeypatch.setattr(GroupShard, "apply", slow)
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1])],
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)],
    )
    response = call(handle, context_of(world, version), request)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version == 1:
        assert [(one.committed_offset, one.error_code) for one in response.topics[0].partitions] == [(-1, loading)]
    else:
        # Once for the group, and no topic: as Kafka answers, though aiokafka looks for errors of partitions only.
        answer = response if version < 8 else response.groups[0]
        assert (answer.error_code, answer.topics) == (loading, [])
