"""Leases of the embedded store: its timer, its journal, and disks that fail."""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import Change, EmbeddedMetaStore, embedded
from kwire.metastore.interface import ABSENT
from kwire.metastore.leases import OBSOLETE_DEADLINES_MAX, LeaseTable
from storage.disk.journal import Journal
from storage.errors import DiskFailure
from tests.metastore.implementations import Embedded
from tests.support.batches import UnsyncedFiles
from tests.support.faulty_files import FaultyFiles
from tests.support.node import in_loop

WAIT_S = 10.0


@in_loop
async def test_timer_ends_leases_also_those_of_an_earlier_run(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    store = EmbeddedMetaStore(Journal.open(path, UnsyncedFiles()), DiskLanes().metadata)
    lease = await store.lease(1)
    await store.commit([Change("a", 1, ABSENT, lease.lease_id)])
    store.close()
    store = EmbeddedMetaStore(Journal.open(path, UnsyncedFiles()), DiskLanes().metadata)
    watch = store.watch("a", store.revision + 1)
    store.begin_expiry()
    async with asyncio.timeout(WAIT_S):
        assert (await anext(watch)).changes[0].entry is None
        lost = asyncio.Event()
        await store.lease(1, lost.set)
        await lost.wait()
    store.close()


@in_loop
async def test_removal_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "EXPIRY_RETRY_SECONDS", 0.01)
    files = FaultyFiles()
    world = Embedded(tmp_path, files)
    lease = await world.store.lease(10)
    await world.store.commit([Change("a", 1, ABSENT, lease.lease_id)])
    watch = world.store.watch("a", world.store.revision + 1)
    world.store.begin_expiry()
    files.break_down("pwrite", errno.ENOSPC)
    with pytest.raises(DiskFailure):
        await lease.revoke()
    assert world.store.get("a") is not None
    files.repair()
    async with asyncio.timeout(WAIT_S):
        assert (await anext(watch)).changes[0].entry is None
    world.close()


@in_loop
async def test_rewritten_journal_has_the_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "HISTORY_WRITES_MIN", 10)
    world = Embedded(tmp_path)
    lease, revoked = await world.store.lease(10), await world.store.lease(10)
    await world.store.commit([Change("a", 1, ABSENT, lease.lease_id)])
    await revoked.revoke()
    revision = ABSENT
    for number in range(100):
        revision = await world.store.commit([Change("busy", number, revision)])
    assert world.path.stat().st_size < 2000
    world.restart()
    await world.advance(9)
    assert world.store.get("a") is not None
    await world.advance(1)
    assert world.store.get("a") is None
    world.close()


@in_loop
async def test_journal_of_an_earlier_release_opens(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path / "journal"), UnsyncedFiles())
    journal.append([json.dumps({"revision": 1, "set": {"a": 1, "b": 2}}).encode()])
    journal.append([json.dumps({"revision": 2, "set": {"a": None}}).encode()])
    # An earlier release wrote commits of any number of changes.
    journal.append([json.dumps({"revision": 3, "set": {f"k{number}": 1 for number in range(1000)}}).encode()])
    journal.close()
    world = Embedded(tmp_path)
    assert world.store.revision == 3
    assert len(list(world.store.entries(""))) == 1001
    world.close()


@in_loop
async def test_key_whose_lease_was_lost_with_a_damaged_journal_is_removed(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path / "journal"), UnsyncedFiles())
    journal.append([json.dumps({"revision": 5, "set": {"a": 1}, "attached": {"a": 4}}).encode()])
    journal.close()
    world = Embedded(tmp_path)
    assert world.store.get("a") is not None
    await world.advance(1)
    assert world.store.get("a") is None
    world.close()


def test_deadlines_of_removed_leases_do_not_pile_up() -> None:
    table = LeaseTable()
    for number in range(3 * OBSOLETE_DEADLINES_MAX):
        table.change({str(number): 1000}, now=0.0)
        if number:
            table.change({str(number): None}, now=0.0)
    assert len(table) == 1
    assert len(table._deadlines) <= OBSOLETE_DEADLINES_MAX + 2
    table.expire(1000.0)
    assert [lease.lease_id for lease in table.lost()] == [0]
