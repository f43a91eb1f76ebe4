"""After a failed sync the cache shows what the disk does not have: whoever starts next on the machine is told."""

import os
from pathlib import Path
from random import Random

import pytest

from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.disk.journal import Journal
from storage.errors import FileSystemFailed, StorageFailed
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.log.syncing import FILES_ONE_BY_ONE_MAX, SYNC_FAILED_NAME, sync_all
from storage.recovery.crash_recovery import open_log
from tests.support.batches import append, make_batch, read_all, run_now
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

SETTINGS = LogSettings(segment_bytes=20_000)
ID = bytes(range(16))
FOLDER = "/data/orders-0"
NOTE = f"{FOLDER}/{SYNC_FAILED_NAME}"


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    SimulatedFiles(disk).makedirs("/data")
    SimulatedFiles(disk).syncfs("/")
    return disk


def start(disk: SimulatedDisk) -> tuple[LogStore, Log]:
    store = LogStore("/data", SimulatedFiles(disk), run_now)
    store.lock()
    return store, store.open_log("orders", 0, ID, SETTINGS)


def disk_with_a_failed_sync() -> SimulatedDisk:
    """One record is safe, the second was appended, and its sync failed; the process was killed."""
    disk = new_disk()
    _, log = start(disk)
    append(log)
    log.flush()
    append(log, make_batch(value=b"lost" * 2000))
    disk.fail_next("fdatasync")
    with pytest.raises(StorageFailed):
        log.flush()
    return disk.restarted()


def test_a_failed_sync_is_noted_in_the_folder_at_once() -> None:
    disk = disk_with_a_failed_sync()
    assert SimulatedFiles(disk).exists(NOTE)


@pytest.mark.parametrize("seed", range(10))
def test_after_a_failed_sync_the_next_start_reads_the_disk_and_not_the_cache(seed: int) -> None:
    disk = disk_with_a_failed_sync()
    assert disk.is_lying
    _, log = start(disk)
    assert (log.log_end_offset, log.damage, log.quarantined) == (1, None, ())
    again = append(log, make_batch(value=b"new"))
    assert again.base_offset == 1
    log.flush()
    kept = read_all(log)
    _, found = start(disk.after_power_cut(Random(seed)))
    assert read_all(found) == kept


def test_the_note_stays_until_a_sync_has_worked() -> None:
    disk = disk_with_a_failed_sync()
    files = SimulatedFiles(disk)
    _, log = start(disk)
    append(log)
    assert files.exists(NOTE)
    start(disk.restarted())  # killed again
    assert files.exists(NOTE)
    _, log = start(disk.restarted())
    append(log)
    log.flush()
    assert not files.exists(NOTE)


def test_the_note_goes_with_a_clean_stop() -> None:
    disk = disk_with_a_failed_sync()
    store, log = start(disk)
    assert log.log_end_offset == 1
    store.close()
    assert not SimulatedFiles(disk).exists(NOTE)
    disk.restarted()
    store, log = start(disk)
    assert (store.was_clean, log.log_end_offset) == (True, 1)


def test_a_file_system_that_failed_is_noted_for_every_log_that_was_written_to() -> None:
    disk = new_disk()
    files = SimulatedFiles(disk)
    store = LogStore("/data", files, run_now)
    store.lock()
    logs = [store.open_log("orders", number, ID, SETTINGS) for number in range(FILES_ONE_BY_ONE_MAX + 2)]
    for log in logs:
        append(log)
        log.flush()
    quiet, *dirty = logs
    for log in dirty:
        append(log, make_batch(value=b"lost" * 2000))
    syncs = [sync for log in dirty if (sync := log.begin_sync()) is not None]
    append(quiet, make_batch(value=b"lost" * 2000))
    disk.fail_next("syncfs")
    outcomes = sync_all(files, ["/data"], syncs)
    assert all(isinstance(outcome, FileSystemFailed) and outcome.data_dir == "/data" for outcome in outcomes)
    assert files.exists(f"/data/{SYNC_FAILED_NAME}")
    # Killed before anybody could tell the log that had no part in it.
    again = LogStore("/data", SimulatedFiles(disk.restarted()), run_now)
    again.lock()
    assert not files.exists(f"/data/{SYNC_FAILED_NAME}")
    for number in range(len(logs)):
        found = again.open_log("orders", number, ID, SETTINGS)
        assert (found.log_end_offset, found.damage) == (1, None)


@pytest.mark.parametrize("seed", range(10))
def test_a_topic_id_that_only_the_cache_has_is_written_again(seed: int) -> None:
    disk = new_disk()
    _, log = start(disk)
    append(log)
    disk.fail_next("fsync")
    with pytest.raises(StorageFailed):
        log.flush()
    assert disk.file(f"{FOLDER}/partition.metadata").lost
    _, log = start(disk.restarted())
    append(log)
    log.flush()
    kept = read_all(log)
    _, found = start(disk.after_power_cut(Random(seed)))
    assert read_all(found) == kept


@pytest.mark.parametrize("seed", range(20))
def test_a_folder_that_a_killed_process_made_is_durable_with_the_next_first_sync(seed: int) -> None:
    disk = new_disk()
    _, log = start(disk)
    disk.fail_next("create", after=1)  # the metadata is there, the segment is not
    with pytest.raises(Exception, match="Input/output"):
        append(log)
    assert SimulatedFiles(disk).exists(f"{FOLDER}/partition.metadata")
    _, log = start(disk.restarted())
    append(log)
    sync = log.begin_sync()
    assert sync is not None
    assert sync.is_folder_new
    sync.run()
    sync.finish()
    _, found = start(disk.after_power_cut(Random(seed)))
    assert found.log_end_offset == 1


def test_a_journal_believes_the_disk_and_not_the_cache() -> None:
    disk = new_disk()
    journal = Journal.open("/data/journal", SimulatedFiles(disk))
    journal.append([b"kept"])
    disk.fail_next("fdatasync")
    with pytest.raises(StorageFailed):
        journal.append([b"lost" * 3000])
    again = Journal.open("/data/journal", SimulatedFiles(disk.restarted()))
    assert list(again.replay()) == [b"kept"]
    again.append([b"next"])
    found = Journal.open("/data/journal", SimulatedFiles(disk.after_power_cut(Random(1))))
    assert list(found.replay()) == [b"kept", b"next"]


def test_forgotten_pages_are_read_again(tmp_path: Path) -> None:
    files = Files()
    fd = files.create(str(tmp_path / "file"))
    files.write_all(fd, b"x" * 10_000, 0)
    files.fsync(fd)
    files.drop_cached_pages(fd, 5_000, 10_000)
    assert files.pread(fd, 20_000, 0) == b"x" * 10_000
    files.write_all(fd, b"y", 3)
    files.drop_cached_pages(fd, 0, 10_000)  # what waits to be written stays
    assert files.pread(fd, 4, 0) == b"xxxy"
    files.close(fd)


def test_a_folder_in_order_has_no_note(tmp_path: Path) -> None:
    log = open_log(str(tmp_path), Files(), run_now, SETTINGS, "boot")
    append(log)
    log.flush()
    log.close()
    assert SYNC_FAILED_NAME not in os.listdir(tmp_path)
