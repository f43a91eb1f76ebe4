"""The beginning of a log goes, a segment is closed early, an idle log is put away: no offset is ever given twice."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from storage.disk.files import Files
from storage.errors import DiskFailure, LogClosed, OffsetOutOfRange
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.recovery.checkpoint import CheckpointFile
from storage.recovery.crash_recovery import open_log
from storage.segment.segment import segment_name
from tests.support.batches import (
    BOOT_ID,
    NOW_MS,
    LaterJobs,
    append,
    make_batch,
    make_log,
    read_all,
    run_now,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
FOLDER = "/data/orders-0"


def fill(log: Log, count: int = 20) -> None:
    for _ in range(count):
        append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset))


def reopen(path: Path, files: Files | None = None, boot_id: str = BOOT_ID) -> Log:
    return open_log(str(path), files or Files(), run_now, SMALL, boot_id)


# --- roll


def test_a_rolled_log_makes_no_file_and_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings())
    log.roll(NOW_MS)
    assert list(tmp_path.iterdir()) == []
    fill(log, 3)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    (segment,) = log.segments()
    assert segment.is_sealed
    assert not segment.is_seal_pending
    assert (tmp_path / segment_name(0)).stat().st_size == segment.size_bytes
    assert len(read_all(log)) == 3
    log.settings = LogSettings(segment_bytes=10_000)
    fill(log, 2)
    assert [segment.base_offset for segment in log.segments()] == [0, 3]
    expected = read_all(log)
    log.close(is_clean=False)
    assert read_all(reopen(tmp_path)) == expected


def test_a_rolled_log_is_appended_to_after_a_restart(tmp_path: Path) -> None:
    for is_clean in (True, False):
        log = reopen(tmp_path) if not is_clean else make_log(tmp_path, settings=SMALL)
        fill(log, 2)
        log.roll(NOW_MS)
        end = log.log_end_offset
        log.close(is_clean=is_clean)
        log = reopen(tmp_path)
        assert (log.log_end_offset, log.damage) == (end, None)
        fill(log, 1)
        assert log.log_end_offset == end + 1
        log.close()


def test_what_a_roll_left_unsynced_is_synced(tmp_path: Path) -> None:
    files, jobs = FaultyFiles(), LaterJobs()
    log = make_log(tmp_path, files=files, background=jobs)
    fill(log, 2)
    log.roll(NOW_MS)
    sync = log.begin_sync()
    assert sync is not None
    sync.run()
    sync.finish()
    assert (log.synced_offset, files.calls["fdatasync"]) == (2, 1)
    jobs.run()
    assert log.begin_sync() is None


# --- the log start


def test_the_log_start_moves_at_once_and_is_written_off_the_loop(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs)
    fill(log)
    jobs.run()
    for offset in range(1, 15):
        log.advance_log_start_offset(offset)
        assert log.log_start_offset == offset
    # One write is under way, and it takes what is the newest when it comes to it.
    assert len(jobs.jobs) == 1
    jobs.run()
    log.close(is_clean=False)
    assert reopen(tmp_path).log_start_offset == 14


def test_a_log_start_that_cannot_be_written_is_written_next_time(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    fill(log)
    files.break_down("rename")
    log.advance_log_start_offset(3)
    assert log.log_start_offset == 3
    files.repair()
    log.advance_log_start_offset(4)
    log.close(is_clean=False)
    assert reopen(tmp_path).log_start_offset == 4


def test_a_log_start_outside_the_log_is_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    fill(log, 3)
    log.advance_log_start_offset(2)
    for offset in (1, 4):
        with pytest.raises(OffsetOutOfRange):
            log.advance_log_start_offset(offset)


# --- drop


def test_segments_below_the_log_start_are_let_go_and_deleted_later(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    segments = list(log.segments())
    read = log.read(0, 10_000, 20)
    expected = bytes(read.view)
    log.advance_log_start_offset(segments[2].next_offset - 1)
    dropped = log.drop_segments()
    assert dropped == segments[:2]
    assert log.drop_segments() == []
    assert all(os.path.exists(segment.path) for segment in dropped)
    for segment in dropped:
        segment.delete_files()
        segment.delete_files()
    assert not any(os.path.exists(segment.path) or os.path.exists(segment.index_path) for segment in dropped)
    assert bytes(read.view) == expected
    assert read.is_warm()
    assert len(read_all(log)) == 20 - log.log_start_offset
    log.close(is_clean=False)
    again = reopen(tmp_path)
    assert (again.log_start_offset, again.damage) == (log.log_start_offset, None)


def test_a_log_that_loses_everything_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    log.advance_log_start_offset(20)
    for segment in log.drop_segments():
        segment.delete_files()
    assert (log.segment_count, log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 20, 20, 0)
    assert log.begin_sync() is None
    assert len(log.read(20, 1000, 20).view) == 0
    with pytest.raises(OffsetOutOfRange):
        log.read(19, 1000, 20)
    for boot_id in (BOOT_ID, "another boot"):
        log.close(is_clean=False)
        log = reopen(tmp_path, boot_id=boot_id)
        assert (log.log_start_offset, log.log_end_offset, log.damage) == (20, 20, None)
    # The producer's last words are not forgotten with its records.
    assert append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=19)).is_duplicate
    assert append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=20)).base_offset == 20
    log.close()
    log = reopen(tmp_path)
    assert (log.log_start_offset, log.log_end_offset, len(read_all(log))) == (20, 21, 1)


@pytest.mark.parametrize("is_all", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_keeps_the_log_start_and_end(seed: int, is_all: bool) -> None:
    disk, chance = SimulatedDisk(), Random(seed)
    files = SimulatedFiles(disk)
    files.makedirs(FOLDER)
    log = Log(FOLDER, files, run_now, SMALL, files.boot_id())
    files.fsync_dir("/data")
    files.fsync_dir("/")
    fill(log)
    log.flush()
    log.advance_log_start_offset(20 if is_all else 11)
    dropped = log.drop_segments()
    for segment in dropped[: chance.randint(1, len(dropped))]:
        segment.delete_files()
    if chance.random() < 0.5:
        append(log)
    disk.write_back(chance)
    files = SimulatedFiles(disk.after_power_cut(chance))
    again = open_log(FOLDER, files, run_now, SMALL, files.boot_id())
    assert again.log_start_offset == log.log_start_offset
    assert again.log_end_offset in (20, log.log_end_offset)
    assert again.damage is None


def test_files_stay_while_the_checkpoint_cannot_be_made_durable(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    fill(log)
    log.advance_log_start_offset(20)
    dropped = log.drop_segments()
    files.break_down("fsync", errno.EIO)
    for segment in dropped:
        with pytest.raises(DiskFailure):
            segment.delete_files()
    assert all(os.path.exists(segment.path) for segment in dropped)
    files.repair()
    for segment in dropped:
        segment.delete_files()
    assert not any(os.path.exists(segment.path) for segment in dropped)


def test_a_later_log_of_the_same_name_keeps_its_files(tmp_path: Path) -> None:
    log = make_log(tmp_path / "p", settings=SMALL)
    (tmp_path / "p").mkdir()
    fill(log)
    log.advance_log_start_offset(20)
    dropped = log.drop_segments()
    log.close(is_clean=False)
    (tmp_path / "p").rename(tmp_path / "p.deleted")
    (tmp_path / "p").mkdir()
    later = make_log(tmp_path / "p", settings=SMALL)
    fill(later)
    for segment in dropped:
        segment.delete_files()
    later.release()
    assert len(read_all(later)) == 20
    assert os.path.exists(tmp_path / "p" / segment_name(0))


def test_a_seal_still_in_work_does_not_bring_a_dropped_file_back(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs, settings=SMALL)
    fill(log)
    log.advance_log_start_offset(20)
    for segment in log.drop_segments():
        segment.delete_files()
    jobs.run()
    assert not any(path.suffix in (".log", ".index") for path in tmp_path.iterdir())


# --- park


def test_a_parked_log_is_opened_without_reading_it(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    assert not log.park()
    log.flush()
    expected = read_all(log)
    assert log.park()
    with pytest.raises(LogClosed):
        append(log)

    class BlindFiles(Files):
        def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
            raise AssertionError("nothing is read")

    again = reopen(tmp_path, BlindFiles())
    assert (again.log_end_offset, again.synced_offset, again.begin_sync()) == (20, 20, None)
    assert append(again, make_batch(producer_id=1, producer_epoch=0, base_sequence=20)).base_offset == 20
    again.close(is_clean=False)
    last = reopen(tmp_path)
    assert read_all(last)[:20] == expected
    assert last.log_end_offset == 21


def test_parking_waits_for_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    fill(log)
    log.flush()
    syncs = (files.calls["fsync"], files.calls["fdatasync"], files.calls["fsync_dir"])
    assert log.park()
    assert (files.calls["fsync"], files.calls["fdatasync"], files.calls["fsync_dir"]) == syncs


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_after_parking_loses_nothing(seed: int) -> None:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    files.makedirs(FOLDER)
    log = Log(FOLDER, files, run_now, SMALL, files.boot_id())
    files.fsync_dir("/data")
    files.fsync_dir("/")
    fill(log)
    log.flush()
    expected = read_all(log)
    assert log.park()
    files = SimulatedFiles(disk.after_power_cut(Random(seed)))
    again = open_log(FOLDER, files, run_now, SMALL, files.boot_id())
    assert (read_all(again), again.damage) == (expected, None)


@pytest.mark.parametrize("operation", ["open_write", "truncate", "pwrite", "rename"])
def test_a_log_that_cannot_be_parked_goes_on(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    fill(log)
    log.flush()
    files.break_down(operation)
    assert not log.park()
    files.repair()
    fill(log, 30)
    assert len(read_all(log)) == 50
    log.flush()
    assert log.park()
    assert len(read_all(reopen(tmp_path))) == 50


def test_a_log_with_work_left_is_not_parked(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs, settings=SMALL)
    fill(log)
    log.flush()
    assert not log.park()  # seals
    jobs.run()
    log.advance_log_start_offset(10)
    dropped = log.drop_segments()
    assert not log.park()  # files to be removed
    for segment in dropped:
        segment.delete_files()
    # What the checkpoint says of the log start is on the disk already; it is not replaced without a sync.
    assert not log.park()
    jobs.run()
    assert log.park()
    again = reopen(tmp_path)
    assert (again.log_start_offset, again.log_end_offset, again.begin_sync()) == (10, 20, None)


def test_an_append_after_a_park_that_was_refused_is_not_forgotten(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs, settings=LogSettings())
    fill(log)
    log.flush()
    log.advance_log_start_offset(10)
    assert not log.park()
    jobs.run()
    fill(log, 1)
    assert not log.park()
    log.close(is_clean=False)
    assert reopen(tmp_path).log_end_offset == 21


def test_an_empty_log_is_parked(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    assert log.park()
    assert list(tmp_path.iterdir()) == []


# --- jitter


def test_segments_of_different_logs_roll_at_different_times(tmp_path: Path) -> None:
    settings = LogSettings(segment_ms=1000, segment_jitter_ms=500)
    ages = set()
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        log = make_log(folder, settings=settings)
        age = 0
        while log.segment_count < 2:
            append(log, make_batch(timestamp_ms=NOW_MS + age))
            age += 10
        assert 500 <= age - 10 <= 1010
        ages.add(age)
        # The same again, each time.
        log.close()
        log = open_log(str(folder), Files(), run_now, settings, BOOT_ID)
        assert log.segment_count == 2
    assert len(ages) > 4


def test_a_log_start_that_moves_past_a_waiting_checkpoint_gets_one_of_its_own(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs)
    for _ in range(3):
        append(log)
    jobs.run()
    log.advance_log_start_offset(2)
    log.advance_log_start_offset(3)
    assert len(jobs.jobs) == 1
    for _ in range(3):
        append(log)
    log.advance_log_start_offset(5)
    assert len(jobs.jobs) == 2
    jobs.run()
    found = CheckpointFile(str(tmp_path), Files()).read()
    assert found is not None
    assert (found.log_start_offset, found.offset) == (5, 6)
