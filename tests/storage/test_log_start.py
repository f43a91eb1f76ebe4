"""A new log start is on the disk before anybody sees it."""

import errno
from pathlib import Path
from random import Random

import pytest

from storage.data_directory.store import LogStore
from storage.errors import DiskFailure, OffsetOutOfRange
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.log.start_offset import LogStartUpdate
from storage.recovery.checkpoint import CheckpointFile
from storage.recovery.crash_recovery import open_log
from tests.support.batches import BOOT_ID, LaterJobs, UnsyncedFiles, append, make_batch, make_log, run_now
from tests.support.faulty_files import FaultyFiles
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

TOPIC_ID = bytes(range(16))


def filled(directory: Path, files: FaultyFiles, later: LaterJobs) -> Log:
    log = make_log(directory, files=files, background=later)
    append(log, make_batch(5))
    log.flush()
    return log


def start_on_file(directory: Path, files: FaultyFiles) -> int:
    checkpoint = CheckpointFile(str(directory), files).read()
    return 0 if checkpoint is None else checkpoint.log_start_offset


def test_the_start_is_on_file_before_readers_see_it(tmp_path: Path) -> None:
    files, later = FaultyFiles(), LaterJobs()
    log = filled(tmp_path, files, later)
    move = LogStartUpdate(log, 3)
    assert (start_on_file(tmp_path, files), log.log_start_offset) == (0, 0)
    assert move.run() is True
    assert (start_on_file(tmp_path, files), log.log_start_offset) == (3, 0)
    later.run()  # a checkpoint that was begun before
    log.checkpoint()  # and one that comes after it
    assert start_on_file(tmp_path, files) == 3
    move.finish()
    assert log.log_start_offset == 3


def test_a_disk_that_does_not_take_it_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    files, later = FaultyFiles(), LaterJobs()
    log = filled(tmp_path, files, later)
    move = LogStartUpdate(log, 3)
    files.break_down("pwrite", errno.ENOSPC)
    with pytest.raises(DiskFailure):
        move.run()
    move.fail()
    files.repair()
    log.checkpoint()
    assert (start_on_file(tmp_path, files), log.log_start_offset) == (0, 0)
    again = LogStartUpdate(log, 3)
    assert again.run() is True
    again.finish()
    assert (start_on_file(tmp_path, files), log.log_start_offset) == (3, 3)


def test_one_that_fails_does_not_take_back_another(tmp_path: Path) -> None:
    files, later = FaultyFiles(), LaterJobs()
    log = filled(tmp_path, files, later)
    first, second = LogStartUpdate(log, 2), LogStartUpdate(log, 4)
    assert second.run() is True
    first.fail()
    log.checkpoint()
    assert start_on_file(tmp_path, files) == 4
    second.finish()
    assert log.log_start_offset == 4
    third = LogStartUpdate(log, 4)  # the start it has
    third.fail()
    assert log.log_start_offset == 4
    with pytest.raises(OffsetOutOfRange):
        LogStartUpdate(log, 3)
    with pytest.raises(OffsetOutOfRange):
        LogStartUpdate(log, 6)


def test_a_closed_log_leaves_its_folder_alone(tmp_path: Path) -> None:
    files, later = FaultyFiles(), LaterJobs()
    log = filled(tmp_path, files, later)
    move = LogStartUpdate(log, 3)
    log.close()
    writes = files.calls["pwrite"]
    assert move.run() is False
    assert files.calls["pwrite"] == writes


@pytest.mark.parametrize("seed", range(20))
def test_the_start_survives_a_power_cut(seed: int) -> None:
    disk = SimulatedDisk()
    later = LaterJobs()

    def opened(on: SimulatedDisk, background: object = run_now) -> Log:
        store = LogStore("/data", SimulatedFiles(on), later if background is later else run_now)
        store.lock()
        return store.open_log("t", 0, TOPIC_ID, LogSettings(segment_bytes=4096))

    log = opened(disk, later)
    for _ in range(6):
        append(log, make_batch(3, value=bytes(1000)))
    log.flush()
    assert LogStartUpdate(log, 10).run() is True
    again = opened(disk.after_power_cut(Random(seed)))
    assert (again.log_start_offset, again.log_end_offset) == (10, 18)


def test_a_seal_of_a_segment_that_was_dropped_leaves_the_next_log_of_that_name_alone(tmp_path: Path) -> None:
    """The topic is deleted and made again before the thread gets to it."""
    later = LaterJobs()
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = make_log(folder, background=later)
    append(log, make_batch(2))
    log.roll(0)
    append(log, make_batch(1))
    log.advance_log_start_offset(2)
    assert len(log.drop_segments()) == 1
    log.close(is_clean=False)
    folder.rename(tmp_path / "t-0.deleted")
    folder.mkdir()
    again = make_log(folder)
    for _ in range(20):
        append(again, make_batch(5))
    later.run()
    again.close(is_clean=False)
    found = open_log(str(folder), UnsyncedFiles(), run_now, LogSettings(), BOOT_ID)
    assert (found.log_end_offset, found.damage) == (100, None)
