"""What a start does with folders: known, deleted, unknown and lost ones, over several directories."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from storage.data_directory.directories import LogDirectories
from storage.data_directory.folder_list import FolderList
from storage.data_directory.partition_metadata import encode_metadata
from storage.data_directory.start_check import DeletedTopic, StartReport
from storage.disk.files import Files
from storage.errors import PartitionOffline
from storage.log.settings import LogSettings
from tests.support.batches import LaterJobs, UnsyncedFiles, append, read_all, run_now
from tests.support.moving import Machine
from tests.support.simulated_disk import Crashed, SimulatedDisk

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
SETTINGS = LogSettings()


def start(
    path: Path | str, known: Mapping[str, bytes], deleted: Sequence[DeletedTopic] = (), *, files: Files | None = None
) -> tuple[LogDirectories, StartReport]:
    directories = LogDirectories([f"{path}/0", f"{path}/1"], files or UnsyncedFiles(), run_now)
    directories.lock()
    check = directories.check(known, deleted)
    if not check.report.unknown:
        check.update_folder_list(is_all_online=True)
    return directories, check.report


def orders(count: int, topic_id: bytes = ID) -> dict[str, bytes]:
    return {f"orders-{index}": topic_id for index in range(count)}


def fill(path: Path, count: int) -> dict[int, Path]:
    directories, _ = start(path, orders(count))
    places = {}
    for index in range(count):
        log = directories.open_log("orders", index, ID, SETTINGS)
        append(log)
        log.flush()
        places[index] = Path(log.directory)
    directories.close()
    return places


def test_folders_that_the_catalogue_does_not_know_are_reported_and_kept(tmp_path: Path) -> None:
    places = fill(tmp_path, 4)
    (tmp_path / "0" / "backup-1").mkdir()
    (tmp_path / "0" / "notes-2").write_bytes(b"a file")
    directories, report = start(tmp_path, orders(1))
    assert sorted(report.unknown) == sorted(str(places[index]) for index in (1, 2, 3))
    assert report.removed == []
    directories.close(is_clean=directories.was_clean)
    assert all(place.exists() for place in places.values())


def test_only_a_note_of_the_deletion_removes_a_folder(tmp_path: Path) -> None:
    places = fill(tmp_path, 4)
    (places[3] / "partition.metadata").write_bytes(encode_metadata(OTHER_ID))
    directories, report = start(tmp_path, {}, [DeletedTopic(ID, "orders", 4)])
    assert sorted(report.removed) == ["orders-0", "orders-1", "orders-2"]
    assert report.unknown == [str(places[3])]
    assert [index for index, place in places.items() if place.exists()] == [3]
    directories.close()


def test_a_folder_that_was_never_durable_goes_with_the_note_of_its_name(tmp_path: Path) -> None:
    """A power cut took its metadata, and the name that the deletion had given it."""
    left = tmp_path / "0" / "orders-0"
    left.mkdir(parents=True)
    (left / "partition.metadata").write_bytes(b"")
    other = tmp_path / "0" / "orders-7"
    other.mkdir()
    (other / "partition.metadata").write_bytes(b"")
    directories, report = start(tmp_path, {}, [DeletedTopic(ID, "orders", 4)])
    assert report.removed == ["orders-0"]
    assert report.unknown == [str(other)]  # the note is about four partitions
    directories.close(is_clean=directories.was_clean)


def test_a_listed_folder_without_metadata_is_not_recognised_by_its_name(tmp_path: Path) -> None:
    places = fill(tmp_path, 1)
    (places[0] / "partition.metadata").unlink()
    directories, report = start(tmp_path, {}, [DeletedTopic(OTHER_ID, "orders", 1)])
    assert report.removed == []
    assert report.unknown == [str(places[0])]
    directories.close(is_clean=directories.was_clean)


def test_what_is_left_of_a_deleted_topic_makes_way_for_its_namesake(tmp_path: Path) -> None:
    places = fill(tmp_path, 2)
    directories, report = start(tmp_path, orders(2, OTHER_ID), [DeletedTopic(ID, "orders", 2)])
    assert sorted(report.removed) == ["orders-0", "orders-1"]
    log = directories.open_log("orders", 0, OTHER_ID, SETTINGS)
    assert log.log_end_offset == 0
    append(log)
    log.flush()
    directories.close()
    # The note is still there after another crash: the new folder is not touched.
    directories, report = start(tmp_path, orders(2, OTHER_ID), [DeletedTopic(ID, "orders", 2)])
    assert report == StartReport()
    assert len(read_all(directories.open_log("orders", 0, OTHER_ID, SETTINGS))) == 1
    directories.close()
    assert places[0].exists()


def test_a_folder_that_says_nothing_makes_way_for_a_new_topic(tmp_path: Path) -> None:
    """A power cut can leave that of a deleted topic: the folder's new name and its content were not on disk yet."""
    left = tmp_path / "0" / "orders-0"
    left.mkdir(parents=True)
    (left / "notes").write_bytes(b"kept")
    directories, report = start(tmp_path, {})
    assert report == StartReport()
    log = directories.open_log("orders", 0, ID, SETTINGS)
    append(log)
    assert log.log_end_offset == 1
    directories.close()
    assert [path.read_bytes() for path in tmp_path.glob("0/orders-0.*/notes")] == [b"kept"]


