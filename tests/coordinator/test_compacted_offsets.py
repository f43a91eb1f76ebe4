"""A replay of the compacted offsets topic gives the same state as before the compaction."""

import asyncio
from pathlib import Path

from kwire.coordinator.group.commands import CommitOffsets, DeleteGroup, OffsetToCommit
from kwire.coordinator.log_records import ProducerIdAndEpoch
from kwire.errors import ErrorCode
from storage.log.settings import LogSettings
from tests.broker.test_log_cleaner import cleaning, settle, values
from tests.coordinator.world import durable
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

SEGMENT_BYTES = 4_000
ROUNDS = 60


@in_loop
async def test_replay_of_the_compacted_topic_gives_the_same_offsets(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "offsets.topic.num.partitions=1") as node:
        partition = (await node.topics.offsets_topic()).partitions[0]
        log_of(partition).settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
        answers: list[ErrorCode] = []
        for number in range(ROUNDS):
            for group_id in ("g", "h", "gone"):
                offsets = [OffsetToCommit("t", index, number) for index in range(3)]
                node.groups.submit(CommitOffsets(group_id=group_id, offsets=offsets), answers.extend)
        node.groups.submit(DeleteGroup(group_id="gone"), answers.append)
        settle(partition)
        assert answers == [ErrorCode.NONE] * (ROUNDS * 9 + 1)
        before, record_count = durable(list(node.groups.shards())), len(values(partition))
        assert set(before) == {f"offset {group_id} t-{index}" for group_id in "gh" for index in range(3)}
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
        assert len(values(partition)) < record_count / 2
        node.restart()
        node.groups.load()
        assert durable(list(node.groups.shards())) == before


@in_loop
async def test_compaction_leaves_pending_offsets_and_what_became_of_others(tmp_path: Path) -> None:
    """Of three producers one commits, one aborts and one stays open from the middle on, while groups commit plainly."""
    with QuietNode(tmp_path, "offsets.topic.num.partitions=1") as node:
        partition = (await node.topics.offsets_topic()).partitions[0]
        log_of(partition).settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
        errors: list[object] = []
        for number in range(ROUNDS):
            for producer_id, group_id in ((1, "g"), (2, "h")):
                offsets = [OffsetToCommit("t", index, 10 * number + producer_id) for index in range(3)]
                in_transaction = CommitOffsets(
                    group_id=group_id, transaction=ProducerIdAndEpoch(producer_id, 0), offsets=offsets
                )
                node.groups.submit(in_transaction, errors.extend)
                if number == ROUNDS // 2:
                    open_one = CommitOffsets(
                        group_id=group_id, transaction=ProducerIdAndEpoch(3, 0), offsets=offsets[:2]
                    )
                    node.groups.submit(open_one, errors.extend)
                plain = [OffsetToCommit("t", 0, 10 * number + 5), OffsetToCommit("u", 0, number)]
                node.groups.submit(CommitOffsets(group_id=group_id, offsets=plain), errors.extend)
                node.groups.end_transaction(0, producer_id, 0, 0, producer_id == 1, errors.append)
        settle(partition)
        assert set(errors) == {ErrorCode.NONE, None}
        before, record_count = durable(list(node.groups.shards())), len(values(partition))
        assert "offset g t-1" in before
        assert "offset h t-1" not in before
        assert {name for name in before if name.startswith("pending")} == {
            f"pending 3 {group_id} t-{index}" for group_id in "gh" for index in range(2)
        }
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
        # What lies behind the first record of the open transaction must not be touched.
        assert record_count / 2 < len(values(partition)) < record_count * 0.7
        node.restart()
        node.groups.load()
        assert durable(list(node.groups.shards())) == before
        partition = (await node.topics.offsets_topic()).partitions[0]
        log_of(partition).settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
        # It ends, and everything can be compacted, once the marker lies in a segment that is full.
        node.groups.end_transaction(0, 3, 0, 0, True, errors.append)
        for number in range(ROUNDS):
            plain = [OffsetToCommit("v", 0, number)]
            node.groups.submit(CommitOffsets(group_id="g", offsets=plain), errors.extend)
            await asyncio.sleep(0)  # those of one loop turn would share a batch
        settle(partition)
        before = durable(list(node.groups.shards()))
        assert not any(name.startswith("pending") for name in before)
        async with cleaning(node) as cleaner:
            assert await cleaner.clean_one()
        assert len(values(partition)) < record_count * 0.4
        node.restart()
        node.groups.load()
        assert durable(list(node.groups.shards())) == before
