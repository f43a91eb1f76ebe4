"""OffsetCommit by name and by id, and when it is answered."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from kwire.handlers.offset_commit import handle
from kwire.handlers.shared.offset_commits import OFFSETS_PER_COMMIT_MAX
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from storage.batch.record_batch import parse_header
from tests.coordinator.context import call, context_of, joined, topic_id
from tests.coordinator.world import World, all_offsets
from tests.support.batches import read_all
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of


def topic(name: str, *partitions: int, metadata: str | None = None) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name=name,
        topic_id=topic_id(name),
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=10 + index,
                committed_leader_epoch=4,
                committed_metadata=metadata,
            )
            for index in partitions
        ],
    )


def request(*topics: OffsetCommitRequestTopic, member_id: str = "", generation_id: int = -1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation_id, member_id=member_id, topics=list(topics)
    )


def errors(response: OffsetCommitResponse) -> list[list[tuple[int, int]]]:
    return [[(one.partition_index, one.error_code) for one in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize("version", range(2, 11))
def test_known_partitions_are_stored_and_unknown_ones_refused(version: int) -> None:
    world = World()
    response = call(handle, context_of(world, version), request(topic("gone", 0), topic("t", 0, 3, 1)))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(response) == [[(0, unknown)], [(0, 0), (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, 0)]]
    assert [one.name for one in response.topics] == (["gone", "t"] if version < 10 else ["", ""])
    stored = {
        (name, partition): (committed.offset, committed.leader_epoch, committed.metadata, committed.topic_id)
        for shard in world.groups.shards()
        for _, name, partition, committed in all_offsets(shard)
    }
    epoch = 4 if version >= 6 else -1
    assert stored == {("t", 0): (10, epoch, "", topic_id("t")), ("t", 1): (11, epoch, "", topic_id("t"))}


def test_nothing_known_is_answered_without_an_append() -> None:
    world = World()
    response = call(handle, context_of(world, 9), request(topic("gone", 0)))
    assert errors(response) == [[(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]]
    assert world.log.shards == {}


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    world = World(offset_metadata_max_bytes=3)
    response = call(
        handle, context_of(world, 9), request(topic("t", 0, metadata="abcd"), topic("t", 1, metadata="abc"))
    )
    assert errors(response) == [[(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)], [(1, 0)]]


def test_error_of_the_group_is_given_to_every_partition() -> None:
    world = World(initial_rebalance_delay_ms=0)
    member_id = joined(world)
    response = call(handle, context_of(world, 9), request(topic("t", 0, 1), member_id=member_id, generation_id=7))
    assert errors(response) == [[(0, ErrorCode.ILLEGAL_GENERATION), (1, ErrorCode.ILLEGAL_GENERATION)]]


def test_commit_is_answered_once_the_log_has_committed() -> None:
    world = World()
    world.log.is_holding = True

    async def scenario() -> OffsetCommitResponse:
        answer = handle(context_of(world, 9), request(topic("t", 0)))
        assert isinstance(answer, Awaitable)
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert not waiting.done()
        world.log.release()
        response: OffsetCommitResponse = await asyncio.wait_for(waiting, 5)
        return response

    assert errors(asyncio.run(scenario())) == [[(0, 0)]]


@pytest.mark.parametrize("version", range(2, 11))
def test_generation_of_a_group_that_does_not_exist_is_illegal_and_since_version_9_not_found(version: int) -> None:
    response = call(handle, context_of(World(), version), request(topic("t", 0), member_id="m", generation_id=3))
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert errors(response) == [[(0, expected)]]


@pytest.mark.parametrize("version", [9, 10])
def test_large_request_is_answered_in_order_and_appended_in_steps(version: int) -> None:
    world = World()
    partitions = [index % 4 for index in range(1_500)]
    response = call(
        handle, context_of(world, version), request(topic("gone", 0), topic("t", *partitions), topic("t", *partitions))
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    of_topic = [(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if index == 3 else 0) for index in partitions]
    assert errors(response) == [[(0, unknown)], of_topic, of_topic]
    assert world.log.append_sizes == [OFFSETS_PER_COMMIT_MAX, OFFSETS_PER_COMMIT_MAX, 250]


@in_loop
async def test_commits_of_one_turn_share_a_batch_in_the_log(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        created = await node.create("t", 3)
        await node.topics.offsets_topic()
        asked = OffsetCommitRequestTopic(
            name="t",
            topic_id=created.topic_id,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=10, committed_leader_epoch=4, committed_metadata=None
                )
                for index in range(2)
            ],
        )
        responses = await asyncio.gather(*(node.ask(request(asked), 9) for _ in range(4)))
        assert [errors(response) for response in responses] == [[[(0, 0), (1, 0)]]] * 4
        offsets = await node.topics.offsets_topic()
        log = log_of(offsets.partitions[node.groups.shard_of("g")])
        headers = [parse_header(batch) for batch in read_all(log)]
        assert [header.record_count for header in headers] == [2, 6]