def test_unknown_folders_can_be_set_aside(tmp_path: Path) -> None:
    places = fill(tmp_path, 4)
    directories, report = start(tmp_path, orders(1))
    targets = directories.set_aside(report.unknown, "now-Z")
    assert sorted(targets) == [f"{tmp_path}/0/set-aside-now-Z", f"{tmp_path}/1/set-aside-now-Z"]
    directories.close()
    for index in (1, 2, 3):
        kept = places[index].parent / "set-aside-now-Z" / places[index].name
        assert (kept / "00000000000000000000.log").exists()
    directories, report = start(tmp_path, orders(1))
    assert report.unknown == []
    directories.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_folder_is_not_taken_for_one_that_was_never_made(tmp_path: Path, is_clean: bool) -> None:
    directories, _ = start(tmp_path, orders(6))
    for index in range(4):
        append(directories.open_log("orders", index, ID, SETTINGS))  # never synced
    lost = Path(directories.open_log("orders", 2, ID, SETTINGS).directory)
    directories.close(is_clean=is_clean)
    shutil.rmtree(lost)
    for _ in range(2):
        directories, report = start(tmp_path, orders(6))
        assert report.lost == ["orders-2"]
        assert list(directories.offline_partitions) == ["orders-2"]
        with pytest.raises(PartitionOffline) as raised:
            directories.open_log("orders", 2, ID, SETTINGS)
        remedy = f"run: kwire log adopt {tmp_path}/0 {tmp_path}/1 --accept-loss orders-2"
        assert raised.value.report.endswith(remedy)
        assert str(tmp_path) not in str(raised.value)  # which clients read
        with pytest.raises(PartitionOffline):
            directories.directory_of("orders-2", ID)
        assert directories.open_log("orders", 1, ID, SETTINGS).log_end_offset == 1
        assert directories.open_log("orders", 5, ID, SETTINGS).log_end_offset == 0
        directories.close()
    # The topic can be deleted, and made again.
    directories, report = start(tmp_path, orders(6))
    directories.delete_log("orders", 2)
    append(directories.open_log("orders", 2, OTHER_ID, SETTINGS))
    directories.close()


def test_a_whole_directory_that_is_empty_is_noticed(tmp_path: Path) -> None:
    places = fill(tmp_path, 6)
    second = tmp_path / "1"
    shutil.rmtree(second)
    second.mkdir()  # as the mount point of a volume that is not mounted
    directories, report = start(tmp_path, orders(6))
    assert sorted(report.lost) == sorted(place.name for place in places.values() if place.parent == second)
    assert report.lost
    directories.close()


