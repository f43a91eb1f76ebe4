"""The data directory: one owner, one folder per partition that was written to, nothing served to the wrong topic."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from storage.data_directory.folder_removal import FOLDERS_PER_JOB
from storage.data_directory.partition_metadata import encode_topic_id, partition_folder
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.errors import DataDirectoryLocked, DiskFailure, StorageError, StorageFailed
from storage.log.settings import LogSettings
from tests.support.batches import LaterJobs, append, read_all, run_now
from tests.support.faulty_files import FaultyFiles
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
SETTINGS = LogSettings()


def start(path: Path, *, files: Files | None = None) -> LogStore:
    store = LogStore(str(path), files or Files(), run_now)
    store.lock()
    return store


def test_a_partition_without_appends_leaves_no_trace(tmp_path: Path) -> None:
    store = start(tmp_path / "data")
    log = store.open_log("orders", 0, ID, SETTINGS)
    assert log.log_end_offset == 0
    assert store.open_log("orders", 0, ID, SETTINGS) is log
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".lock", "folders", "written"]
    store.close()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        ".lock",
        "clean_shutdown",
        "folders",
        "written",
    ]


def test_a_folder_holds_the_log_and_names_its_topic(tmp_path: Path) -> None:
    store = start(tmp_path)
    append(store.open_log("orders", 3, ID, SETTINGS))
    folder = tmp_path / "orders-3"
    assert (folder / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert (folder / "00000000000000000000.log").exists()
    assert store.partition_folders == {"orders-3"}
    store.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_logs_come_back(tmp_path: Path, is_clean: bool) -> None:
    store = start(tmp_path)
    for partition in range(3):
        log = store.open_log("orders", partition, ID, SETTINGS)
        for _ in range(partition):
            append(log)
    store.close(is_clean=is_clean)
    store = start(tmp_path)
    assert store.was_clean is is_clean
    assert not (tmp_path / "clean_shutdown").exists()
    assert store.partition_folders == {"orders-1", "orders-2"}
    for partition in range(3):
        log = store.open_log("orders", partition, ID, SETTINGS)
        assert len(read_all(log)) == partition
        append(log)
    store.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = start(tmp_path)
    code = (
        "import sys\n"
        "from storage.errors import DataDirectoryLocked\n"
        "from storage.disk.files import Files\n"
        "from storage.data_directory.store import LogStore\n"
        "try:\n    LogStore(sys.argv[1], Files(), lambda job: job()).lock()\n"
        "except DataDirectoryLocked:\n    sys.exit(7)\n"
    )
    again = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(again, timeout=60, check=False).returncode == 7
    with pytest.raises(DataDirectoryLocked):
        start(tmp_path)
    store.close()
    assert subprocess.run(again, timeout=60, check=False).returncode == 0


def test_nothing_is_opened_without_the_lock(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        LogStore(str(tmp_path), Files(), run_now).open_log("orders", 0, ID, SETTINGS)


def test_the_folder_of_another_topic_id_is_moved_aside(tmp_path: Path) -> None:
    store = start(tmp_path)
    append(store.open_log("orders", 0, ID, SETTINGS))
    store.close()
    for topic_id in (OTHER_ID, ID):
        store = start(tmp_path)
        log = store.open_log("orders", 0, topic_id, SETTINGS)
        assert log.log_end_offset == 0
        append(log)
        store.close()
    store = start(tmp_path)
    store.open_log("orders", 0, OTHER_ID, SETTINGS)
    store.close()
    stale = sorted(path.name for path in tmp_path.glob("*.stale"))
    assert stale == sorted(
        f"orders-0.{name}.stale"
        for name in (encode_topic_id(ID), encode_topic_id(ID) + ".1", encode_topic_id(OTHER_ID))
    )
    assert (tmp_path / stale[1] / "00000000000000000000.log").exists()


def test_a_folder_without_metadata_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    store = start(tmp_path)
    append(store.open_log("orders", 0, ID, SETTINGS))
    assert (tmp_path / "orders-0.unknown.stale").exists()
    store.close()


def test_a_deleted_log_is_gone_and_its_readers_are_not_disturbed(tmp_path: Path) -> None:
    jobs = LaterJobs()
    store = LogStore(str(tmp_path), Files(), jobs)
    store.lock()
    log = store.open_log("orders", 0, ID, SETTINGS)
    append(log)
    view = log.read(0, 1000, 1).view
    expected = bytes(view)
    store.delete_log("orders", 0)
    store.delete_log("orders", 0)
    assert not (tmp_path / "orders-0").exists()
    # Created again at once, while the old files are still being removed.
    again = store.open_log("orders", 0, OTHER_ID, SETTINGS)
    append(again)
    jobs.run()
    assert bytes(view) == expected
    assert len(read_all(again)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "folders", "orders-0", "written"]
    store.close()


def test_an_interrupted_deletion_is_finished_at_the_next_start(tmp_path: Path) -> None:
    store = LogStore(str(tmp_path), Files(), LaterJobs())
    store.lock()
    append(store.open_log("orders", 0, ID, SETTINGS))
    store.delete_log("orders", 0)
    store.close(is_clean=False)
    assert len(list(tmp_path.glob("*.deleted"))) == 1
    start(tmp_path).close()
    assert list(tmp_path.glob("*.deleted")) == []


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    store = start(tmp_path)
    topic = "t" * 249
    append(store.open_log(topic, 0, ID, SETTINGS))
    store.delete_log(topic, 0)
    assert store.partition_folders == frozenset()
    store.close()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "ä", "t" * 250, "a\0"])
def test_a_name_cannot_leave_the_directory(topic: str) -> None:
    with pytest.raises(ValueError, match="no valid folder name"):
        partition_folder(topic, 0)


def test_a_stop_with_a_broken_disk_is_not_clean(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = start(tmp_path, files=files)
    for partition in range(2):
        append(store.open_log("orders", partition, ID, SETTINGS))
    files.fail_next("fdatasync")
    with pytest.raises(DiskFailure):
        store.close()
    assert not (tmp_path / "clean_shutdown").exists()
    # The lock is given back all the same, and every log is found.
    store = start(tmp_path)
    assert not store.was_clean
    assert [len(read_all(store.open_log("orders", number, ID, SETTINGS))) for number in range(2)] == [1, 1]
    store.close()


def test_a_full_disk_at_the_first_append_is_reported_and_retried(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = start(tmp_path, files=files)
    log = store.open_log("orders", 0, ID, SETTINGS)
    files.break_down("makedirs")
    with pytest.raises(DiskFailure):
        append(log)
    files.repair()
    append(log)
    assert len(read_all(log)) == 1
    store.close()


# --- which logs have to be recovered


def test_after_a_crash_only_what_was_written_to_is_recovered(tmp_path: Path) -> None:
    store = start(tmp_path)
    assert store.unclean_folders == frozenset()
    for partition in range(6):
        append(store.open_log("orders", partition, ID, SETTINGS))
    store.close()
    store = start(tmp_path)
    assert (store.was_clean, store.unclean_folders) == (True, frozenset())
    for partition in range(3):
        log = store.open_log("orders", partition, ID, SETTINGS)
        if partition:
            append(log)
    append(store.open_log("new", 0, ID, SETTINGS))
    store.close(is_clean=False)
    store = start(tmp_path)
    assert not store.was_clean
    assert store.unclean_folders == {"orders-1", "orders-2", "new-0"}
    # Whoever is opened is recovered; a crash before that leaves the others to be recovered.
    store.open_log("orders", 1, ID, SETTINGS)
    assert store.unclean_folders == {"orders-2", "new-0"}
    store.close(is_clean=False)
    store = start(tmp_path)
    assert store.unclean_folders == {"orders-1", "orders-2", "new-0"}
    for topic, partition in (("orders", 1), ("orders", 2), ("new", 0)):
        store.open_log(topic, partition, ID, SETTINGS)
    store.close()
    assert start(tmp_path).was_clean


def test_a_clean_stop_does_not_hide_what_was_never_recovered(tmp_path: Path) -> None:
    store = start(tmp_path)
    for partition in range(3):
        append(store.open_log("orders", partition, ID, SETTINGS))
    store.close(is_clean=False)
    store = start(tmp_path)
    store.open_log("orders", 0, ID, SETTINGS)
    store.close()
    store = start(tmp_path)
    assert not store.was_clean
    assert store.unclean_folders == {"orders-1", "orders-2"}
    store.close()


def test_a_damaged_log_is_looked_at_again_at_every_start(tmp_path: Path) -> None:
    store = start(tmp_path)
    for partition in range(2):
        append(store.open_log("orders", partition, ID, SETTINGS))
    store.close(is_clean=False)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[65] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        store = start(tmp_path)
        assert "orders-0" in store.unclean_folders
        logs = [store.open_log("orders", partition, ID, SETTINGS) for partition in range(2)]
        assert [log.damage is None for log in logs] == [False, True]
        store.close()


@pytest.mark.parametrize("content", [None, b"", b"something else\n", bytes(40)])
def test_without_a_list_everything_is_recovered(tmp_path: Path, content: bytes | None) -> None:
    store = start(tmp_path)
    for partition in range(3):
        append(store.open_log("orders", partition, ID, SETTINGS))
    store.close()
    store = start(tmp_path)
    append(store.open_log("orders", 1, ID, SETTINGS))
    store.close(is_clean=False)
    (tmp_path / "written").unlink()
    if content is not None:
        (tmp_path / "written").write_bytes(content)
    store = start(tmp_path)
    assert store.unclean_folders == {"orders-0", "orders-1", "orders-2"}
    # And it stays so until it is done.
    store.close(is_clean=False)
    assert start(tmp_path).unclean_folders == {"orders-0", "orders-1", "orders-2"}


def test_a_disk_without_room_for_the_list_does_not_stop_the_start(tmp_path: Path) -> None:
    store = start(tmp_path)
    append(store.open_log("orders", 0, ID, SETTINGS))
    store.close()
    files = FaultyFiles()
    files.break_down("pwrite")
    store = start(tmp_path, files=files)
    assert store.was_clean
    files.repair()
    append(store.open_log("orders", 0, ID, SETTINGS))
    store.close(is_clean=False)
    assert start(tmp_path).unclean_folders == {"orders-0"}


def test_deleted_folders_are_not_recovered(tmp_path: Path) -> None:
    store = start(tmp_path)
    for partition in range(2):
        append(store.open_log("orders", partition, ID, SETTINGS))
    store.delete_log("orders", 0)
    store.close(is_clean=False)
    store = start(tmp_path)
    assert store.unclean_folders == {"orders-1"}
    store.remove_deleted("orders-1")
    assert store.unclean_folders == frozenset()
    store.close()
    assert start(tmp_path).was_clean


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_no_crash_anywhere_hides_a_log_that_was_acknowledged(is_power_cut: bool, is_clean: bool) -> None:
    """One run after a clean stop, stopped at each of its calls; the next start knows what it has to look at."""
    call_count = run_and_stop(None, is_power_cut=is_power_cut, is_clean=is_clean)
    assert call_count > 60
    for crash_at in range(1, call_count + 1):
        run_and_stop(crash_at, is_power_cut=is_power_cut, is_clean=is_clean)


def run_and_stop(crash_at: int | None, *, is_power_cut: bool, is_clean: bool) -> int:
    disk = SimulatedDisk()
    store = LogStore("/data", SimulatedFiles(disk), run_now)
    store.lock()
    acknowledged = dict.fromkeys(range(4), 0)
    for partition in range(3):
        acknowledged[partition] = append(store.open_log("orders", partition, ID, SETTINGS)).base_offset + 1
    store.close()
    before = disk.call_count
    disk.crash_at = None if crash_at is None else before + crash_at
    with suppress(Crashed):
        store = LogStore("/data", SimulatedFiles(disk), run_now)
        store.lock()
        for partition in (1, 3):
            log = store.open_log("orders", partition, ID, SETTINGS)
            for _ in range(2):
                append(log)
            sync = log.begin_sync()
            assert sync is not None
            sync.run()
            sync.finish()
            acknowledged[partition] = log.synced_offset
        append(store.open_log("orders", 2, ID, SETTINGS))  # never acknowledged
        store.close(is_clean=is_clean)
    call_count = disk.call_count - before
    disk = disk.after_power_cut(Random(crash_at or 0)) if is_power_cut else disk.restarted()
    store = LogStore("/data", SimulatedFiles(disk), run_now)
    store.lock()
    for partition, count in acknowledged.items():
        if count == (partition < 3) or store.was_clean:
            continue
        assert f"orders-{partition}" in store.unclean_folders, (crash_at, partition)
    for partition, count in acknowledged.items():
        log = store.open_log("orders", partition, ID, SETTINGS)
        assert log.log_end_offset >= count, (crash_at, partition)
        assert log.damage is None
    assert store.unclean_folders == frozenset()
    store.close()
    return call_count


# --- durability of the folder


def test_a_new_folder_is_durable_with_the_first_sync(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = start(tmp_path, files=files)
    log = store.open_log("orders", 0, ID, SETTINGS)
    append(log)
    before = Counter(files.calls)
    sync = log.begin_sync()
    assert sync is not None
    sync.run()
    sync.finish()
    # The list, the segment, what says whose it is, and the two folders.
    assert files.calls["fdatasync"] - before["fdatasync"] == 2
    assert files.calls["fsync_dir"] - before["fsync_dir"] == 2
    assert files.calls["fsync"] - before["fsync"] >= 3
    # From then on a round costs one sync.
    append(log)
    before = Counter(files.calls)
    sync = log.begin_sync()
    assert sync is not None
    sync.run()
    sync.finish()
    assert (files.calls["fdatasync"] - before["fdatasync"], files.calls["fsync"] - before["fsync"]) == (1, 0)
    store.close()


def test_a_folder_of_a_killed_run_is_durable_with_the_first_sync(tmp_path: Path) -> None:
    synced: list[str] = []

    class Noting(FaultyFiles):
        def fsync_dir(self, path: str, fd: int | None = None) -> None:
            synced.append(path)
            super().fsync_dir(path, fd)

    files = Noting()
    store = start(tmp_path, files=files)
    log = store.open_log("orders", 0, ID, SETTINGS)
    files.break_down("fallocate")
    with pytest.raises(DiskFailure):
        append(log)  # the folder is made, the segment is not
    files.repair()
    store.close()
    store = start(tmp_path, files=files)
    log = store.open_log("orders", 0, ID, SETTINGS)
    append(log)
    synced.clear()
    log.flush()
    assert {str(tmp_path), str(tmp_path / "orders-0")} <= set(synced)


def test_nothing_is_acknowledged_when_the_list_cannot_be_synced(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = start(tmp_path, files=files)
    log = store.open_log("orders", 0, ID, SETTINGS)
    append(log)
    sync = log.begin_sync()
    assert sync is not None
    files.fail_next("fdatasync")
    with pytest.raises(StorageFailed) as caught:
        sync.run()
    sync.fail(caught.value)
    assert log.synced_offset == 0
    with pytest.raises(StorageFailed):
        append(log)
    store.close()
    assert not (tmp_path / "clean_shutdown").exists()


def test_a_first_append_that_cannot_be_noted_comes_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = start(tmp_path, files=files)
    log = store.open_log("orders", 0, ID, SETTINGS)
    files.break_down("pwrite")
    with pytest.raises(DiskFailure):
        append(log)
    files.repair()
    append(log)
    store.close(is_clean=False)
    assert start(tmp_path).unclean_folders == {"orders-0"}


# --- parking, deleting, many folders


def test_a_parked_log_is_opened_anew(tmp_path: Path) -> None:
    store = start(tmp_path)
    log = store.open_log("orders", 0, ID, SETTINGS)
    append(log)
    log.flush()
    assert log.park()
    again = store.open_log("orders", 0, ID, SETTINGS)
    assert again is not log
    assert len(read_all(again)) == 1
    append(again)
    again.flush()
    assert again.park()
    store.forget_log("orders", 0)
    store.forget_log("orders", 1)
    store.close()
    store = start(tmp_path)
    assert store.was_clean
    assert len(read_all(store.open_log("orders", 0, ID, SETTINGS))) == 2
    store.close()


def test_many_deletions_take_one_thread(tmp_path: Path) -> None:
    store = start(tmp_path)
    for partition in range(20):
        append(store.open_log("orders", partition, ID, SETTINGS))
    store.close()
    jobs = LaterJobs()
    store = LogStore(str(tmp_path), Files(), jobs)
    store.lock()
    for partition in range(20):
        store.delete_log("orders", partition)
    assert len(jobs.jobs) == 1
    jobs.run()
    assert list(tmp_path.glob("*.deleted")) == []
    store.close()


def test_folders_that_a_full_lane_does_not_take_go_with_the_next_try(tmp_path: Path) -> None:
    is_full = False

    def lane(job: Callable[[], None]) -> None:
        if is_full:
            raise RuntimeError("the queue is full")
        job()

    store = LogStore(str(tmp_path), Files(), lane)
    store.lock()
    for partition in range(FOLDERS_PER_JOB + 2):
        append(store.open_log("orders", partition, ID, SETTINGS))
    is_full = True
    for partition in range(FOLDERS_PER_JOB + 2):
        store.delete_log("orders", partition)
    assert len(list(tmp_path.glob("*.deleted"))) == FOLDERS_PER_JOB + 2
    is_full = False
    store.removal.retry()
    assert list(tmp_path.glob("*.deleted")) == []
    store.close()


def test_a_start_looks_at_names_only(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"orders-{number}").mkdir()
    (tmp_path / "clean_shutdown").touch()

    class NamesOnly(Files):
        def size_of(self, path: str) -> int:
            raise AssertionError(path)

        def exists(self, path: str) -> bool:
            assert path in (str(tmp_path), str(tmp_path / ".lock"))
            return True

        def open_read(self, path: str) -> int:
            assert path == str(tmp_path / "folders")
            return super().open_read(path)

    store = start(tmp_path, files=NamesOnly())
    assert len(store.partition_folders) == 300
    store.close()
