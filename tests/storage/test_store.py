"""The data directory: one owner, one folder per partition that was written to, nothing served to the wrong topic."""

import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import DataDirectoryLocked, DiskFailure, StorageError
from storage.files import Files
from storage.settings import LogSettings
from storage.store import LogStore, encode_topic_id, partition_folder
from tests.support.batches import LaterJobs, append, read_all, run_now
from tests.support.faulty_files import FaultyFiles

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
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]
    store.close()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".lock", "clean_shutdown"]


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
        "from storage.files import Files\n"
        "from storage.store import LogStore\n"
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
    for _ in range(2):
        store = start(tmp_path)
        log = store.open_log("orders", 0, OTHER_ID, SETTINGS)
        assert log.log_end_offset == 0
        append(log)
        store.close()
        (tmp_path / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {encode_topic_id(ID)}")
    stale = sorted(path.name for path in tmp_path.glob("*.stale"))
    assert stale == [f"orders-0.{encode_topic_id(ID)}.1.stale", f"orders-0.{encode_topic_id(ID)}.stale"]
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "orders-0"]
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
    with pytest.raises(ValueError, match="no folder"):
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


def test_folders_of_partitions_nobody_knows_are_removed(tmp_path: Path) -> None:
    store = start(tmp_path)
    for topic in ("kept", "deleted"):
        append(store.open_log(topic, 0, ID, SETTINGS))
    store.close()
    (tmp_path / "backup-1").mkdir()
    (tmp_path / "backup-1" / "file").write_bytes(b"not ours")
    store = start(tmp_path)
    assert store.remove_unknown({"kept-0", "kept-1"}) == ["deleted-0"]
    assert store.partition_folders == {"kept-0", "backup-1"}
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["backup-1", "kept-0"]
    assert store.open_log("kept", 0, ID, SETTINGS).log_end_offset == 1
    store.close()