def test_a_folder_that_vanishes_while_its_log_is_put_away_is_lost(tmp_path: Path) -> None:
    directories, _ = start(tmp_path, orders(1))
    log = directories.open_log("orders", 0, ID, SETTINGS)
    append(log)
    log.flush()
    assert log.park()
    directories.forget_log("orders", 0)
    shutil.rmtree(log.directory)
    with pytest.raises(PartitionOffline, match="orders-0 is offline: its folder is missing") as raised:
        directories.open_log("orders", 0, ID, SETTINGS)
    assert raised.value.report.endswith("--accept-loss orders-0")
    directories.close()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "flipped": lambda path: path.write_bytes(path.read_bytes().replace(b"orders-1", b"orderz-1")),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "garbage": lambda path: path.write_bytes(path.read_bytes() + b"garbage\n"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_list_is_completed_from_the_folders(tmp_path: Path, damage: str) -> None:
    places = fill(tmp_path, 4)
    DAMAGE[damage](tmp_path / "0" / "folders")
    directories, report = start(tmp_path, orders(4))
    assert report.lost == report.unknown == []
    assert directories.folder_list.is_complete == (damage == "cut")  # a last line without its end was never finished
    directories.close()
    shutil.rmtree(places[3])
    directories, report = start(tmp_path, orders(4))
    assert directories.folder_list.is_complete
    assert report.lost == ["orders-3"]
    directories.close()


def test_ends_of_logs_that_were_not_listed_are_reported(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    (tmp_path / "0" / "folders").unlink()  # as a directory of an earlier version
    directories, report = start(tmp_path, orders(2))
    assert report.end_offsets == {"orders-0": 1, "orders-1": 1}
    directories.close()
    _, report = start(tmp_path, orders(2))
    assert report.end_offsets == {}


def test_of_two_folders_of_one_name_the_right_one_is_listed(tmp_path: Path) -> None:
    places = fill(tmp_path, 2)
    first, second = (tmp_path / name / "orders-0" for name in "01")
    other = second if places[0] == first else first
    shutil.copytree(places[0], other)
    (first / "partition.metadata").write_bytes(encode_metadata(OTHER_ID))
    (second / "partition.metadata").write_bytes(encode_metadata(ID))
    (tmp_path / "0" / "folders").unlink()
    directories, report = start(tmp_path, orders(2))
    assert report.end_offsets == {"orders-0": 1, "orders-1": 1}
    assert Path(directories.open_log("orders", 0, ID, SETTINGS).directory) == second
    directories.close()


def test_a_list_with_many_dead_lines_is_written_anew_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.data_directory.folder_list.SPARE_LINES_MAX", 10)
    jobs = LaterJobs()
    listed = FolderList(str(tmp_path), Files(), jobs)
    listed.start("boot")
    listed.record_new("kept-0", ID)
    for number in range(20):
        listed.record_new(f"gone-{number}", ID)
        listed.forget(f"gone-{number}")
    assert len(jobs.jobs) == 1
    listed.record_new("late-0", OTHER_ID)
    jobs.run()
    listed.record_durable("kept-0")
    listed.record_new("later-0", ID)
    assert (tmp_path / "folders").read_bytes().count(b"\n") < 12
    listed.close()
    again = FolderList(str(tmp_path), Files(), jobs)
    again.start("boot")
    assert again.ids == {"kept-0": ID, "late-0": OTHER_ID, "later-0": ID}
    assert again.is_complete
    again.close()
    # In another boot only what was synced counts.
    after = FolderList(str(tmp_path), Files(), jobs)
    after.start("another boot")
    assert after.ids == {"kept-0": ID}
    after.close()


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_no_crash_makes_a_partition_look_lost(is_power_cut: bool) -> None:
    """Every call of a life that makes folders is the last one once; the next start finds all that was synced."""

    def live(disk: SimulatedDisk, synced: list[int]) -> None:
        directories, _ = start("/data", orders(4), files=Machine(disk))
        for index in range(3):
            log = directories.open_log("orders", index, ID, SETTINGS)
            append(log)
            log.flush()
            synced.append(index)
        directories.close()

    disk = SimulatedDisk()
    live(disk, [])
    for crash_at in range(1, disk.call_count + 1):
        disk = SimulatedDisk()
        disk.crash_at = crash_at
        synced: list[int] = []
        with pytest.raises(Crashed):
            live(disk, synced)
        disk = disk.after_power_cut(Random(crash_at)) if is_power_cut else disk.restarted()
        disk.crash_at = None
        directories, report = start("/data", orders(4), files=Machine(disk))
        assert report.lost == report.unknown == []
        for index in synced:
            assert directories.open_log("orders", index, ID, SETTINGS).log_end_offset == 1
        for index in range(4):
            directories.open_log("orders", index, ID, SETTINGS)  # none is offline
        directories.close()
