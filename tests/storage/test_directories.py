"""Several data directories: a partition is where its folder is, and a bad disk takes only its own along."""

import errno
import os
from pathlib import Path

import pytest

from storage.data_directory.directories import LogDirectories
from storage.data_directory.partition_metadata import encode_topic_id
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.errors import DataDirectoryLocked, DiskFailure
from storage.log.settings import LogSettings
from tests.support.batches import append, read_all, run_now

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
SETTINGS = LogSettings()


class BadDiskFiles(Files):
    """Everything below one path fails."""

    def __init__(self, bad: Path) -> None:
        self.bad = str(bad)

    def makedirs(self, path: str) -> None:
        if path.startswith(self.bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().makedirs(path)

    def lock(self, path: str) -> int | None:
        if path.startswith(self.bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().lock(path)


def start(tmp_path: Path, count: int = 3, *, files: Files | None = None) -> LogDirectories:
    directories = LogDirectories([str(tmp_path / str(number)) for number in range(count)], files or Files(), run_now)
    directories.lock()
    return directories


def fill(directories: LogDirectories, count: int) -> dict[int, Path]:
    """Partition ``n`` gets ``n + 1`` records; where each of them is."""
    for partition in range(count):
        log = directories.open_log("orders", partition, ID, SETTINGS)
        for _ in range(partition + 1):
            append(log)
    found = {}
    for partition in range(count):
        path = directories.path_of(f"orders-{partition}")
        assert path is not None
        found[partition] = Path(path)
    return found


def test_at_least_one_directory_is_needed() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LogDirectories([], Files(), run_now)


def test_new_partitions_go_where_the_fewest_are(tmp_path: Path) -> None:
    directories = start(tmp_path)
    places = fill(directories, 7)
    counts = [sum(path.parent == tmp_path / str(number) for path in places.values()) for number in range(3)]
    assert sorted(counts) == [2, 2, 3]
    assert directories.partition_folders == {f"orders-{number}" for number in range(7)}
    # Also before they have a folder.
    opened = [directories.open_log("idle", number, ID, SETTINGS) for number in range(8)]
    assert len({os.path.dirname(log.directory) for log in opened}) == 3
    assert directories.open_log("idle", 0, ID, SETTINGS) is opened[0]
    assert directories.path_of("idle-0") is None
    directories.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_partitions_are_found_where_they_were(tmp_path: Path, is_clean: bool) -> None:
    directories = start(tmp_path)
    places = fill(directories, 5)
    directories.close(is_clean=is_clean)
    directories = start(tmp_path)
    assert directories.was_clean is is_clean
    assert directories.unclean_folders == (
        frozenset() if is_clean else frozenset(path.name for path in places.values())
    )
    for partition, path in places.items():
        log = directories.open_log("orders", partition, ID, SETTINGS)
        assert log.directory == str(path)
        assert len(read_all(log)) == partition + 1
    assert directories.unclean_folders == frozenset()
    directories.close()


def test_each_directory_is_clean_or_not_by_itself(tmp_path: Path) -> None:
    directories = start(tmp_path)
    places = fill(directories, 3)
    directories.close()
    (tmp_path / "1" / "clean_shutdown").unlink()
    (tmp_path / "1" / "written").unlink()
    directories = start(tmp_path)
    assert not directories.was_clean
    assert directories.unclean_folders == {path.name for path in places.values() if path.parent.name == "1"}
    directories.close()


def test_an_offline_directory_takes_only_its_partitions_along(tmp_path: Path) -> None:
    directories = start(tmp_path)
    places = fill(directories, 6)
    known = {path.name: ID for path in places.values()}
    directories.close()
    directories = start(tmp_path, files=BadDiskFiles(tmp_path / "2"))
    assert list(directories.offline_dirs) == [str(tmp_path / "2")]
    assert directories.data_dirs == (str(tmp_path / "0"), str(tmp_path / "1"))
    check = directories.check(known, [])
    assert check.report.unknown == check.report.removed == []
    check.update_folder_list(is_all_online=False)
    for partition, path in places.items():
        if path.parent.name == "2":
            with pytest.raises(DiskFailure, match="cannot be opened"):
                directories.open_log("orders", partition, ID, SETTINGS)
            assert directories.path_of(path.name) is None
        else:
            assert len(read_all(directories.open_log("orders", partition, ID, SETTINGS))) == partition + 1
    # A topic that did not exist then goes to a directory that works.
    append(directories.open_log("new", 0, OTHER_ID, SETTINGS))
    # One of the lost partitions is deleted and made again.
    lost = next(partition for partition, path in places.items() if path.parent.name == "2")
    directories.delete_log("orders", lost)
    append(directories.open_log("orders", lost, OTHER_ID, SETTINGS))
    directories.close()
    # The disk is back, with everything on it; of the two folders of one name the right one is served.
    directories = start(tmp_path)
    for partition in places:
        topic_id = OTHER_ID if partition == lost else ID
        log = directories.open_log("orders", partition, topic_id, SETTINGS)
        assert len(read_all(log)) == (1 if partition == lost else partition + 1)
    assert (tmp_path / "2" / f"orders-{lost}").exists()
    directories.close()


def test_the_first_directory_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(DiskFailure):
        start(tmp_path, files=BadDiskFiles(tmp_path / "0"))
    start(tmp_path).close()


def test_another_process_in_any_directory_stops_the_start(tmp_path: Path) -> None:
    other = LogStore(str(tmp_path / "1"), Files(), run_now)
    other.lock()
    with pytest.raises(DataDirectoryLocked):
        start(tmp_path)
    other.close()
    # What was locked until then was given back, as it was.
    directories = start(tmp_path)
    directories.close()
    assert start(tmp_path).was_clean


def test_a_failed_start_leaves_the_clean_marker(tmp_path: Path) -> None:
    directories = start(tmp_path)
    fill(directories, 4)
    directories.close()
    other = LogStore(str(tmp_path / "2"), Files(), run_now)
    other.lock()
    with pytest.raises(DataDirectoryLocked):
        start(tmp_path)
    other.close()
    assert start(tmp_path).was_clean


def test_a_deleted_partition_is_gone_from_its_directory(tmp_path: Path) -> None:
    directories = start(tmp_path)
    places = fill(directories, 3)
    directories.delete_log("orders", 1)
    assert not places[1].exists()
    assert directories.partition_folders == {"orders-0", "orders-2"}
    directories.close()


def test_a_broken_stop_of_one_does_not_keep_the_others_from_stopping(tmp_path: Path) -> None:
    directories = start(tmp_path)
    places = fill(directories, 3)
    broken = next(path for path in places.values() if path.parent.name == "1")
    for path in broken.iterdir():
        path.unlink()
    broken.rmdir()
    with pytest.raises(DiskFailure):
        directories.close()
    assert [(tmp_path / str(number) / "clean_shutdown").exists() for number in range(3)] == [True, False, True]
    assert encode_topic_id(ID) in (places[0] / "partition.metadata").read_text()
