"""The topic that groups are stored in is compacted; what a coordinator replays afterwards is what it knew before."""

from pathlib import Path

from kwire.coordinator.group.commands import CommitOffsets, DeleteGroup, OffsetToCommit
from kwire.errors import ErrorCode
from storage.settings import LogSettings
from tests.broker.test_cleaning import cleaning, settle, values
from tests.coordinator.world import durable
from tests.support.node import QuietNode, in_loop

SEGMENT_BYTES = 4_000
ROUNDS = 60


@in_loop
async def test_replay_of_the_compacted_topic_gives_the_same_offsets(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "offsets.topic.num.partitions=1") as node:
        partition = (await node.topics.offsets_topic()).partitions[0]
        partition.log.settings = LogSettings(segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
        answers: list[ErrorCode] = []
        for number in range(ROUNDS):
            for group_id in ("g", "h", "gone"):
                offsets = [OffsetToCommit("t", index, number) for index in range(3)]
                node.groups.ask(CommitOffsets(group_id=group_id, offsets=offsets), answers.extend)
        node.groups.ask(DeleteGroup(group_id="gone"), answers.append)
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
