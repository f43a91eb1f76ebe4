"""The one snapshot of a node: made, read, and removed by a client, by its age or by a full disk."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.backup import snapshot_builder
from kwire.broker.backup.snapshot_builder import SnapshotFailed
from kwire.broker.backup.snapshots import IDLE_SECONDS, SnapshotExists, SnapshotNotFound, Snapshots
from kwire.broker.partition import Partition
from storage.batch.record_batch import check_batch
from storage.errors import DiskFailure
from storage.snapshot.links import SNAPSHOT_SUFFIX
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of


class Timers:
    """Calls that are made when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, delay: float, call: Callable[[], None]) -> Any:
        self.calls.append(call)
        return asyncio.get_running_loop().call_later(10_000, lambda: None)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def snapshots_of(node: QuietNode, timers: Timers) -> Snapshots:
    return Snapshots(node.topics, node.store, node.metastore, node.files, node.clock, timers)


def put(partition: Partition, count: int = 5) -> None:
    for _ in range(count):
        batch = make_batch(1, timestamp_ms=0)
        partition.append(batch, check_batch(batch))


def links_in(node: QuietNode) -> list[Path]:
    return list(node.directory.glob(f"*{SNAPSHOT_SUFFIX}"))


@in_loop
async def test_a_snapshot_is_read_in_pieces_and_removed(node: QuietNode) -> None:
    partition = await node.create_partition("orders")
    put(partition)
    timers = Timers()
    snapshots = snapshots_of(node, timers)
    snapshot = await snapshots.create()
    paths = [one.path for one in snapshot.files]
    assert paths == [
        "metastore.journal",
        "logs/orders-0/partition.metadata",
        "logs/orders-0/checkpoint",
        "logs/orders-0/00000000000000000000.log",
    ]
    number = len(paths) - 1
    size_bytes = snapshot.files[number].size_bytes
    put(partition)  # later records do not belong to it
    whole = await snapshots.read(snapshot.snapshot_id, number, 0, 10**6)
    assert len(whole) == size_bytes
    assert whole == log_of(partition).read(0, 10**6, 5).view
    assert await snapshots.read(snapshot.snapshot_id, number, 10, 7) == whole[10:17]
    assert await snapshots.read(snapshot.snapshot_id, number, size_bytes, 7) == b""
    with pytest.raises(SnapshotNotFound, match="numbered from 0"):
        await snapshots.read(snapshot.snapshot_id, len(paths), 0, 1)
    with pytest.raises(SnapshotExists, match=snapshot.snapshot_id):
        await snapshots.create()
    await snapshots.remove(snapshot.snapshot_id)
    assert not links_in(node)
    with pytest.raises(SnapshotNotFound, match="removed by a client"):
        snapshots.get(snapshot.snapshot_id)
    again = await snapshots.create()
    await snapshots.close()
    assert again.snapshot_id != snapshot.snapshot_id
    assert not links_in(node)


@in_loop
async def test_a_snapshot_that_nobody_reads_is_removed(node: QuietNode) -> None:
    put(await node.create_partition("orders"))
    timers = Timers()
    snapshots = snapshots_of(node, timers)
    snapshot = await snapshots.create()
    node.clock.advance(int(IDLE_SECONDS * 1000) - 1000)
    snapshots.get(snapshot.snapshot_id)
    node.clock.advance(int(IDLE_SECONDS * 1000) - 1000)
    timers.run()
    assert snapshots.get(snapshot.snapshot_id) is snapshot
    node.clock.advance(int(IDLE_SECONDS * 1000) + 1000)
    timers.run()
    with pytest.raises(SnapshotNotFound, match="was not read for"):
        snapshots.get(snapshot.snapshot_id)
    await snapshots.close()
    assert not links_in(node)


@in_loop
async def test_a_full_disk_ends_a_snapshot(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    put(await node.create_partition("orders"))
    timers = Timers()
    snapshots = snapshots_of(node, timers)
    snapshot = await snapshots.create()
    monkeypatch.setattr(node.store.reserves[0], "size_bytes", 1)  # a reserve that is not there
    timers.run()
    with pytest.raises(SnapshotNotFound, match="became full"):
        await snapshots.read(snapshot.snapshot_id, 0, 0, 1)
    with pytest.raises(SnapshotFailed, match="no free space"):
        await snapshots.create()
    await snapshots.close()
    assert not links_in(node)


@in_loop
async def test_file_systems_without_hard_links_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QuietNode(tmp_path) as node:
        put(await node.create_partition("orders"))

        def refuse(source: str, target: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(node.files, "link", refuse)
        snapshots = snapshots_of(node, Timers())
        with pytest.raises(DiskFailure, match="cannot make a hard link"):
            await snapshots.create()
        await snapshots.close()
        assert not links_in(node)


@in_loop
async def test_logs_that_change_all_the_time_end_a_snapshot(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    put(await node.create_partition("orders"))
    monkeypatch.setattr(snapshot_builder, "ROUNDS_MAX", 3)
    monkeypatch.setattr(snapshot_builder, "ROUND_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(Partition, "fits", lambda self, snapshot: False)
    snapshots = snapshots_of(node, Timers())
    with pytest.raises(SnapshotFailed, match="try again later"):
        await snapshots.create()
    await snapshots.close()
    assert not links_in(node)
    assert node.topics.opened_folders is None
    assert not node.topics.is_parking_paused


@in_loop
async def test_a_start_removes_links_that_a_kill_left(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        put(await node.create_partition("orders"))
        await snapshots_of(node, Timers()).create()
        assert links_in(node)
        node.restart()
        assert not links_in(node)
        partition = node.topics.get("orders")
        assert partition is not None
        assert partition.partitions[0].log_end_offset == 5


@in_loop
async def test_partitions_that_are_offline_are_named(node: QuietNode) -> None:
    partition = await node.create_partition("orders")
    put(partition)
    put(await node.create_partition("users"))
    node.topics.park(partition)
    (node.directory / "orders-0" / "partition.metadata").write_text("x")
    snapshots = snapshots_of(node, Timers())
    snapshot = await snapshots.create()
    assert list(snapshot.offline) == ["orders-0"]
    assert not [one.path for one in snapshot.files if "orders" in one.path]
    assert [one.path for one in snapshot.files if "users" in one.path]
    await snapshots.close()
