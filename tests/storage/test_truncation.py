"""Truncation: the end of a log goes, at once or not at all, and no slice of it goes bad."""

import errno
from itertools import product
from pathlib import Path
from random import Random

import pytest

from storage.batch.record_batch import parse_header
from storage.disk.files import Files
from storage.errors import DiskFailure, LogClosed, OffsetOutOfRange, StorageFailed
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
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
from tests.support.new_segments import write_new_segment
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
FOLDER = "/data/orders-0"


def fill(log: Log, count: int = 12) -> list[bytes]:
    """Batches of two records, of changing producers and leaders."""
    for number in range(count):
        batch = make_batch(
            2,
            timestamp_ms=NOW_MS + number * 10,
            producer_id=number % 2,
            producer_epoch=0,
            base_sequence=number // 2 * 2,
        )
        append(log, batch, leader_epoch=number // 3)
    return read_all(log)


def next_sequence(log: Log, producer_id: int) -> int | None:
    state = log.producers.get(producer_id)
    return state.next_sequence if state is not None else None


@pytest.mark.parametrize("offset", range(25))
def test_what_is_left_is_what_was_before(tmp_path: Path, offset: int) -> None:
    log = make_log(tmp_path, settings=SMALL)
    batches = fill(log)
    log.truncate(offset)
    end = offset // 2 * 2  # the whole batch goes that holds the offset
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        assert read_all(log) == batches[: end // 2]
        assert log.synced_offset <= end
        assert all(start < end for _, start in log.epochs.entries)
        assert [next_sequence(log, one) for one in (0, 1)] == [
            (end // 2 + 1) // 2 * 2 or None,
            end // 4 * 2 or None,
        ]
        if end:
            assert log.max_timestamp_offset() == (NOW_MS + (end // 2 - 1) * 10 + 1, end - 1)
        # Killed, and as if it had never been longer.
        log.close(is_clean=False)
        log = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
        assert (log.damage, log.quarantined) == (None, ())
    for number in range(8):
        assert append(log, make_batch(value=b"other"), leader_epoch=9).base_offset == end + number
    log.flush()
    expected = read_all(log)
    assert len(expected) == end // 2 + 8
    log.close()
    again = open_log(str(tmp_path), Files(), run_now, SMALL, "another boot")
    assert (read_all(again), again.damage) == (expected, None)


def test_readers_keep_their_slices(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(index_interval_bytes=100))
    fill(log)
    reads = [log.read(offset, 10_000, 24) for offset in range(0, 24, 2)]
    expected = [bytes(read.view) for read in reads]
    log.truncate(6)
    for _ in range(20):
        append(log, make_batch(value=b"other"), leader_epoch=9)
    assert [bytes(read.view) for read in reads] == expected
    assert all(read.is_warm() for read in reads)
    for read in reads:
        read.warm_up()
    assert [bytes(read.view) for read in reads] == expected


def test_below_the_log_start_everything_goes(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    log.advance_log_start_offset(10)
    dropped = log.drop_segments()
    assert dropped
    log.truncate(4)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (4, 4, 0)
    assert append(log, leader_epoch=9).base_offset == 4
    # The dropped segments' files are gone, and those that got their names since are not touched.
    for segment in dropped:
        segment.delete_files()
    log.close(is_clean=False)
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert (again.log_start_offset, again.log_end_offset, len(read_all(again))) == (4, 5, 1)


def test_the_log_start_never_goes_back_into_a_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    log.advance_log_start_offset(13)
    log.truncate(13)
    # The batch of 12 and 13 is gone as a whole; what lies before it cannot be read.
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (13, 13, 0)
    assert append(log, leader_epoch=9).base_offset == 13


def test_in_a_gap_the_log_ends_with_what_is_left(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    segments = list(log.segments())[:2]
    new = write_new_segment(log, Files(), segments, lambda header: header.base_offset % 8 == 0)
    log.replace_segments(segments, [new], segments[-1].next_offset)
    log.truncate(6)
    assert (log.log_end_offset, log.clean_upto, len(read_all(log))) == (2, 2, 1)
    log.close(is_clean=False)
    again = open_log(str(tmp_path), Files(), run_now, SMALL, "another boot")
    assert (again.log_end_offset, again.damage) == (2, None)


def test_a_sync_that_began_before_says_nothing_of_what_came_after(tmp_path: Path) -> None:
    log = make_log(tmp_path, files=FaultyFiles())
    fill(log)
    sync = log.begin_sync()
    assert sync is not None
    log.truncate(4)
    append(log, leader_epoch=9)
    sync.run()
    sync.finish()
    assert log.synced_offset <= 4
    log.flush()
    assert log.synced_offset == 5


def test_a_seal_still_in_work_does_not_touch_the_new_files(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs, settings=SMALL)
    batches = fill(log)
    log.truncate(6)
    jobs.run()
    assert read_all(log) == batches[:3]
    log.close()
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert read_all(again) == batches[:3]


def test_a_log_that_is_closed_or_asked_for_nonsense_is_not_cut(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    batches = fill(log)
    with pytest.raises(OffsetOutOfRange):
        log.truncate(-1)
    log.truncate(24)
    log.truncate(1000)
    assert read_all(log) == batches
    log.close()
    with pytest.raises(LogClosed):
        log.truncate(0)


@pytest.mark.parametrize("operation", ["create", "pwrite", "fsync", "rename", "fsync_dir"])
@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_refuses_leaves_the_log_as_it_was_or_stops_it(tmp_path: Path, operation: str, after: int) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    batches = fill(log)
    files.fail_next(operation, errno.ENOSPC, after=after)
    try:
        log.truncate(6)
    except StorageFailed:
        assert not log.is_writable
        assert read_all(log) == batches
    except DiskFailure:
        assert read_all(log) == batches
        assert (log.log_end_offset, log.epochs.latest) == (24, 3)
        append(log, leader_epoch=9)
        log.truncate(6)
    log.close()
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert (read_all(again), again.damage) == (batches[:3], None)


@pytest.mark.parametrize("operation", ["create", "pwrite", "fsync", "rename", "fsync_dir"])
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize(("start", "offset"), [(1, 1), (2, 2), (5, 5), (5, 3), (7, 8), (0, 0)])
def test_a_cut_to_nothing_that_failed_costs_nothing_after_a_restart(
    tmp_path: Path, operation: str, after: int, start: int, offset: int
) -> None:
    for is_same_boot, settings in product((True, False), (SMALL, LogSettings())):
        folder = tmp_path / f"{is_same_boot} {settings.segment_bytes}"
        folder.mkdir()
        files = FaultyFiles()
        log = make_log(folder, files=files, settings=settings)
        fill(log)
        log.flush()
        log.advance_log_start_offset(start)
        files.fail_next(operation, errno.ENOSPC, after=after)
        try:
            log.truncate(offset)
        except StorageFailed:
            continue  # nobody knows, and the log says so: it takes nothing more
        except DiskFailure:
            append(log, leader_epoch=9)
            log.flush()
        expected, sequences = read_all(log), [next_sequence(log, one) for one in (0, 1)]
        log.close(is_clean=False)
        again = open_log(str(folder), Files(), run_now, settings, BOOT_ID if is_same_boot else "another boot")
        assert (again.damage, again.quarantined) == (None, ())
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        assert read_all(again) == expected
        assert [next_sequence(again, one) for one in (0, 1)] == sequences


def stage() -> tuple[SimulatedDisk, SimulatedFiles, Log]:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    files.makedirs(FOLDER)
    log = Log(FOLDER, files, run_now, SMALL, files.boot_id())
    fill(log)
    log.flush()
    files.fsync_dir("/data")
    files.fsync_dir("/")
    return disk, files, log


@pytest.mark.parametrize("offset", [0, 6, 8, 20])
def test_a_crash_at_any_step_leaves_the_whole_log_or_the_short_one(offset: int) -> None:
    disk, _, log = stage()
    batches = read_all(log)
    start = disk.call_count
    log.truncate(offset)
    steps = disk.call_count - start
    for is_power_cut in (False, True):
        for step in range(1, steps + 1):
            disk, files, log = stage()
            disk.crash_at = disk.call_count + step
            with pytest.raises(Crashed):
                log.truncate(offset)
            disk = disk.after_power_cut(Random(step)) if is_power_cut else disk.restarted()
            files = SimulatedFiles(disk)
            again = open_log(FOLDER, files, run_now, SMALL, files.boot_id())
            assert (again.damage, again.quarantined) == (None, ())
            found = read_all(again)
            assert found in (batches, batches[: offset // 2])
            assert again.log_end_offset == len(found) * 2
            latest = parse_header(found[-1]).partition_leader_epoch if found else -1
            assert again.epochs.latest == latest
            assert next_sequence(again, 0) == ((len(found) + 1) // 2 * 2 or None)


def test_a_cut_brings_back_what_a_full_window_had_pushed_out(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for number in range(7):
        append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=number))
    log.truncate(5)
    for number in range(5):
        told = append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=number))
        assert (told.is_duplicate, told.base_offset) == (True, number)
    assert not append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=5)).is_duplicate


def test_a_cut_that_takes_a_new_epoch_brings_the_one_before_back(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=0))
    append(log, make_batch(producer_id=1, producer_epoch=1, base_sequence=0))
    log.truncate(1)
    told = append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=0))
    assert (told.is_duplicate, told.base_offset) == (True, 0)
