"""Commit policies: when the high watermark rises and when a sync is requested; new settings swap the policy."""

from pathlib import Path
from typing import Any

import pytest

from kwire.broker.partition import Partition
from kwire.broker.partition.commit_policy import CommitPolicy, PageCache, SyncRound
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.events import SyncLater, lone_partition
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop

SYNCS = SyncLater(FaultyFiles())


def append(partition: Partition, count: int = 1) -> None:
    batch = make_batch(count, timestamp_ms=0)
    partition.append(batch, check_batch(batch))


@pytest.mark.parametrize(
    ("policy", "log_end_offset", "synced_offset", "committed", "recovered"),
    [
        (PageCache(SYNCS), 9, 0, 9, 9),
        (PageCache(SYNCS, flush_messages=4), 9, 5, 5, 9),
        (PageCache(SYNCS, flush_messages=4), 9, 6, 9, 9),
        (SyncRound(SYNCS), 9, 6, 6, 6),
        (SyncRound(SYNCS), 9, 9, 9, 9),
    ],
)
def test_a_policy_says_how_far_a_log_is_committed(
    policy: CommitPolicy, log_end_offset: int, synced_offset: int, committed: int, recovered: int
) -> None:
    assert policy.committed_offset(log_end_offset, synced_offset) == committed
    assert policy.recovered_offset(log_end_offset, synced_offset) == recovered


def test_only_a_page_cache_without_limits_commits_by_itself() -> None:
    assert PageCache(SYNCS).is_immediate
    assert not any(
        policy.is_immediate
        for policy in (PageCache(SYNCS, flush_messages=1), PageCache(SYNCS, flush_ms=1), SyncRound(SYNCS))
    )


@pytest.mark.parametrize(
    ("configs", "committed", "syncs"),
    [
        ({"kwire_log_sync": "os"}, 3, 0),
        ({"kwire_log_sync": "os", "flush_messages": "3"}, 2, 1),
        ({"kwire_log_sync": "os", "flush_ms": "50"}, 3, 1),
        ({"kwire_log_sync": "group"}, 0, 3),
    ],
)
def test_an_append_is_committed_as_the_policy_says(
    tmp_path: Path, configs: dict[str, Any], committed: int, syncs: int
) -> None:
    files = FaultyFiles()
    later = SyncLater(files)
    partition = lone_partition(tmp_path, files=files, syncs=later, **configs)
    for _ in range(3):
        append(partition)
    assert (partition.high_watermark, len(later.waiting)) == (committed, syncs)
    later.run()
    assert partition.high_watermark == 3


@in_loop
async def test_a_change_of_settings_swaps_the_policy(tmp_path: Path) -> None:
    syncs = SyncLater(FaultyFiles())
    with QuietNode(tmp_path, syncs=syncs) as node:
        topic = await node.create("t", kwire_log_sync="os")
        partition = topic.partitions[0]
        append(partition)
        assert (partition.high_watermark, syncs.waiting) == (1, [])
        await node.topics.configure(topic, {"kwire.log.sync": "group"})
        assert syncs.waiting == [partition], "records committed from the page cache are synced now"
        append(partition)
        assert partition.high_watermark == 1
        syncs.run()
        assert (partition.high_watermark, partition.synced_offset) == (2, 2)
        await node.topics.configure(topic, {"kwire.log.sync": "os"})
        append(partition)
        assert (partition.high_watermark, partition.synced_offset, syncs.waiting) == (3, 2, [])
